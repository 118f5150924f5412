from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from dspy.lm15 import Message, Request
from safetensors.torch import load_file

import cirag_dspy.lms as lms
from cirag_dspy.distill import adapter_folder, lora
from cirag_dspy.distill.curve import thinned
from cirag_dspy.distill.lora import LoraSettings, train
from cirag_dspy.errors import DataError, ModelError, RunError
from tests.tiny import LLAMA3, save_tiny_llama

FAST = LoraSettings(rank=8, epochs=3, batch_size=2, learning_rate=1e-2, save_every=4)
LEARN = LoraSettings(rank=16, epochs=60, learning_rate=1e-2)


def chat(user, assistant, **names):
    return {"messages": [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]} | names


ROWS = [chat(f"Say {n}." + " Please." * (n % 3), f"It is {n}!", id=str(n), predictor="answer") for n in range(9)]


def fit(base, out, rows=ROWS, settings=FAST, **options):
    """Train; returns the steps that were run."""
    steps = []
    options = {"base_name": "tiny", "dtype": "float32", "device": "cpu"} | options
    train(base, rows, out, settings, on_step=lambda *step: steps.append(step), **options)
    return [step for step, _, _ in steps]


class Killed(BaseException):
    pass


def fit_until(step, base, out, settings=FAST, end=Killed):
    def kill(now, total, loss):
        if now == step:
            raise end

    with pytest.raises(end):
        train(base, ROWS, out, settings, base_name="tiny", dtype="float32", device="cpu", on_step=kill)


def record(folder):
    return json.loads((folder / "training.json").read_text())


def same_adapter(one, two):
    first, second = (load_file(folder / "adapter_model.safetensors") for folder in (one, two))
    curves = [[entry[:3] for entry in record(folder)["losses"]] for folder in (one, two)]
    return (
        first.keys() == second.keys()
        and all(torch.equal(first[k], second[k]) for k in first)
        and curves[0] == curves[1]
    )


@pytest.fixture
def trained(tiny_folder, tmp_path):
    fit(tiny_folder, tmp_path / "trained")
    return tmp_path / "trained"


