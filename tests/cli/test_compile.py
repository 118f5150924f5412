"""compile, traces, export and finetune as a user types them, and saved programs on the other commands."""

import json
import signal
import subprocess
import time

import pytest

from tests.cli.test_cli import COMMAND, GOOD, assert_one_line_error, cache, cli, interruptible  # noqa: F401
from tests.fakes import openai_server
from tests.students import tiny_base
from tests.test_pipeline import wrong

RECIPE = """
system = "cirag"
optimizer = "trajectory_distillation"

[settings]
k = 3
n = 4
max_hops = 2

[lm]
student = "local/{base}"
max_tokens = 16

[[data]]
dataset = "demo"
limit = 4
triples = 3

[options]
also = ["native_rag"]

[lora]
rank = 2
epochs = 1
max_length = 4000
"""


# No triples, so that nothing has to be extracted first.
RAG = """
system = "native_rag"
optimizer = "trajectory_distillation"

[lm]
teacher = "openai/scripted"

[[data]]
dataset = "demo"
limit = 4
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder to work in, with recipes and a tiny model."""
    home = tmp_path_factory.mktemp("home")
    (home / "programs").mkdir()
    (home / "programs" / "x.toml").write_text(RECIPE.replace("{base}", str(tiny_base(home / "tiny"))))
    (home / "programs" / "rag.toml").write_text(RAG)
    return home


@pytest.fixture(scope="module")
def compiled(home, cache):  # noqa: F811
    done = cli("compile", "programs/x.toml", "--cache-dir", cache, "--json", cwd=home)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("command", ["compile", "traces", "export", "finetune"])
