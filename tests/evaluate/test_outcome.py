"""Odd predictions: a row with plain values or an error each, and a summary of them all."""

import asyncio
import json

import dspy
import numpy as np
import pytest

from cirag_dspy.errors import DataError
from cirag_dspy.evaluate.compare import compare
from cirag_dspy.evaluate.outcome import outcome
from cirag_dspy.evaluate.run import RunFolder, run
from cirag_dspy.schema import Citation, Hit, Hop, Passage, Triple
from tests.evaluate.test_run import MANIFEST, example

PASSAGE = Passage.create("T", "s", "p1")
FACT = Triple("a", "b", "c", "p1", 0)


class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no text either")


class Fatal(BaseException):
    """What is no Exception."""


class Breaks:
    def __iter__(self):
        raise ValueError("torn")


def answered(**fields):
    return outcome(dspy.Prediction(**fields))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Paris", "Paris"),
        (None, ""),
        (float("nan"), ""),
        (np.float64("nan"), ""),
        (1984, "1984"),
        (np.int64(7), "7"),
        (b"Paris", "Paris"),
        (np.str_("Paris"), "Paris"),
        (["Oslo", "Bergen"], "Oslo, Bergen"),
        (("Oslo", None), "Oslo"),
        ({"b", "a"}, "a, b"),
        (np.array(["Oslo", "Rome"]), "Oslo, Rome"),
        ("half \udc80", "half \\udc80"),
    ],
    ids=repr,
)
def test_answers(value, expected):
    assert answered(answer=value)["answer"] == expected


@pytest.mark.parametrize(
    ("prediction", "says"),
    [
        (None, "the system returned nothing, expected a dspy.Prediction"),
        ("Paris", "the system returned a str, expected"),
        (dspy.Prediction(answer={"text": "Paris"}), "the answer is a dict, expected text"),
        (dspy.Prediction(answer=[{"a": 1}]), "the answer is a list, expected text"),
        (dspy.Prediction(answer=dspy.Prediction(answer="x")), "the answer is a dict, expected text"),
    ],
)
def test_what_is_no_prediction(prediction, says):
    with pytest.raises(TypeError, match=says):
        outcome(prediction)


@pytest.mark.parametrize(
    ("value", "expected"), [({"triples"}, "triples"), (["a", "b"], "a, b"), (None, None), ("", None), (3, "3")]
)
def test_levels_are_text(value, expected):
    assert answered(level=value)["level"] == expected


@pytest.mark.parametrize(
    "value",
    [["p1"], ("p1",), "p1", {"p1"}, [PASSAGE], [Hit(PASSAGE, 0.5)], [{"id": "p1"}], iter(["p1"]), np.array(["p1"])],
    ids=repr,
)
def test_passages_are_ids(value):
    assert answered(passages=value)["passages"] == ["p1"]


def test_trajectories_of_other_shapes():
    cited = {"title": "T", "sentence": 2, "text": "s", "passage_id": "p1"}
    ours = Citation("p1", "T", 2, "s")
    odd = [ours, cited, {"id": "p1", "sent_id": np.int64(2), "title": "T", "text": "s"}]
    assert answered(citations=odd)["citations"] == [cited] * 3
    assert answered(citations="Only text.")["citations"][0] == {**cited, "title": "", "sentence": None, "text": "Only text.", "passage_id": ""}  # fmt: skip
    hop = {"query": "q", "candidates": 1, "thought": "t", "core": ["a | b | c"], "next_query": "", "error": ""}
    hops = [
        Hop("q", ("p1",), (FACT,), "t", (FACT,), ""),
        {"query": "q", "candidates": [FACT], "thought": "t", "core": [["a", "b", "c"]]},
        dspy.Prediction(query="q", candidates={FACT}, thought="t", core=["a | b | c"]),
    ]
    assert answered(hops=hops)["hops"] == [hop] * 3
    assert [one["query"] for one in answered(hops=["q", 3])["hops"]] == ["q", "3"] and answered(hops=None)["hops"] == []
    assert answered(hops=2)["hops"][0]["query"] == "2"
    triples = [FACT, ("a", "b", "c"), "a | b | c", {"head": "a", "relation": "b", "tail": "c"}]
    assert answered(triples=triples)["triples"] == [["a", "b", "c"]] * 4
    assert answered(triples=[("a",), None])["triples"] == [["a", "", ""], ["", "", ""]]


