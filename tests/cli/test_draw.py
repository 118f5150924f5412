"""Which questions ``eval`` and ``ablate`` ask, and what they say of it."""

import json
from collections.abc import Callable

import pytest

from cirag_dspy.benchmarks import load_benchmark
from cirag_dspy.benchmarks.draw import Draw
from tests.cli.test_evaluate import assert_wrong, manifest, rows

IDS = [example.id for example in load_benchmark("demo").examples]
RAG = ("eval", "--dataset", "demo", "--limit", "3", "--lm", "x", "--threads", "1", "--system", "native_rag")
ABLATE = ("ablate", "ranker", "--dataset", "demo", "--limit", "3", "--lm", "x", "--threads", "1", "--extract", "given")


def expected(**draw):
    return [IDS[index] for index in Draw(3, **draw).indices(len(IDS))]


def asked(folder):
    return [row["id"] for row in rows(folder)]


def test_questions_are_drawn_by_seed_0_and_the_draw_is_recorded(inside, tmp_path):
    assert inside(*RAG, "--out", tmp_path / "run").exit_code == 0
    assert asked(tmp_path / "run") == expected(seed=0) != IDS[:3]
    record = manifest(tmp_path / "run")["dataset"]
    assert record["draw"] == {"kind": "random", "seed": 0, "n": 3, "of": len(IDS)}
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["manifest"]["dataset"]["draw"] == record["draw"] and len(record["ids_sha256"]) == 64


@pytest.mark.parametrize("command", [RAG, ABLATE])
def test_another_seed_and_the_first(command, inside, tmp_path):
    variant: Callable = (lambda out: out) if command == RAG else (lambda out: out / "ranked")
    inside(*command, "--seed", "5", "--out", tmp_path / "five")
    assert asked(variant(tmp_path / "five")) == expected(seed=5)
    done = inside(*command, "--first", "--out", tmp_path / "first")
    assert asked(variant(tmp_path / "first")) == IDS[:3]
    assert f"note: the first 3 of {len(IDS)} questions are no sample" in done.stderr
    assert_wrong(inside(*command, "--first", "--seed", "0", "--out", tmp_path / "x"), "--first draws nothing")


def test_a_run_of_another_draw_is_not_gone_on_with(inside, tmp_path):
    out = ("--out", tmp_path / "run", "--resume", "--quiet")
    inside(*RAG, *out)
    for other, says in ((["--seed", "1"], "--seed 1 --limit 3"), (["--first"], "the first 3 of"), ([], None)):
        done = inside(*RAG, *out, *other)
        assert inside.prompts == []
        if says is None:
            assert done.exit_code == 0
        else:
            assert_wrong(done, f"holds a run of 3 of {len(IDS)} questions drawn at random, --seed 0 --limit 3;")
            assert says in done.stderr


def test_a_folder_of_an_older_version_is_gone_on_with_by_the_draw_that_it_had(inside, tmp_path):
    inside(*RAG, "--first", "--out", tmp_path / "old")
    file = tmp_path / "old" / "run.json"
    record = json.loads(file.read_text())
    del record["dataset"]["draw"]
    record["dataset"]["notes"]["warnings"] = []
    file.write_text(json.dumps(record))
    out = ("--out", tmp_path / "old", "--resume", "--quiet")
    assert_wrong(inside(*RAG, *out), "3 questions that an older version chose: without --seed, the first; add --first")
    assert inside(*RAG, *out, "--first").exit_code == 0 and inside.prompts == []