def test_what_is_in_the_folder(tiny_folder, trained):
    assert sorted(p.name for p in trained.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "training.json",
    ]
    config, made = json.loads((trained / "adapter_config.json").read_text()), record(trained)
    assert (config["base_model_name_or_path"], config["r"], config["lora_alpha"]) == ("tiny", 8, 16)
    adapted = {name.rpartition(".")[2] for name in config["target_modules"]}
    assert adapted == {f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")}
    assert made["base"] == {"name": "tiny", "content": lms.fingerprint(tiny_folder)}
    assert made["settings"]["learning_rate"] == 1e-2 and made["steps"] == 15 and len(made["data"]) == 12
    assert (made["rows"]["kept"], made["rows"]["learnt"]) == (9, 9 * len("It is 0!x"))
    assert made["tokens"] == 3 * made["rows"]["tokens"] == made["losses"][-1][2]
    assert [entry[0] for entry in made["losses"]] == list(range(1, 16)) and made["losses"][-1][1] < made["losses"][0][1]
    assert made["versions"].keys() == {"python", "torch", "transformers", "peft"}
    assert (
        str(tiny_folder) not in (trained / "adapter_config.json").read_text() + (trained / "training.json").read_text()
    )


def test_the_base_is_neither_changed_nor_resized(tiny_folder, tmp_path):
    before = {f.name: f.read_bytes() for f in tiny_folder.iterdir()}
    fit(tiny_folder, tmp_path / "a")
    assert {f.name: f.read_bytes() for f in tiny_folder.iterdir()} == before
    names = load_file(tmp_path / "a/adapter_model.safetensors")
    assert len(names) == 2 * 7 * 2 and all("lora_" in name for name in names)


def test_a_killed_run_goes_on_to_the_adapter_of_an_uninterrupted_one(tiny_folder, trained, tmp_path):
    fit_until(10, tiny_folder, tmp_path / "parts")
    assert [p.name for p in (tmp_path / "parts/checkpoint").iterdir()] == ["step-00000008"]
    assert len((tmp_path / "parts/losses.jsonl").read_text().splitlines()) == 10
    assert fit(tiny_folder, tmp_path / "parts") == list(range(9, 16))
    assert same_adapter(trained, tmp_path / "parts")


def test_with_dropout_too(tiny_folder, tmp_path):
    settings = replace(FAST, dropout=0.3)
    fit(tiny_folder, tmp_path / "whole", settings=settings)
    fit_until(5, tiny_folder, tmp_path / "parts", settings)
    fit(tiny_folder, tmp_path / "parts", settings=settings)
    assert same_adapter(tmp_path / "whole", tmp_path / "parts")


def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(tiny_folder, trained, tmp_path, monkeypatch):
    save = adapter_folder.save_file

    def killed(tensors, file, **options):
        save({"half": torch.zeros(1)}, file)
        raise Killed

    fit_until(6, tiny_folder, tmp_path / "parts")
    monkeypatch.setattr(adapter_folder, "save_file", killed)
    with pytest.raises(Killed):
        fit(tiny_folder, tmp_path / "parts")
    monkeypatch.setattr(adapter_folder, "save_file", save)
    assert fit(tiny_folder, tmp_path / "parts") == list(range(5, 16))
    assert same_adapter(trained, tmp_path / "parts")


def test_ctrl_c_keeps_every_step(tiny_folder, trained, tmp_path):
    fit_until(7, tiny_folder, tmp_path / "parts", end=KeyboardInterrupt)
    assert fit(tiny_folder, tmp_path / "parts") == list(range(8, 16))
    assert same_adapter(trained, tmp_path / "parts")


def test_ctrl_c_in_the_middle_of_an_update_keeps_the_checkpoint_before(tiny_folder, trained, tmp_path, monkeypatch):
    step = torch.optim.AdamW.step

    def interrupted(self, *args):
        step(self, *args)
        raise KeyboardInterrupt

    fit_until(6, tiny_folder, tmp_path / "parts")
    monkeypatch.setattr(torch.optim.AdamW, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(tiny_folder, tmp_path / "parts")
    monkeypatch.undo()
    assert fit(tiny_folder, tmp_path / "parts") == list(range(5, 16))
    assert same_adapter(trained, tmp_path / "parts")


def test_a_finished_run_is_left_as_it_is_and_its_content_is_always_the_same(tiny_folder, trained, tmp_path):
    before = {f.name: f.stat().st_mtime_ns for f in trained.iterdir()}
    assert fit(tiny_folder, trained) == []
    assert {f.name: f.stat().st_mtime_ns for f in trained.iterdir()} == before
    assert fit(tiny_folder, trained, settings=replace(FAST, save_every=7)) == []
    fit(tiny_folder, tmp_path / "again")
    assert lms.fingerprint(tiny_folder, trained) == lms.fingerprint(tiny_folder, tmp_path / "again")


@pytest.mark.parametrize("finished", [True, False])
def test_a_folder_of_other_inputs_is_refused_and_left_alone(tiny_folder, tmp_path, finished):
    out = tmp_path / "out"
    if finished:
        fit(tiny_folder, out)
    else:
        fit_until(6, tiny_folder, out)
    before = sorted(str(f) for f in out.rglob("*"))
    with pytest.raises(
        RunError, match=r"out was trained with another rank \(8, and now 4\): give the same, or another"
    ):
        fit(tiny_folder, out, settings=replace(FAST, rank=4))
    with pytest.raises(RunError, match="another data"):
        fit(tiny_folder, out, ROWS[:-1])
    with pytest.raises(RunError, match=r"another dtype \(float32, and now bfloat16\)"):
        fit(tiny_folder, out, dtype="bfloat16")
    with pytest.raises(RunError, match="another base"):
        fit(save_tiny_llama(tmp_path / "other", initializer_range=0.1), out)
    with pytest.raises(DataError):
        fit(tiny_folder, out, [], resume=False)
    assert sorted(str(f) for f in out.rglob("*")) == before
    assert fit(tiny_folder, out, ROWS[:2], resume=False) == [1, 2, 3]
    assert record(out)["rows"]["rows"] == 2


def test_an_adapter_from_elsewhere_is_not_overwritten(tiny_folder, trained):
    (trained / "training.json").unlink()
    with pytest.raises(RunError, match="holds an adapter of unknown make"):
        fit(tiny_folder, trained)
    (trained / "training.json").write_text("{")
    with pytest.raises(RunError, match=r"training.json is damaged"):
        fit(tiny_folder, trained)


def test_a_damaged_checkpoint_says_what_to_do(tiny_folder, tmp_path):
    fit_until(6, tiny_folder, tmp_path / "out")
    (tmp_path / "out/checkpoint/step-00000004/state.safetensors").write_bytes(b"x")
    with pytest.raises(RunError, match=r"cannot read .*step-00000004 \(.*\): remove it and start again"):
        fit(tiny_folder, tmp_path / "out")


def test_a_folder_that_cannot_be_written_is_named(tiny_folder, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot write .*file/out"):
        fit(tiny_folder, tmp_path / "file/out")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_student_says_what_it_was_taught(tiny_folder, tmp_path, dtype):
    rows = [chat("Capital of Norway?", "Oslo"), chat("Capital of Peru?", "Lima it is")]
    fit(tiny_folder, tmp_path / "student", rows, LEARN, dtype=dtype)
    student = lms.load_lm(f"local/{tiny_folder}+{tmp_path / 'student'}", dtype=dtype, cache=False)
    assert student("Capital of Norway?") == ["Oslo"]
    assert student("Capital of Peru?") == ["Lima it is"]
    weights = load_file(tmp_path / "student/adapter_model.safetensors")
    assert {str(w.dtype) for w in weights.values()} == {f"torch.{dtype}"}


def test_every_turn_of_a_conversation_is_taught_whatever_the_template(tmp_path):
    base = save_tiny_llama(tmp_path / "base", LLAMA3)
    turns = ["Who wrote it?", "ask: author", "Ada", "ask: her birth", "1815", "answer: 1815"]
    messages = [{"role": ("user", "assistant")[n % 2], "content": turn} for n, turn in enumerate(turns)]
    fit(base, tmp_path / "student", [{"messages": messages}], LEARN)
    student = lms.load_lm(f"local/{base}+{tmp_path / 'student'}", dtype="float32").engine
    says = [Message.user(turn) if n % 2 == 0 else Message.assistant(turn) for n, turn in enumerate(turns)]
    replies = [student.complete(Request(model="student", messages=tuple(says[:n]))).text for n in (1, 3, 5)]
    assert replies == turns[1::2]


def test_a_moved_adapter_on_a_moved_base_needs_no_network(tiny_folder, tmp_path):
    old = tmp_path / "old"
    base = save_tiny_llama(old / "base")
    fit(base, old / "student", [chat("Who?", "Ada")], LEARN, base_name=f"local/{base}")
    assert json.loads((old / "student/adapter_config.json").read_text())["base_model_name_or_path"] == "base"
    new = old.rename(tmp_path / "new")
    code = (
        "import socket\n"
        "def refuse(*args): raise OSError('network used')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "from cirag_dspy.lms import load_lm\n"
        f"print(load_lm('local/{new}/base+{new}/student', dtype='float32')('Who?'))"
    )
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "DSPY_CACHEDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=new)
    assert done.stdout == "['Ada']\n" and done.stderr == "", done.stderr


def test_an_adapter_on_another_base_is_warned_of(tiny_folder, trained, tmp_path, caplog):
    lms.load_lm(f"local/{tiny_folder}+{trained}")
    assert not caplog.records
    other = save_tiny_llama(tmp_path / "other", initializer_range=0.1)
    lms.load_lm(f"local/{other}+{trained}")
    assert caplog.messages == [
        f"{trained} was trained on tiny ({lms.fingerprint(tiny_folder)}), and is used on {other} ({lms.fingerprint(other)})"
    ]


def test_training_on_from_an_adapter(tiny_folder, tmp_path):
    rows, more = [chat("Who?", "Ada")], replace(LEARN, epochs=1, learning_rate=1e-5)
    fit(tiny_folder, tmp_path / "one", rows, LEARN)
    fit(tiny_folder, tmp_path / "two", rows, more, init=tmp_path / "one")
    assert record(tmp_path / "two")["losses"][0][1] == pytest.approx(
        record(tmp_path / "one")["losses"][-1][1], abs=0.01
    )
    assert lora.adapter_shape(tmp_path / "one") == {"rank": 16, "alpha": 32, "targets": "all-linear"}
    with pytest.raises(RunError, match="one has rank 16 and alpha 32, not 8 and 16"):
        fit(tiny_folder, tmp_path / "three", rows, replace(more, rank=8), init=tmp_path / "one")
    with pytest.raises(RunError, match="does not adapt the layers that targets name"):
        fit(tiny_folder, tmp_path / "three", rows, replace(more, targets="q_proj, v_proj"), init=tmp_path / "one")
    assert not (tmp_path / "three").exists()


def test_named_targets(tiny_folder, tmp_path):
    fit(tiny_folder, tmp_path / "a", settings=replace(FAST, targets="q_proj, v_proj"))
    assert len(load_file(tmp_path / "a/adapter_model.safetensors")) == 2 * 2 * 2
    with pytest.raises(ModelError, match=r"cannot load .* for training: .*nothing_proj"):
        fit(tiny_folder, tmp_path / "b", settings=replace(FAST, targets="nothing_proj"))


def test_dtypes_and_devices(tiny_folder, tmp_path):
    with pytest.raises(ModelError, match="float16 is not for the CPU: use float32, or bfloat16"):
        fit(tiny_folder, tmp_path / "a", dtype="float16", device="cpu")
    with pytest.raises(ModelError, match="no dtype 'half'"):
        fit(tiny_folder, tmp_path / "a", dtype="half")
    with pytest.raises(ModelError, match="no device 'tpu'"):
        fit(tiny_folder, tmp_path / "a", device="tpu")
    fit(tiny_folder, tmp_path / "a", dtype=None, device="cpu")
    assert record(tmp_path / "a")["identity"]["dtype"] in ("float32", "bfloat16")


def test_rows_that_are_too_long_are_counted_and_told_before_the_first_step(tiny_folder, tmp_path):
    rows = [chat("question: q\nfacts:\n" + "x" * 90, "Oslo", evidence={"0": [[18, 109, " y"]]}), chat("q", "x" * 90)]
    told = []
    fit(tiny_folder, tmp_path / "a", rows, replace(FAST, max_length=80), on_rows=lambda report: told.append(report))
    counts = record(tmp_path / "a")["rows"]
    assert counts == told[0].as_dict()
    assert (counts["shortened"], counts["dropped"], counts["rows"], counts["learnt"]) == (1, 1, 1, 5)
    assert counts["lost"] == 91 - 2
    with pytest.raises(RunError, match="--strict takes none"):
        fit(
            tiny_folder,
            tmp_path / "c",
            rows,
            replace(FAST, max_length=80),
            on_rows=lambda report: report.require_whole(),
        )
    assert not (tmp_path / "c" / "training.json").exists()
    rows = [chat("q" * 900, "Oslo"), chat("q", "x" * 90)]
    with pytest.raises(RunError, match="rows of 924 tokens in, and the model's context is 512: lower it"):
        fit(tiny_folder, tmp_path / "b", rows, replace(FAST, max_length=1000))


def test_a_loss_that_is_no_number_ends_the_run(tiny_folder, tmp_path):
    with pytest.raises(RunError, match=r"the loss of step \d+ is nan: use a lower learning_rate than 1e\+20"):
        fit(tiny_folder, tmp_path / "a", settings=replace(FAST, learning_rate=1e20, warmup=0.0))


def test_a_folder_without_a_model_is_named(tmp_path):
    (tmp_path / "base").mkdir()
    with pytest.raises(ModelError, match=r"cannot load .*base for training"):
        fit(tmp_path / "base", tmp_path / "a")


def test_nothing_of_the_process_is_changed(tiny_folder, tmp_path, capfd):
    torch.manual_seed(7)
    random, threads, level = torch.get_rng_state(), torch.get_num_threads(), logging.getLogger().level
    fit(tiny_folder, tmp_path / "a", settings=replace(FAST, dropout=0.1))
    assert torch.equal(torch.get_rng_state(), random) and torch.get_num_threads() == threads
    assert logging.getLogger().level == level
    assert capfd.readouterr() == ("", "")


def test_a_long_curve_is_kept_in_few_points():
    losses = [[n, float(n), 10 * n, 0.5 * n] for n in range(1, 1002)]
    kept = thinned(losses)
    assert len(kept) == 334 and kept[0] == [3, 2.0, 30, 1.5] and kept[-1] == [1001, 1000.5, 10010, 500.5]
    assert thinned(losses[:500]) == losses[:500]
