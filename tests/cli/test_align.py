"""``align`` as a user types it, and its aligner in ``eval`` and ``ask``."""

import json

import pytest

from cirag_dspy.errors import RunError
from tests.cli.test_cli import assert_one_line_error, cli


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    from cirag_dspy.benchmarks.demo import demo_passages
    from tests.tiny import save_tiny_encoder

    return save_tiny_encoder(tmp_path_factory.mktemp("tiny"), [passage.text for passage in demo_passages()])


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def test_what_it_would_cost(cache):
    done = cli("align", "--dataset", "demo", "--limit", 4, "--out", "x", "--dry-run", "--json", "--cache-dir", cache)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["questions"] == 4 and plan["extraction"]["demo"]["lm_calls"] == 0
    # 3, 2, 4 and at most 8 rows a question, a tenth of them held back; a step of each epoch has one row a question.
    assert plan["rows"] == 15 and plan["steps"] == 10 * 8
    assert list(cache.iterdir()) == []
    paid = cli("align", "--dataset", "demo,demo", "--limit", 4, "--out", "x", "--dry-run", "--lm", "openai/x")
    assert "demo-2: 89 passages, 89 LM calls at most" in paid.stdout and "8 questions" in paid.stdout


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--dataset", "demo,nope"], "no data set nope"),
        (["--dataset", "demo", "--epochs", "0"], "epochs must be above 0"),
        (["--dataset", "demo", "--val", "1"], "val must be at least 0 and below 1"),
    ],
)
def test_what_is_asked_for_wrongly(options, says):
    assert says in assert_one_line_error(cli("align", *options, "--out", "x"))


def test_questions_are_drawn_and_an_aligner_of_others_is_not_taken_for_it(inside, tmp_path):
    from cirag_dspy.benchmarks import load_benchmark
    from cirag_dspy.pipeline.align import draws_of, open_trainsets, require_draw

    def drawn(**options):
        return open_trainsets(["demo"], limit=4, open_lm=None, data_dir=None, **options)

    (one,) = drawn(seed=3)
    same = load_benchmark("demo", "train", limit=4, sample_seed=3)
    assert [example.id for example in one.train] == [example.id for example in same.examples]
    record = draws_of([one])["demo"]
    of = record["of"]
    assert record == {"kind": "random", "seed": 3, "n": 4, "of": of, "ids_sha256": same.ids_sha256}
    (tmp_path / "training.json").write_text(json.dumps({"draws": {"demo": record}}))
    require_draw(tmp_path, [one])
    with pytest.raises(RunError, match=f"other questions .demo, 4 of {of} questions drawn at random, --seed 3"):
        require_draw(tmp_path, drawn())
    whole = load_benchmark("demo", "train").examples
    assert [example.id for example in drawn(first=True)[0].train] == [example.id for example in whole[:4]]
    done = inside("align", "--dataset", "demo", "--limit", "4", "--first", "--out", tmp_path / "x", "--dry-run")
    assert done.exit_code == 0 and "note: the first 4 of" in done.stderr


@pytest.mark.slow
def test_align_and_use_it(tiny, cache, tmp_path):
    out = tmp_path / "aligner"
    where = ["--cache-dir", cache, "--embedder", tiny]
    train = [
        "align",
        "--dataset",
        "demo",
        "--base",
        tiny,
        "--out",
        out,
        "--limit",
        "8",
        "--val",
        "0.3",
        "--epochs",
        "2",
    ]
    done = cli(*train, "--batch-size", "4", "--device", "cpu", *where, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["questions"], report["val_questions"], report["failed_passages"]) == (8, 2, 0)
    assert report["gold"]["stated"] > 0 and len(report["epochs"]) == 3
    again = cli(*train, "--batch-size", "4", "--device", "cpu", *where)
    assert again.returncode == 0 and "gold facts stated by a triple" in again.stdout
    other = cli(*train, "--batch-size", "8", "--device", "cpu", *where)
    assert "holds an aligner made of other data or settings" in assert_one_line_error(other)

    run = [
        "eval",
        "--dataset",
        "demo",
        "--limit",
        "2",
        "--system",
        "kirag",
        "--lm",
        "annotations",
        "--extract",
        "given",
    ]
    scored = cli(*run, *where, "--aligner", out, "--out", tmp_path / "run", "--json")
    assert scored.returncode == 0, scored.stderr
    ranker = json.loads(scored.stdout)["manifest"]["index"]["ranker"]
    assert ranker["name"] == "aligner" and len(ranker["content"]) == 12
    plain = cli(*run, *where, "--out", tmp_path / "run", "--resume")
    assert "ranker" in assert_one_line_error(plain)
    missing = cli(*run, *where, "--aligner", tmp_path, "--out", tmp_path / "other")
    assert "holds no aligner" in assert_one_line_error(missing)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--out", "full"], "full is there already, and is no aligner; choose another folder"),
        (["--out", "x", "--device", "tpu"], "no device 'tpu': use cpu or cuda"),
    ],
)
def test_what_can_not_be_trained_is_said_before_triples_are_paid_for(options, says, inside, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    done = inside("align", "--dataset", "demo", "--lm", "x", *options)
    assert (done.exit_code, done.stderr) == (2, f"error: {says}\n") and inside.prompts == []
