"""Files to documents."""

import json
import os

import pytest

from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import cut, other_files, read_corpus
from cirag_dspy.errors import DataError
from cirag_dspy.schema import Passage
from tests.corpus.fakes import FakeEncoder


def jsonl(path, *rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_folder(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.txt").write_text("One. Two.")
    (tmp_path / "sub" / "a.md").write_text("Before.\n\n# The *title* #\nBody here.\n## Part\nMore.")
    (tmp_path / "README.MD").write_text("No heading.")
    (tmp_path / "data.csv").write_text("x")
    (tmp_path / ".hidden.txt").write_text("x")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "c.txt").write_text("x")
    documents = list(read_corpus(tmp_path))
    assert [d.source for d in documents] == [f"{tmp_path}/{name}" for name in ("README.MD", "b.txt", "sub/a.md")]
    assert {d.file for d in documents} == {f"{tmp_path}/"}
    assert [d.passages[0].title for d in documents] == ["README", "b", "The *title*"]
    assert documents[1].passages == (Passage.create("b", ["One.", "Two."]),)
    assert documents[2].passages[0].text == "Before. Body here. Part More."


def test_other_files_of_a_folder_are_named(tmp_path):
    for name in ("a.md", "b.txt", "rows.jsonl", ".hidden", "c.pdf"):
        (tmp_path / name).write_text("x")
    assert other_files(tmp_path) == ["c.pdf", "rows.jsonl"]


def test_links_that_leave_the_folder_are_passed_over(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "inside.txt").write_text("In.")
    (tmp_path / "outside.txt").write_text("Out.")
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "deep.txt").write_text("Deep.")
    os.symlink(tmp_path / "outside.txt", folder / "link.txt")
    os.symlink(tmp_path / "dir", folder / "linked")
    os.symlink(folder / "nowhere.txt", folder / "broken.txt")
    assert [d.source for d in read_corpus(folder)] == [f"{folder}/inside.txt"]


def test_one_text_file_in_utf_8_with_a_byte_order_mark(tmp_path):
    (tmp_path / "é.txt").write_bytes("\ufeffÇa va. Oui.".encode())
    (document,) = read_corpus(tmp_path / "é.txt")
    assert document.source == str(tmp_path / "é.txt") and document.passages[0].sentences == ("Ça va.", "Oui.")


def test_cutting():
    def words(n, mark="."):
        return " ".join(["Word"] * n) + mark

    assert cut("") == cut(" \n\n ") == []
    # Paragraphs of 50 words: two fit into 120, the third starts the next passage.
    assert [len(p) for p in cut("\n\n".join([words(50)] * 3))] == [2, 1]
    # A paragraph that fits is not cut to fill the passage before it.
    assert [len(p) for p in cut(words(60) + "\n\n" + words(40) + " " + words(40))] == [1, 2]
    # One that doesn't is cut between sentences, and the next joins its rest.
    assert [len(p) for p in cut(" ".join([words(50)] * 5) + "\n\n" + words(60))] == [2, 2, 2]
    # Text without full stops is cut between words; nothing is lost.
    assert [len(p[0].split()) for p in cut(words(300, ""))] == [120, 120, 60]
    # Scripts without blanks are cut between sentences too.
    assert len(cut("北京是中国的首都。" * 400)) > 2


def test_hipporag_corpus_rows_are_passages_and_titles_no_identity(tmp_path):
    long = "A sentence. " * 400
    rows = [{"title": "T", "text": "One."}, {"title": "T", "text": "Two."}, {"text": long}]
    path = tmp_path / "corpus.json"
    path.write_text(json.dumps(rows))
    documents = list(read_corpus(path))
    passages = [d.passages[0] for d in documents]
    assert [len(d.passages) for d in documents] == [1, 1, 1]
    assert passages[:2] == [Passage.create("T", "One."), Passage.create("T", "Two.")]
    assert len(passages[2].sentences) == 400
    assert documents[0].source == f"{documents[0].file}#{passages[0].id}" and documents[0].file.endswith("/corpus.json")


