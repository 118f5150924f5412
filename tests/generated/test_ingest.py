"""Ingest of random files: nothing but errors of ours, no text lost, no passage too long, nothing changed by a second run."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirag_dspy.corpus.cutting import PASSAGE_WORDS, cut, size
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import read_corpus
from cirag_dspy.errors import CiragError
from cirag_dspy.text import one_line
from tests.corpus.fakes import FakeEncoder

SCRIPTS = {
    "Latin": "abcdefgh ABÅé.,!? ",
    "Cyrillic": "абвгд Ж. ",
    "Greek": "αβγδ Ω; ",
    "Arabic": "ابتث ، ۔ ؟ ",
    "Hebrew": "אבגד . ",
    "Devanagari": "कखगि् । ",
    "Han": "北京是中国的首都。、",
    "Kana": "あいうカキ。ー",
    "Thai": "กขคงั้ ",
    "Khmer": "កខគ្ឃ ។",
    "Tibetan": "ཀཁག་ ། ",
    "Emoji": "👩‍👩‍👧🇳🇴e\u0301 ",
}
letters = st.sampled_from(sorted(SCRIPTS)).flatmap(lambda name: st.text(SCRIPTS[name], max_size=60))
# Short texts repeated make long ones.
texts = st.lists(st.tuples(letters, st.integers(1, 40)).map(lambda pair: pair[0] * pair[1]), max_size=6).map("\n".join)
anything = st.text(max_size=200)
marks = st.sampled_from(
    [
        "# ",
        "## ",
        "#",
        "```",
        "~~~",
        "````",
        "---",
        "+++",
        "===",
        "- ",
        "1. ",
        "> ",
        "    ",
        "\t",
        "<!--",
        "-->",
        "title: a",
        "",
        " a ",
        " b ",
        "",
        "\\",
        "\n\n",
        "\r\n",
        "`",
        "***",
        "* * *",
        "x",
    ]
)
markdown = st.lists(st.one_of(marks, letters, st.just("\n")), max_size=30).map("".join)
values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=True), anything, st.lists(anything, max_size=3)
)
rows = st.one_of(
    values,
    st.dictionaries(st.sampled_from(["id", "text", "title", "contents", "paragraph_text", "x"]), values, max_size=4),
)
contents = st.one_of(
    st.binary(max_size=200),
    anything.map(lambda text: text.encode("utf-8", "surrogatepass")),
    texts.map(str.encode),
    texts.map(lambda text: text.encode("utf-16")),
    markdown.map(str.encode),
    st.lists(rows, max_size=5).map(lambda some: "\n".join(map(json.dumps, some)).encode()),
    st.lists(rows, max_size=5).map(lambda some: json.dumps(some).encode()),
    st.lists(st.lists(letters, max_size=4).map("\t".join), max_size=5).map(lambda some: "\r\n".join(some).encode()),
)
names = st.sampled_from(["a.txt", "a.md", "a.jsonl", "a.json", "a.tsv"])


def squeezed(text):
    return "".join(one_line(text).split())


@given(texts)
def test_cutting_loses_nothing_and_keeps_to_the_limit(text):
    passages = cut(text)
    assert squeezed("".join(sentence for passage in passages for sentence in passage)) == squeezed(text)
    assert all(sum(map(size, passage)) <= PASSAGE_WORDS for passage in passages)
    assert all(sentence.strip() for passage in passages for sentence in passage)


@given(anything)
def test_cutting_of_any_text(text):
    assert squeezed("".join(s for passage in cut(text, 3) for s in passage)) == squeezed(text)


@given(markdown)
def test_markdown_loses_only_its_markup(tmp_path, text):
    path = tmp_path / "a.md"
    path.write_bytes(text.encode())
    (document,) = read_corpus(path)
    found = " ".join([p.title for p in document.passages[:1]] + [p.text for p in document.passages])
    # Left out: comments, front matter, fences with the name of a language, and marks.
    if "<!--" in text or text.startswith(("---", "+++")):
        return
    wanted = re.sub(r"(`{3,}|~{3,}).*", "", text.replace("\r", "\n"))
    assert set(re.findall(r"\w", wanted)) <= set(found)


@pytest.fixture
def index(tmp_path):
    with CorpusIndex.create(tmp_path / "i", FakeEncoder()) as index:
        yield index


@given(names, contents)
def test_any_file_is_indexed_or_an_error_of_ours(tmp_path, index, name, content):
    # One index takes all of them, each in the place of the last file of its name.
    path = tmp_path / name
    path.write_bytes(content)
    try:
        assert not any(document.unread for document in read_corpus(path))
    except CiragError as error:
        assert "\n" not in str(error) and name in str(error)
    index.add(read_corpus(path, on_error=lambda error: None), on_error=lambda error: None)
    before = {passage.id: passage for passage in index.pending()}
    again = index.add(read_corpus(path, on_error=lambda error: None), on_error=lambda error: None)
    assert (again.added, again.removed) == (0, 0)
    assert {passage.id: passage for passage in index.pending()} == before
    assert list(index.passages(before)) == list(before)
