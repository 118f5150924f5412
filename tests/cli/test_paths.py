"""Every path of every command, given what can't be one: a line on stderr, exit code 2, nothing paid for."""

from __future__ import annotations

import json

import pytest

TRACES = {"system": "cirag"}
GRID = '[[variants]]\nname = "one"\nn = 5\n'
RECIPE = """
system = "cirag"
optimizer = "trajectory_distillation"
[lm]
teacher = "annotations"
student = "local/{student}"
[[data]]
dataset = "{dataset}"
limit = 4
[[triples]]
file = "{triples}"
"""


@pytest.fixture
def bad(tmp_path):
    """Paths that can't be used, by kind."""
    (tmp_path / "file.txt").write_text("x")
    (tmp_path / "dangling").symlink_to(tmp_path / "no" / "where")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    return {
        "too long": str(tmp_path / ("x" * 300)),
        "much too long": str(tmp_path / ("x/" * 3000)),
        "below a file": str(tmp_path / "file.txt" / "x"),
        "below a device": "/dev/null/x",
        "dangling": str(tmp_path / "dangling"),
        "loop": str(tmp_path / "loop"),
        "below a loop": str(tmp_path / "loop" / "x"),
        "NUL": "a\0b",
        "no such home": "~no-such-user/x",
        "empty": "",
    }