def test_jsonl_fields_and_ids(tmp_path):
    path = jsonl(
        tmp_path / "c.jsonl",
        {"id": 7, "title": "A", "paragraph_text": "Text."},
        {"id": "x", "contents": '"A title"\nThe text.'},
        {"title": None, "text": ["One. Still one.", "", "Two."]},
        {"text": ""},
    )
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n\n"))
    documents = list(read_corpus(path))
    assert [d.passages[0].id for d in documents[:2]] == ["7", "x"] and documents[1].source.endswith("/c.jsonl#x")
    assert (documents[1].passages[0].title, documents[1].passages[0].text) == ("A title", "The text.")
    assert documents[2].passages[0].sentences == ("One. Still one.", "", "Two.")
    assert documents[3].passages[0].text == ""


def test_dpr_tsv(tmp_path):
    path = tmp_path / "psgs.tsv"
    path.write_text('id\ttext\ttitle\n1\t"He said ""no"".\tThen left."\tA\n2\tPlain text.\tB\n')
    documents = list(read_corpus(path))
    assert [d.passages[0].id for d in documents] == ["1", "2"]
    assert documents[0].passages[0].text == 'He said "no". Then left.'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "ok"}\n{"text": ', r"a\.jsonl:2: not JSON"),
        ("a.jsonl", b'{"text": "ok"}\n\n[1]\n', r"a\.jsonl:3: not an object: a row is"),
        ("a.jsonl", b'{"title": "x", "body": "y"}\n', r"a\.jsonl:1: no text among title, body: a row is"),
        ("a.jsonl", b'{"text": 3}\n', r"a\.jsonl:1: text is neither a string nor a list"),
        ("a.jsonl", b'{"text": "x", "id": [1]}\n', r"a\.jsonl:1: title must be a string, id"),
        ("a.jsonl", b'{"text": "ok"}\n{"text": "caf\xe9"}\n', r"a\.jsonl:2: not UTF-8 \(byte 13\)"),
        ("a.jsonl", b"[" * 100_000, r"a\.jsonl:1: not JSON"),
        ("a.json", b'{"text": "x"}', r"a\.json: not a list of rows"),
        ("a.json", b'[{"text": "x"}, null]', r"a\.json: row 2: not an object"),
        ("a.tsv", b"id\ttext\ttitle\n1\n", r"a\.tsv:2: 1 columns"),
        ("a.txt", b"\xff\xfe", r"a\.txt: not UTF-8"),
        ("a.pdf", b"%PDF", r"a\.pdf: not a corpus that can be read"),
    ],
)
def test_what_cannot_be_read_is_named_with_file_and_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        list(read_corpus(tmp_path / name))
    assert "\n" not in str(error.value)


def test_nothing_to_read(tmp_path):
    with pytest.raises(DataError, match=r"no \.txt or \.md file"):
        read_corpus(tmp_path)
    with pytest.raises(DataError, match="no such file or folder"):
        read_corpus(tmp_path / "missing")


def test_from_file_to_index_and_back(tmp_path):
    path = jsonl(tmp_path / "c.jsonl", {"id": 1, "text": "The mayor is Ann."}, {"title": "T", "text": "Old."})
    with CorpusIndex.create(tmp_path / "index", FakeEncoder()) as index:
        index.add(read_corpus(path))
        jsonl(path, {"id": 1, "text": "The mayor is Bob."}, {"title": "T", "text": "New."})
        assert vars(index.add(read_corpus(path))) == {"added": 2, "unchanged": 0, "removed": 2, "skipped": 0}
        assert {p.text for p in index.pending()} == {"The mayor is Bob.", "New."}
        with pytest.raises(DataError):
            index.add(read_corpus(jsonl(path, {"id": 1, "text": "The mayor is Cy."}, {})))
        assert len(index) == 2 and index.remove(str(path)) >= 1 and len(index) == 0
