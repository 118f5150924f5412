"""Files to documents."""

import json
import os

import pytest

from cirag_dspy.corpus.cutting import cut, size
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import other_files, read_corpus
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
    assert [d.source for d in documents] == [f"{tmp_path.name}/{name}" for name in ("README.MD", "b.txt", "sub/a.md")]
    assert {(d.file, d.root) for d in documents} == {(f"{tmp_path.name}/", tmp_path)}
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
    assert [d.source for d in read_corpus(folder)] == ["folder/inside.txt"]


def test_one_text_file_in_utf_8_with_a_byte_order_mark(tmp_path):
    (tmp_path / "é.txt").write_bytes("\ufeffÇa va. Oui.".encode())
    (document,) = read_corpus(tmp_path / "é.txt")
    assert document.source == "é.txt" and document.passages[0].sentences == ("Ça va.", "Oui.")


def letters(passages):
    return "".join("".join(passage) for passage in passages).replace(" ", "")


@pytest.mark.parametrize(
    ("text", "passages"),
    [
        ("北" * 18_000, 75),  # two letters a word
        ("北京、上海、" * 3_000, 57),
        ("ภ" * 1_000, 5),
        ("က" * 1_000, 5),
        ("ཀ" * 1_000, 5),
        ("ក" * 1_000, 5),
        ("https://a.example/" + "x/" * 5_000, 11),
        ("QUJD" * 2_500, 11),  # base64: eight letters a word
        ("👩‍👩‍👧" * 1_000, 6),
        ("e\u0301" * 1_000, 3),
    ],
)
def test_text_without_blanks_is_cut_between_letters(text, passages):
    found = cut(text)
    assert len(found) == passages and letters(found) == text
    assert all(size(" ".join(passage)) <= 120 for passage in found)
    # Never between a letter and its marks, or within an emoji of several.
    assert not any(passage[0][0] in "\u0301\u200d" for passage in found)


def test_a_cut_falls_behind_a_mark():
    assert [passage[0][-1] for passage in cut("北京的故事很长，" * 100)] == ["，"] * 4
    assert [passage[0][-1] for passage in cut("https://a.example/" + "word/" * 500)] == ["/"] * 3


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
    assert documents[0].source == f"corpus.json#{passages[0].id}" and documents[0].file == "corpus.json"


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
    assert [d.passages[0].id for d in documents[:2]] == ["7", "x"] and documents[1].source == "c.jsonl#x"
    assert (documents[1].passages[0].title, documents[1].passages[0].text) == ("A title", "The text.")
    assert documents[2].passages[0].sentences == ("One. Still one.", "", "Two.")
    assert documents[3].passages[0].text == ""


def test_dpr_tsv(tmp_path):
    path = tmp_path / "psgs.tsv"
    path.write_text('id\ttext\ttitle\n1\t"He said ""no"". Then left."\tA\n2\tPlain text.\tB\n')
    documents = list(read_corpus(path))
    assert [d.passages[0].id for d in documents] == ["1", "2"]
    assert documents[0].passages[0].text == 'He said "no". Then left.'


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (
            '1\t"Heroes is a song.\tA\n2\tPlain.\tB\n3\tIt ends" here.\tC\n',
            ['"Heroes is a song.', "Plain.", 'It ends" here.'],
        ),
        ('1\t"Heroes"\t"H"\r\n2\t"\tQuote\r\n', ['"Heroes"', '"']),
        ('1\t"""Heroes"" is it"\t\n', ['"Heroes" is it']),
        ("title\ttext\nT\tFirst.\n", ["First."]),
        ("ID\tTitle\tText\n1\tT\tFirst.\n", ["First."]),
        ("1\tNo title.\n\n2\tNone either.\n", ["No title.", "None either."]),
        ("id\ttext\ttitle\n", []),
        ("", []),
        ("1\tA\u2028b\x0cc\x85d\tT\n", ["A b c d"]),
    ],
)
def test_a_line_of_a_tsv_is_a_row(tmp_path, content, rows):
    (tmp_path / "f.tsv").write_bytes(content.encode())
    assert [d.passages[0].text for d in read_corpus(tmp_path / "f.tsv")] == rows


def test_utf_16_with_a_mark(tmp_path):
    for name, content in {
        "a.txt": "Ä.",
        "b.md": "# Ö\r\nText.",
        "c.jsonl": '{"text": "Ü."}\r\n{"text": "ß."}',
        "d.json": '[{"text": "é"}]',
    }.items():
        (tmp_path / name).write_bytes(content.encode("utf-16"))
        assert len([d.passages[0].text for d in read_corpus(tmp_path / name)]) == (2 if name == "c.jsonl" else 1)
    assert [d.passages[0].title for d in read_corpus(tmp_path)] == ["a", "Ö"]


def test_rows_are_cut_where_that_is_asked_for(tmp_path):
    sentences = " ".join(f"Sentence {i} has five words." for i in range(160))
    path = jsonl(
        tmp_path / "c.jsonl", {"id": 7, "title": "T", "text": sentences + " The fact."}, {"id": 8, "text": "Short."}
    )
    assert [len(d.passages) for d in read_corpus(path)] == [1, 1]
    first, second = read_corpus(path, cut_rows=True)
    assert [p.id for p in first.passages] == [f"7:{i}" for i in range(1, 8)] and second.passages[0].id == "8"
    assert first.passages[-1].text.endswith("The fact.") and {p.title for p in first.passages} == {"T"}


def test_what_the_embedder_does_not_read_is_told(tmp_path, index, encoder):
    encoder.beyond_window = lambda texts: [max(0, len(text.split()) - 3) for text in texts]
    path = jsonl(
        tmp_path / "c.jsonl", {"id": "a", "text": "One two."}, {"id": "b", "title": "T", "text": "One two three."}
    )
    long = []
    for _ in range(2):
        index.add(read_corpus(path), on_long=lambda passage, tokens: long.append((passage.id, tokens)))
    assert long == [("b", 1)]


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
        ("a.tsv", b"id\ttext\ttitle\n1\n", r"a\.tsv:2: 1 columns: a row is id, text, title, between tabs"),
        ("a.tsv", b"1\tA\tB\n2\tA\ttab\tB\n", r"a\.tsv:2: 4 columns: .*: a text holds no tab"),
        ("a.tsv", b"1\tA\tB\n2\tcaf\xe9\tB\n", r"a\.tsv:2: not UTF-8"),
        ("a.jsonl", b'{"text": "x", "id": true}\n', r"a\.jsonl:1: title must be a string, id"),
        ("a.jsonl", b'{"text": "x", "id": ' + b"9" * 5000 + b"}\n", r"a\.jsonl:1: not JSON"),
        ("a.txt", b"\xff\xfea", r"a\.txt: not UTF-16"),
        ("a.txt", b"caf\xe9", r"a\.txt: not UTF-8"),
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