def test_help(command):
    done = cli(command, "--help")
    assert done.returncode == 0 and "Usage" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["compile", "nowhere.toml"], "nowhere.toml can't be read"),
        (
            ["compile", "programs/x.toml", "--set", "lora.rank=many"],
            '[lora] rank must be a positive integer, not "many"',
        ),
        (["compile", "programs/x.toml", "--set", "max_steps=3"], "--set max_steps=3: give one of"),
        (
            ["compile", "programs/x.toml", "--optimizer", "gepa", "--set", "options.max_steps=3"],
            "GEPA has no option max",
        ),
        (["compile", "programs/x.toml", "--optimizer", "sgd"], 'not "sgd"'),
        (["compile", "programs/x.toml", "--from-traces", "none.jsonl"], "none.jsonl is missing"),
        (["export", "programs/x.toml", "--work", "empty"], "is missing: cirag-dspy traces writes it"),
        (["export", "programs/x.toml", "--out", "rows"], "name another --work"),
        (["export", "none.jsonl"], "where to? export none.jsonl --out FOLDER"),
        (["export", "none.jsonl", "--out", "rows"], "none.jsonl can't be read"),
        (["finetune", "programs/x.toml", "--work", "empty"], "is missing: cirag-dspy export writes it"),
        (["finetune", "rows.jsonl", "--out", "a", "--rank", "0"], "[lora] rank must be a positive integer, not 0"),
        (["finetune", "rows.jsonl", "--out", "a", "--base", "openai/x"], "openai/x can't be trained here"),
        (["eval", "--dataset", "demo", "--program", "x.pkl"], "a pickle can run anything"),
        (["eval", "--dataset", "demo", "--program", "programs"], "programs holds no saved program"),
        (["ask", "q", "--index", "i", "--program", "x.pkl"], "a pickle can run anything"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(arguments, says, home):
    assert says in assert_one_line_error(cli(*arguments, cwd=home))


def test_a_dry_run_opens_nothing(home):
    done = cli("compile", "programs/x.toml", "--dry-run", "--set", "lm.teacher=openai/x", cwd=home)
    assert done.returncode == 0 and not (home / "runs").exists()
    lines = done.stdout.splitlines()
    assert lines[0] == "x, trajectory_distillation; at most"
    assert lines[1].startswith("  extraction demo: 89 passages, 89 LM calls, about ")
    assert lines[2].startswith("  traces demo cirag: 4 questions, 24 LM calls, about ")
    assert lines[3].startswith("  contrasts demo cirag: 4 questions, 12 LM calls, about ")
    assert lines[-1].startswith("  finetune: 39 rows, about ") and lines[-1].endswith(" tokens in 20 steps")
    stages = json.loads(cli("compile", "programs/x.toml", "--dry-run", "--json", cwd=home).stdout)["stages"]
    assert [step["stage"] for step in stages] == ["extraction", "traces", "contrasts", "traces", "finetune"]
    assert stages[1]["lm_calls"] == 0


@pytest.mark.slow
def test_compile_then_everything_is_up_to_date(compiled, home, cache):  # noqa: F811
    assert compiled["save"]["program"] == "optimized/x"
    assert (home / "optimized" / "x" / "adapter" / "adapter_model.safetensors").is_file()
    again = cli("compile", "programs/x.toml", "--cache-dir", cache, cwd=home)
    assert again.returncode == 0, again.stderr
    lines = again.stdout.splitlines()
    assert lines[0].startswith("traces: traces-demo-cirag.jsonl: ")
    assert lines[2] == "  0 calls of the teacher, 0 cached"
    assert lines[-1] == "program: optimized/x (trajectory_distillation)"
    for stage in ("export", "finetune"):
        assert json.loads(cli(stage, "programs/x.toml", "--json", cwd=home).stdout) == {stage: compiled[stage]}


@pytest.mark.slow
def test_files_alone(compiled, home):
    done = cli("export", "runs/x/traces-demo-cirag.jsonl", "--out", "rows", "--json", cwd=home)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["export"]["by_predictor"]["integration.integrate"]["rows"] > 0
    tiny = f"local/{home / 'tiny'}"
    options = ["--base", tiny, "--out", "adapter", "--rank", "2", "--epochs", "0.5", "--max-length", "4000"]
    done = cli("finetune", "rows/joint.jsonl", *options, cwd=home)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("student: ") and f"as an LM: {tiny}+adapter\n" in done.stderr
    options[1], options[3] = f"{tiny}+adapter", "more"
    done = cli("finetune", "rows/joint.jsonl", *options, cwd=home)
    assert done.returncode == 0, done.stderr
    assert f"as an LM: {tiny}+more\n" in done.stderr


@pytest.mark.slow
def test_a_saved_program_is_evaluated(compiled, home, cache):  # noqa: F811
    options = ["--dataset", "demo", "--limit", "1", "--program", "optimized/x", "--cache-dir", cache, "--json"]
    done = cli("eval", *options, "--extract", "off", cwd=home)
    assert done.returncode == 0, done.stderr
    manifest = json.loads(done.stdout)["manifest"]
    assert manifest["program"] == {"name": "x", "sha256": compiled["save"]["sha256"]}
    assert (manifest["system"]["name"], manifest["system"]["k"], manifest["system"]["max_hops"]) == ("cirag", 3, 2)
    assert manifest["lms"]["reader"]["model"].startswith(f"local/{home / 'tiny'}+optimized/x/adapter@")
    assert manifest["lms"]["reader"]["max_tokens"] == 16
    # The student's own prompts write the triples, so they are kept apart from those of the same LM with other prompts.
    assert "(one; prompts " in manifest["index"]["extractor"]
    other = cli("eval", *options, "--system", "native_rag", "-k", "2", "--max-tokens", "20", cwd=home)
    manifest = json.loads(other.stdout)["manifest"]
    assert (manifest["system"]["name"], manifest["system"]["k"]) == ("native_rag", 2)
    assert manifest["lms"]["reader"]["max_tokens"] == 20
    assert sorted(path.name for path in (home / "runs").glob("demo-*")) == ["demo-cirag-x", "demo-native_rag-x"]


@pytest.mark.slow
def test_a_saved_program_extracts_and_answers(compiled, home):
    (home / "notes").mkdir()
    (home / "notes" / "a.md").write_text("# Harbor Song\n\nHarbor Song was directed by Ada Brook.\n")
    done = cli("index", "notes", "--out", "index", "--program", "optimized/x", "--json", cwd=home)
    assert json.loads(done.stdout)["passages"] == 1 and done.returncode in (0, 1), done.stderr
    assert "prompts" in json.loads((home / "index" / "manifest.json").read_text())["extractor"]
    options = ["--index", "index", "--program", "optimized/x", "--system", "native_rag"]
    asked = cli("ask", "Who directed Harbor Song?", *options, "--json", cwd=home)
    assert asked.returncode in (0, 3), asked.stderr
    assert json.loads(asked.stdout)["lm"]["calls"] in (1, 2)  # a useless reply is asked for once more


@pytest.mark.slow
def test_nothing_kept_is_no_success(home, cache):  # noqa: F811
    """D10: a teacher that is always wrong; D13: what it said is on file."""
    with openai_server(wrong) as (address, requests):
        command = ["compile", "programs/rag.toml", "--api-base", address, "--cache-dir", cache, "--no-cache"]
        last = assert_one_line_error(cli(*command, cwd=home))
        assert "no trajectory of native_rag was kept, of 4 (below threshold: 4)" in last
        assert len(requests) == 4
        done = cli(*command[:2], "--from-traces", "runs/rag/traces-demo-native_rag.jsonl", cwd=home)
        assert "below threshold: 4" in assert_one_line_error(done)
    assert len(requests) == 4 and not (home / "optimized" / "rag").exists()


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_finished(home, cache):  # noqa: F811
    asked = []

    def hanging(messages):
        asked.append(messages)
        if len(asked) > 1:
            time.sleep(30)
        return wrong(messages)

    with openai_server(hanging) as (address, _):
        command = [COMMAND, "traces", "programs/rag.toml", "--api-base", address, "--work", "runs/slow"]
        command += ["--cache-dir", str(cache), "--threads", "1", "--no-cache"]
        process = interruptible(command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while len(asked) < 2 and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130, err
    assert "error: interrupted; what was finished is saved" in err
    lines = (home / "runs" / "slow" / "traces-demo-native_rag.jsonl").read_text().splitlines()
    assert len(lines) == 2  # the manifest and the first question
