import json

import dspy
import pytest

from cirag_dspy.benchmarks import load_benchmark
from cirag_dspy.errors import DataError, RunError
from cirag_dspy.evaluate.official import official_row, require_format, write_official, write_run

ROWS = [
    {
        "id": "q1",
        "answer": "Ω",
        "supporting": [("A", 0), ("B", 2)],
        "evidences": [("a", "r", "b")],
        "support_idxs": [7, 3, 3],
    },
    {"id": "q2", "answer": None},
]


def test_hotpotqa(tmp_path):
    path = write_official("hotpotqa", ROWS, tmp_path / "new" / "pred.json")
    assert json.loads(path.read_text()) == {"answer": {"q1": "Ω"}, "sp": {"q1": [["A", 0], ["B", 2]], "q2": []}}


def test_2wiki(tmp_path):
    content = json.loads(write_official("2wikimultihopqa", ROWS, tmp_path / "pred.json").read_text())
    assert content["evidence"] == {"q1": [["a", "r", "b"]], "q2": []}
    assert set(content) == {"answer", "sp", "evidence"}


def test_musique_keeps_every_question_in_order(tmp_path):
    lines = write_official("musique", ROWS, str(tmp_path / "pred.jsonl")).read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"id": "q1", "predicted_answer": "Ω", "predicted_support_idxs": [3, 7], "predicted_answerable": True},
        {"id": "q2", "predicted_answer": "", "predicted_support_idxs": [], "predicted_answerable": True},
    ]


def test_musique_takes_what_was_answered_for_answerable(tmp_path):
    told = [{"id": "a", "answer": "x", "answered": True}, {"id": "b", "answer": "a guess", "answered": False}]
    rows = [official_row(row, dspy.Example(paragraphs={})) for row in told]
    lines = write_official("musique", rows, tmp_path / "pred.jsonl").read_text().splitlines()
    assert [json.loads(line)["predicted_answerable"] for line in lines] == [True, False]


def test_no_format(tmp_path):
    with pytest.raises(DataError, match="nq: its authors define no prediction file"):
        write_official("nq", ROWS, tmp_path / "pred.json")
    with pytest.raises(DataError, match=r"webquestions: .* \(hotpotqa, demo, 2wikimultihopqa, musique have one\)"):
        require_format("webquestions")
    require_format("musique")


def test_row_of_a_run():
    example = dspy.Example(paragraphs={"p1": 4})
    citations = [{"title": "A", "sentence": 1, "passage_id": "p1"}, {"title": "B", "sentence": 0, "passage_id": "p9"}]
    told = {"id": "q", "answer": "x", "error": "", "citations": citations, "triples": [["a", "r", "b"]]}
    row = official_row(told, example)
    assert (row["answer"], row["supporting"], row["support_idxs"]) == ("x", [("A", 1), ("B", 0)], [4])
    assert row["evidences"] == [["a", "r", "b"]]
    assert official_row({"id": "q", "answer": "", "error": "boom"}, example)["answer"] is None


def test_a_run_is_written_in_the_order_of_its_questions(tmp_path):
    benchmark = load_benchmark("demo", limit=3)
    ids = [example.id for example in benchmark.examples]
    rows = [{"id": id, "answer": id.upper(), "error": ""} for id in (ids[2], ids[0])]
    path = write_run(benchmark, rows, tmp_path / "new", "cirag")
    assert path == tmp_path / "new" / "cirag.json"
    assert json.loads(path.read_text())["answer"] == {ids[0]: ids[0].upper(), ids[2]: ids[2].upper()}
    assert list(json.loads(path.read_text())["answer"]) == [ids[0], ids[2]]
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"file/cirag.json can't be written: .*; name another folder"):
        write_run(benchmark, rows, tmp_path / "file", "cirag")