@pytest.fixture
def good_paths(tmp_path):
    """Paths that can be used, by name."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.txt").write_text("A harbor stands by the sea.")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(dataset="demo", student=tmp_path / "student", triples=tmp_path / "silver.jsonl"))
    (tmp_path / "silver.jsonl").write_text(json.dumps({"title": "t", "text": "x.", "triples": [["a", "b", "c"]]}))
    grid = tmp_path / "grid.toml"
    grid.write_text(GRID)
    return {"corpus": corpus, "recipe": recipe, "grid": grid, "work": tmp_path / "work", "out": tmp_path / "out"}


DEMO = ["--dataset", "demo", "--limit", "2", "--extract", "given"]
HOTPOT = ["--dataset", "hotpotqa", "--limit", "2"]
COMMANDS = [
    ["index", "{bad}", "--out", "{out}"],
    ["index", "{corpus}", "{bad}", "--out", "{out}"],
    ["index", "{corpus}", "--out", "{bad}"],
    ["index", "{corpus}", "--out", "{bad}", "--dry-run"],
    ["index", "{corpus}", "--out", "{out}", "--program", "{bad}"],
    ["index", "{corpus}", "--out", "{out}", "--cache-dir", "{bad}"],
    ["ask", "q", "--index", "{bad}"],
    ["ask", "q", "--index", "{corpus}", "--program", "{bad}"],
    ["ask", "q", "--index", "{corpus}", "--aligner", "{bad}"],
    ["ask", "q", "--index", "{corpus}", "--cache-dir", "{bad}"],
    ["eval", *HOTPOT, "--data-dir", "{bad}"],
    ["eval", *HOTPOT, "--data-file", "{bad}"],
    ["eval", *DEMO, "--out", "{out}", "--corpus", "{bad}"],
    ["eval", *DEMO, "--out", "{out}", "--program", "{bad}"],
    ["eval", *DEMO, "--out", "{out}", "--aligner", "{bad}"],
    ["eval", *DEMO, "--out", "{out}", "--index", "{bad}"],
    ["eval", *DEMO, "--out", "{bad}"],
    ["eval", *DEMO, "--out", "{bad}", "--resume"],
    ["eval", *DEMO, "--out", "{bad}", "--dry-run"],
    ["eval", *DEMO, "--out", "{out}", "--csv", "{bad}"],
    ["eval", *DEMO, "--out", "{out}", "--markdown", "{bad}"],
    ["eval", *DEMO, "--out", "{out}", "--cache-dir", "{bad}"],
    ["eval", *HOTPOT, "--out", "{out}", "--write-official", "{bad}"],
    ["ablate", "n", *DEMO[:4], "--out", "{bad}"],
    ["ablate", "n", *DEMO[:4], "--out", "{out}", "--csv", "{bad}"],
    ["ablate", "n", *DEMO[:4], "--out", "{out}", "--markdown", "{bad}"],
    ["ablate", "n", *DEMO[:4], "--out", "{out}", "--plot", "{bad}.svg"],
    ["ablate", "{bad}.toml", *DEMO[:4], "--out", "{out}"],
    ["ablate", "{grid}", *DEMO[:4], "--out", "{out}", "--corpus", "{bad}"],
    ["ablate", "{grid}", *DEMO[:4], "--out", "{out}", "--index", "{bad}"],
    ["ablate", "{grid}", *HOTPOT, "--data-dir", "{bad}"],
    ["ablate", "{grid}", *HOTPOT, "--data-file", "{bad}"],
    ["ablate", "{grid}", *DEMO[:4], "--cache-dir", "{bad}"],
    ["compile", "{bad}"],
    ["compile", "{bad}.toml"],
    ["compile", "{recipe}", "--work", "{bad}"],
    ["compile", "{recipe}", "--work", "{work}", "--out", "{bad}"],
    ["compile", "{recipe}", "--work", "{work}", "--out", "{out}", "--from-traces", "{bad}"],
    ["compile", "{recipe}", "--work", "{work}", "--out", "{out}", "--cache-dir", "{bad}"],
    ["traces", "{bad}"],
    ["traces", "{recipe}", "--work", "{bad}"],
    ["traces", "{recipe}", "--work", "{bad}", "--dry-run"],
    ["traces", "{recipe}", "--work", "{work}", "--cache-dir", "{bad}"],
    ["export", "{bad}", "--out", "{out}"],
    ["export", "{recipe}", "--work", "{bad}"],
    ["export", "{recipe}", "--work", "{work}", "--from-traces", "{bad}"],
    ["export", "{recipe}", "--out", "{bad}"],
    ["finetune", "{bad}", "--out", "{out}"],
    ["finetune", "{recipe}", "--work", "{bad}"],
    ["finetune", "{recipe}", "--work", "{work}", "--cache-dir", "{bad}"],
    ["align", "--dataset", "demo", "--limit", "2", "--out", "{bad}"],
    ["align", "--dataset", "hotpotqa", "--limit", "2", "--out", "{out}", "--data-dir", "{bad}"],
    ["align", "--dataset", "demo", "--limit", "2", "--out", "{out}", "--triples", "{bad}"],
    ["align", "--dataset", "demo", "--limit", "2", "--out", "{out}", "--cache-dir", "{bad}"],
]
WRITTEN_FILES = ("--csv", "--markdown", "--plot")


def one_line(done):
    told = done.stderr.strip().splitlines()
    assert done.exit_code == 2, (done.exit_code, told, done.exception)
    assert told[-1].startswith("error: ") and "unexpected" not in told[-1], told
    assert not any("Traceback" in line for line in told)
    return told[-1]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command).replace("{", "").replace("}", ""))
def test_a_path_that_is_none(command, inside, bad, good_paths, tmp_path):
    for kind, path in bad.items():
        if kind in ("empty", "dangling", "loop") and any(part.startswith("{bad}.") for part in command):
            continue  # with a suffix, these are names that nothing is wrong with
        given = [part.format(bad=path, **good_paths) for part in command]
        done = inside(*given)
        line = one_line(done)
        assert len(line) < 900 or kind == "much too long", line
        assert "\0" not in line
        assert not inside.prompts, f"{kind}: calls were paid for"
    assert not (tmp_path / "out" / "questions.jsonl").exists()


@pytest.mark.parametrize("kind", ["too long", "below a file", "below a device", "loop", "dangling", "no such home"])
def test_the_cache_that_the_environment_names(kind, inside, bad, good_paths, monkeypatch):
    monkeypatch.setenv("CIRAG_DSPY_CACHE", bad[kind])
    assert "CIRAG_DSPY_CACHE" in one_line(inside("eval", *DEMO, "--out", str(good_paths["out"])))


@pytest.mark.parametrize("kind", ["too long", "below a file", "loop", "dangling", "no such home", "empty"])
@pytest.mark.parametrize("place", ["triples", "student"])
def test_paths_inside_a_recipe(kind, place, inside, bad, good_paths, tmp_path):
    places = {"triples": str(tmp_path / "silver.jsonl"), "student": str(tmp_path / "student")} | {place: bad[kind]}
    good_paths["recipe"].write_text(RECIPE.format(dataset="demo", **places))
    work = str(good_paths["work"])
    if place == "triples":
        one_line(inside("traces", str(good_paths["recipe"]), "--work", work))
    one_line(inside("compile", str(good_paths["recipe"]), "--work", work, "--out", str(good_paths["out"])))


@pytest.mark.parametrize("kind", ["too long", "below a file", "below a device", "dangling", "loop", "NUL"])
def test_in_python_too(kind, bad):
    import cirag_dspy
    from cirag_dspy.errors import CiragError

    calls = (
        cirag_dspy.CorpusIndex.open,
        cirag_dspy.load,
        lambda path: list(cirag_dspy.read_corpus(path)),
        lambda path: cirag_dspy.load_benchmark("hotpotqa", data_file=path),
        lambda path: cirag_dspy.load_benchmark("hotpotqa", data_dir=path),
        lambda path: cirag_dspy.load_benchmark("demo", corpus=path),
        lambda path: cirag_dspy.save(cirag_dspy.NativeRAG(None), path),
    )
    for call in calls:
        with pytest.raises(CiragError) as caught:
            call(bad[kind])
        assert "\n" not in str(caught.value)


def test_a_home_that_no_shell_put_in(inside, good_paths, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    done = inside("index", "~/corpus", "--out", "~/made", "--dry-run")
    assert done.exit_code == 0 and done.stdout.startswith("1 passages")


def test_a_folder_that_may_not_be_entered(inside, good_paths, monkeypatch):
    import os

    real = os.stat

    def refused(path, *args, **kwargs):
        if "closed" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **kwargs)

    closed = str(good_paths["work"].parent / "closed")
    monkeypatch.setattr(os, "stat", refused)
    for command in COMMANDS:
        if not any(part.startswith("{bad}.") for part in command) and "--embedder" not in command:
            given = [part.format(bad=closed, **good_paths) for part in command]
            assert "ermission" in (line := one_line(inside(*given))) or "closed" in line
