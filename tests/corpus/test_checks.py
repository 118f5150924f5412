"""Vectors of passages, triples and queries are numbers of the right shape, or the text is named."""

import json
import sqlite3

import numpy as np
import pytest

from cirag_dspy.corpus.embedder import unit
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.errors import CorpusIndexError, ModelError
from tests.corpus.fakes import FakeEncoder, document, extraction, stream

NAN, INF = float("nan"), float("inf")


class Spoilt(FakeEncoder):
    """Gives the right vectors, but what ``spoil`` makes of them where a text has the word bad."""

    def __init__(self, spoil=None, **options):
        super().__init__(**options)
        self.spoil = spoil

    def encode_passages(self, texts):
        vectors = super().encode_passages(texts)
        return self.spoil(vectors) if self.spoil and any("bad" in text for text in texts) else vectors

    def encode_query(self, text):
        vector = super().encode_query(text)
        return self.spoil(vector[None])[0] if self.spoil and "bad" in text else vector


def last(value):
    def spoil(vectors):
        vectors = vectors.copy()
        vectors[-1, 3] = value
        return vectors

    return spoil


def zero(vectors):
    return np.vstack([vectors[:-1], np.zeros((1, 32))])


SHAPES = {
    "fewer rows": lambda v: v[:-1],
    "more rows": lambda v: np.vstack([v, v]),
    "fewer columns": lambda v: v[:, :16],
    "more columns": lambda v: np.hstack([v, v]),
    "three axes": lambda v: v[None],
    "one axis": lambda v: v.ravel(),
    "nothing": lambda v: None,
    "ragged": lambda v: [[0.0] * (30 + n) for n in range(len(v) + 1)],
    "complex": lambda v: v + 1j,
    "texts": lambda v: v.astype(str),
    "booleans": lambda v: v > 0,
}


@pytest.mark.parametrize(
    ("spoil", "what"),
    [(last(NAN), "not finite"), (last(INF), "not finite"), (last(-INF), "not finite"), (zero, "zero")],
)
def test_the_passage_is_named(tmp_path, spoil, what):
    with CorpusIndex.create(tmp_path, Spoilt(spoil)) as index:
        with pytest.raises(ModelError, match=f"embedder fake gave a vector that is {what} for 'Its title is bad text'"):
            index.add([document("f", "good"), document("g", "is bad text", title="Its title")])
        assert not index.is_embedded() and len(index) == 2
        index.embedder.spoil = None
        assert index.add(stream(1)).added == 1
        assert index.is_embedded() and len(index.search("bad", 5)) == 3


@pytest.mark.parametrize("spoil", SHAPES.values(), ids=SHAPES)
def test_passages_triples_and_rankers_of_another_shape_or_kind(tmp_path, spoil):
    with CorpusIndex.create(tmp_path, Spoilt(spoil)) as index:
        with pytest.raises(ModelError, match="embedder fake gave") as error:
            index.add([document("f", "one bad", "two")])
        assert "\n" not in str(error.value)
        index.embedder.spoil = None
        index.add([document("f", "one bad", "two")])
        id = index.pending()[0].id
        index.keep(id, extraction(id, "a | is | bad", "b | is | good"))
        triples = index.triples([id])[id]
        index.embedder.spoil = spoil
        with pytest.raises(ModelError, match="embedder fake gave"):
            index.embed_triples()
        index.use_ranker(Spoilt(spoil, name="ranker"))
        with pytest.raises(ModelError, match="embedder ranker gave"):
            index.rank("q", triples)


@pytest.mark.parametrize("spoil", [last(NAN), last(INF), zero, lambda v: v[:, :16], lambda v: [None]])
def test_queries(tmp_path, spoil):
    with CorpusIndex.create(tmp_path, Spoilt()) as index:
        index.add([document("f", "one")])
        id = index.pending()[0].id
        index.keep(id, extraction(id, "a | b | c"))
        triples = index.triples([id])[id]
        index.embedder.spoil = spoil
        with pytest.raises(ModelError, match=r"embedder fake gave .*'a bad query'"):
            index.search("a bad query", 1)
        with pytest.raises(ModelError, match=r"embedder fake gave .*'a bad query'"):
            index.rank("a bad query", triples)
        assert len(index.search("a good query", 1)) == 1


@pytest.mark.parametrize("kind", [np.float16, np.float64, np.float32, list])
def test_any_real_numbers_of_any_length_become_units(tmp_path, kind):
    scaled = (lambda v: (3 * v).tolist()) if kind is list else (lambda v: (3 * v).astype(kind))
    with CorpusIndex.create(tmp_path, Spoilt(scaled)) as index:
        index.add([document("f", "bad one")])
        (hit,) = index.search("bad one", 1)
        assert hit.score == pytest.approx(1, abs=1e-3)


def test_units_of_numbers_whose_squares_a_float_cannot_hold():
    np.testing.assert_allclose(unit(np.array([[3e30, 4e30], [3e-30, 4e-30]], dtype=np.float32)), [[0.6, 0.8]] * 2)


def test_a_fingerprint_that_is_no_number_is_no_match(tmp_path):
    CorpusIndex.create(tmp_path, FakeEncoder()).close()
    other = FakeEncoder()
    other.fingerprint = lambda: [NAN] * 16
    with pytest.raises(CorpusIndexError, match="fingerprint"):
        CorpusIndex.open(tmp_path, other)


@pytest.mark.parametrize("derived", [True, False], ids=["in the FAISS file", "in the store"])
@pytest.mark.parametrize(
    "vector", [np.full(32, NAN, np.float32).tobytes(), np.zeros(32, np.float32).tobytes(), b"1234", b"12", "text", b""]
)
def test_what_an_index_holds_already_is_found_and_encoded_anew(tmp_path, vector, derived):
    with CorpusIndex.create(tmp_path, FakeEncoder()) as index:
        index.add([document("f", "one", title="First"), document("g", "two", title="Second")])
        (id,) = [passage.id for passage in index.pending() if passage.title == "Second"]
        index.keep(id, extraction(id, "a | b | c"))
        index.embed_triples()
    with sqlite3.connect(tmp_path / "corpus.sqlite") as database:
        database.execute("UPDATE passages SET vector = ? WHERE title = 'Second'", (vector,))
        database.execute("UPDATE triples SET vector = ?", (vector,))
    database.close()
    file = tmp_path / "passages.faiss"
    if derived and len(vector) == 128:
        data, good = file.read_bytes(), FakeEncoder().encode_passages(["Second\ntwo"])[0].tobytes()
        assert data.count(good) == 1
        file.write_bytes(data.replace(good, vector))
    else:
        file.unlink()
    with CorpusIndex.open(tmp_path, FakeEncoder()) as index:
        with pytest.raises(CorpusIndexError, match=r"1 passages have vectors .*\('Second'\): cirag-dspy index CORPUS"):
            index.search("two", 1)
        assert index.rank("a", index.triples([id])[id])  # what a triple lacks is encoded when it is needed
        assert index.embedder.texts == ["a b c"]
        index.add([])
        assert index.embedder.texts == ["a b c", "Second\ntwo"]
        assert index.search("two", 1)[0].passage.title == "Second"
    with CorpusIndex.open(tmp_path, again := FakeEncoder()) as index:
        assert len(index.search("two", 2)) == 2 and again.texts == []
    assert json.loads((tmp_path / "manifest.json").read_text())["counts"]["passages"] == 2
