"""A dry run fails where the run would, and makes no folder."""

import json

import pytest

from tests.benchmarks.samples import BAMBOOGLE, HOTPOT, write
from tests.cli.test_evaluate import BOTH, DEMO, assert_wrong

ABLATE = ("ablate", "ranker", "--dataset", "demo", "--limit", "2", "--lm", "x/y")


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*BOTH, "--lm", "gpt-4o"), "no LM 'gpt-4o'"),
        ((*BOTH, "--lm", "local//nowhere/model"), "/nowhere/model is no folder with a model"),
        ((*BOTH, "--lm", "x/y", "--judge-lm", "openai/"), "no LM 'openai/'"),
        ((*DEMO, "--lm", "x/y", "--embedder", "./nowhere"), "--embedder: ./nowhere is no folder"),
        ((*DEMO, "--lm", "x/y", "--index", "nowhere"), "nowhere"),
        ((*BOTH, "--lm", "x/y", "--out", "taken"), "already holds a run"),
        ((*BOTH, "--lm", "x/y", "--out", "file"), "file is no folder"),
        ((*BOTH, "--lm", "x/y", "--csv", "file/x.csv"), "file"),
        ((*BOTH, "--lm", "x/y", "--markdown", "taken"), "taken can't be written: it is a folder"),
        ((*BOTH, "--lm", "x/y", "--extract", "online", "--index", "taken"), "extracts them anew: leave one out"),
        ((*DEMO, "--lm", "x/y", "--aligner", "half"), "half holds no aligner (it has no model.safetensors)"),
        ((*DEMO, "--lm", "x/y", "--program", "nowhere"), "nowhere"),
        ((*DEMO, "--lm", "x/y", "--set", "beams=2"), "has no setting beams"),
        ((*ABLATE, "--out", "taken"), "already holds a run"),
        ((*ABLATE, "--index", "nowhere"), "nowhere"),
        (("eval", "--dataset", "bamboogle", "--data-file", "b.json", "--lm", "x/y"), "has no passages; give --corpus"),
        (
            ("eval", "--dataset", "hotpotqa", "--data-file", "h.json", "--extract", "given", "--lm", "x/y"),
            "--extract given is for the demo set",
        ),
        (
            ("eval", "--dataset", "bamboogle", "--data-file", "b.json", "--corpus", "h.json", "--write-official", "o"),
            "define no prediction file",
        ),
        (("align", "--dataset", "demo", "--out", "taken"), "taken is there already, and is no aligner"),
        (("align", "--dataset", "demo", "--out", "new", "--lm", "gpt"), "no LM 'gpt'"),
        (("align", "--dataset", "demo", "--out", "new", "--base", "~/nowhere"), "--base: ~/nowhere is no folder"),
        (("align", "--dataset", "demo", "--out", "file"), "file is no folder"),
        (("index", "empty", "--out", "new"), "no text"),
        (("index", "empty", "--out", "empty"), "is the corpus itself"),
        (("index", "b.json", "--out", "file"), "file is no folder"),
    ],
)
def test_what_fails_fails_in_the_dry_run(arguments, says, more, inside, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("taken/cirag", "taken/ranked", "half", "empty"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("cirag", "ranked"):
        (tmp_path / "taken" / name / "questions.jsonl").write_text("{}\n")
    (tmp_path / "half" / "modules.json").write_text("[]")
    (tmp_path / "empty" / "blank.txt").write_text(" \n")
    (tmp_path / "file").write_text("x")
    write(tmp_path / "b.json", [BAMBOOGLE])
    write(tmp_path / "h.json", [HOTPOT])
    if arguments[0] == "index" and "empty" in arguments and "new" in arguments and not more:
        pytest.skip("indexing loads the embedder")
    there = sorted(map(str, tmp_path.rglob("*")))
    done = inside(*arguments, *more)
    assert done.exit_code == 2 and says in done.stderr, (done.stdout, done.stderr)
    assert done.stderr.splitlines()[-1].startswith("error: ") and "Traceback" not in done.stderr
    if more:
        assert sorted(map(str, tmp_path.rglob("*"))) == there
    assert inside.prompts == []


def test_a_dry_run_goes_on_with_the_same_draw_only(inside, tmp_path):
    out = (*DEMO, "--system", "native_rag", "--out", tmp_path / "run")
    assert inside(*out, "--dry-run").exit_code == 0 and not (tmp_path / "run").exists()
    assert inside(*out).exit_code == 0
    assert_wrong(inside(*out, "--dry-run"), "already holds a run")
    assert inside(*out, "--dry-run", "--resume").exit_code == 0
    assert_wrong(
        inside(*out, "--dry-run", "--resume", "--seed", "4"), "holds a run of 3 of 24 questions drawn at random"
    )


def test_a_dry_run_checks_the_passages_of_an_index(inside, tmp_path):
    assert inside(*DEMO, "--system", "native_rag", "--out", tmp_path / "run").exit_code == 0
    (index,) = (tmp_path / "cache" / "indexes").iterdir()
    plain = ("eval", "--dataset", "hotpotqa", "--data-file", write(tmp_path / "h.json", [HOTPOT]), "--lm", "x/y")
    done = inside(*plain, "--index", index, "--dry-run")
    assert done.exit_code == 2 and "lacks 3 of the 3 passages of this benchmark" in done.stderr
    cost = inside(*DEMO, "--index", index, "--dry-run", "--json")
    assert json.loads(cost.stdout)["questions"] == 3