ODD = {
    "a set as level": dspy.Prediction(answer="Paris", level={"triples"}),
    "numpy": dspy.Prediction(answer=np.str_("Paris"), level="triples", passages=np.array(["p1"])),
    "a dictionary": {"answer": "Paris", "hops": [{"query": b"q"}], "citations": [{"title": "T", "sentence": None}]},
    "bytes": dspy.Prediction(answer=b"Paris", passages=None, citations=None, hops=None, stopped={"x": float("nan")}),
    "none": None,
    "an error without a text": Silent(),
    "no Exception": Fatal("gone"),
    "sys.exit": SystemExit(3),
    "cancelled": asyncio.CancelledError(),
    "a torn list": dspy.Prediction(answer="Paris", passages=Breaks()),
    "NaN": dspy.Prediction(answer=float("nan"), level=float("nan")),
}


@pytest.mark.parametrize("threads", [1, 4])
def test_no_prediction_ends_a_run(tmp_path, threads):
    def system(question):
        if isinstance(ODD[question], BaseException):
            raise ODD[question]
        return ODD[question]

    examples = [example(name, name) for name in ODD]
    folder = RunFolder(tmp_path / "run")
    summary = run(system, examples, folder, MANIFEST | {"odd": {1}}, threads=threads)
    rows = {row["id"]: row for row in folder.rows()}
    errors = {name: row["error"] for name, row in rows.items() if row["error"]}
    assert errors == {
        "none": "TypeError: the system returned nothing, expected a dspy.Prediction",
        "an error without a text": "Silent: <Silent without a text>",
        "no Exception": "Fatal: gone",
        "sys.exit": "SystemExit: 3",
        "cancelled": "CancelledError",
        "a torn list": "ValueError: torn",
    }
    assert (summary["n"], summary["errors"], summary["empty_answers"], summary["levels"].keys()) == (
        len(ODD),
        6,
        1,
        {"triples"},
    )
    assert summary["em"] == round(4 / len(ODD), 4) and rows["a set as level"]["level"] == "triples"
    for name in ("run.json", "results.json"):
        text = (folder.path / name).read_text()
        json.loads(text, parse_constant=lambda constant: pytest.fail(constant))
    compare({"odd": list(rows.values())})


def test_rows_of_an_older_version_with_an_odd_level_are_summed_up(tmp_path):
    folder = RunFolder(tmp_path / "run")
    run(lambda question: {"answer": "Paris"}, [example("1", "a")], folder, MANIFEST)
    row = json.loads(folder.rows_file.read_text()) | {"level": ["triples"], "type": ["x"], "stopped": {"a": 1}}
    folder.rows_file.write_text(json.dumps(row) + "\n")
    summary = run(lambda question: None, [example("1", "a")], folder, MANIFEST, resume=True)
    assert list(summary["levels"]) == ["triples"] and compare({"x": folder.rows()})["runs"]["x"]["levels"]


def test_ctrl_c_ends_a_run(tmp_path):
    def system(question):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(system, [example("1")], RunFolder(tmp_path / "run"), MANIFEST)


def test_a_data_set_without_a_metric_is_said_before_a_question_is_paid_for(tmp_path):
    asked = []
    with pytest.raises(DataError, match="no answer metric for data set 'mine'"):
        run(asked.append, [example("1").copy(dataset="mine")], RunFolder(tmp_path / "run"), MANIFEST)
    assert asked == []
