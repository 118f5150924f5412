"""Silver data of extraction: read leniently where a line is no triple, strictly where the file is something else."""

import json

import pytest

from cirag_dspy.distill.silver import read_silver, write_silver
from cirag_dspy.errors import DataError
from cirag_dspy.schema import Passage, Triple

ROWS = [
    {"title": "A", "text": "One here. Two there.", "entities": ["x"], "triples": [["Two", "is", "there"]]},
    {
        "title": "B",
        "text": "Three.",
        "triples": [["a", "b"], ["a", "b", "c", "d"], ["a", " ", "c"], ["a", "b", 3], "x"],
    },
    {"text": "Ünïcode.", "triples": [["Ü", "n", "ï"]]},
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "silver.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)) + "\n")
    return path


def test_passages_and_their_triples(file):
    (first, found), (second, none), (third, _) = read_silver(file)
    assert first == Passage.create("A", "One here. Two there.")
    assert found == [Triple("Two", "is", "there", first.id, 1)]  # with the sentence that it is from
    assert (second.title, none, third.title) == ("B", [], "")


def test_a_part_of_them(file):
    assert [passage.title for passage, _ in read_silver(file, skip=1, limit=1)] == ["B"]
    with pytest.raises(DataError, match="has no passages after the first 3"):
        read_silver(file, skip=3)


def test_what_is_written_is_read_again(file, tmp_path):
    extracted = read_silver(file)
    write_silver(tmp_path / "folder" / "again.jsonl", extracted)
    assert read_silver(tmp_path / "folder" / "again.jsonl") == extracted
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["again.jsonl"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"title": "A", "triples": []}', "row 1: field 'text' is missing"),
        ('{"title": "A", "text": "x"}', "row 1: field 'triples' is missing"),
        ('{"title": "A", "text": "x", "triples": {}}', "row 1: field 'triples' is no list"),
        ("not json", "neither a JSON list nor JSON lines"),
        ("", "has no passages"),
    ],
)
def test_another_file_is_refused(text, says, tmp_path):
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(DataError) as error:
        read_silver(tmp_path / "x.jsonl")
    assert says in str(error.value)
