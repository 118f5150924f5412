"""A second model that ranks: its own order, its vectors encoded once and kept apart from the index's."""

import os
import threading
import time

import pytest

from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ranker import content_of
from tests.corpus.fakes import FakeEncoder, TableEncoder, document, extraction

FACTS = ("a | is | east", "b | is | north")
# The index's own model and the ranker disagree about the query.
OWN = {"a is east": (1, 0), "b is north": (0, 1), "q": (1, 0)}
OTHER = {"a is east": (1, 0), "b is north": (0, 1), "q": (0.6, 0.8)}


class Ranker(TableEncoder):
    def __init__(self, table=OTHER, name="ranker"):
        super().__init__(table)
        self.name = name

    def fingerprint(self):
        return [0.0]


@pytest.fixture
def built(tmp_path):
    with CorpusIndex.create(tmp_path / "index", TableEncoder(OWN)) as index:
        index.add([document("f", "p")])
        (passage,) = index.pending()
        index.keep(passage.id, extraction(passage.id, *FACTS))
        index.embed_triples()
        yield index, index.triples([passage.id])[passage.id]


def heads(scored):
    return [(triple.head, score) for triple, score in scored]


def test_the_ranker_ranks_and_the_index_searches(built):
    index, triples = built
    assert heads(index.rank_scored("q", triples)) == [("a", 1.0), ("b", 0.0)]
    index.use_ranker(ranker := Ranker())
    assert heads(index.rank_scored("q", triples)) == [("b", 0.8), ("a", 0.6)]
    assert [triple.head for triple in index.rank("q", triples, 1)] == ["b"]
    index.embedder.queries.clear()
    index.search("q", 1)
    assert index.embedder.queries == ["q"] and ranker.queries == ["q", "q"]
    index.use_ranker(None)
    assert heads(index.rank_scored("q", triples)) == [("a", 1.0), ("b", 0.0)]


def test_a_triple_is_encoded_once_by_each_ranker(built):
    index, triples = built
    own = len(index.embedder.texts)
    rankers = [Ranker(), Ranker(name="another")]
    for ranker in (*rankers, *rankers):
        index.use_ranker(ranker)
        index.rank("q", triples)
    assert [ranker.texts for ranker in rankers] == [["a is east", "b is north"]] * 2
    path = index.path
    index.close()
    with CorpusIndex.open(path, TableEncoder(OWN)) as again:
        again.use_ranker(later := Ranker())
        assert heads(again.rank_scored("q", triples)) == [("b", 0.8), ("a", 0.6)]
        again.use_ranker(None)
        assert heads(again.rank_scored("q", triples)) == [("a", 1.0), ("b", 0.0)]
        assert later.texts == [] and again.embedder.texts == []
    assert len(index.embedder.texts) == own


def test_changed_triples_are_ranked_anew_and_vectors_go_with_their_triples(built):
    index, triples = built
    index.use_ranker(ranker := Ranker())
    index.rank("q", triples)
    index.keep(triples[0].passage_id, extraction(triples[0].passage_id, "b | is | north", "c | is | new"))
    now = index.triples([triples[0].passage_id])[triples[0].passage_id]
    assert sorted(triple.head for triple in index.rank("q", now)) == ["b", "c"]
    assert ranker.texts == ["a is east", "b is north", "b is north", "c is new"]
    index.remove("f")
    (left,) = index._store.connection.execute("SELECT count(*) FROM ranker_vectors").fetchone()
    assert left == 0


def test_threads_that_want_the_same_vectors_encode_them_once(built):
    class Slow(Ranker):
        def encode_passages(self, texts):
            time.sleep(0.1)
            return super().encode_passages(texts)

    index, triples = built
    index.use_ranker(ranker := Slow())
    threads = [threading.Thread(target=index.rank, args=(f"q{i}", triples)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ranker.texts) == 2


@pytest.mark.parametrize("ranked_before", [False, True])
def test_a_read_only_index_keeps_the_vectors_in_memory(built, monkeypatch, ranked_before):
    index, triples = built
    if ranked_before:
        index.use_ranker(Ranker(name="another"))
        index.rank("q", triples)
    index.close()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with CorpusIndex.open(index.path, TableEncoder(OWN)) as again:
        again.use_ranker(ranker := Ranker())
        for _ in range(2):
            assert heads(again.rank_scored("q", triples)) == [("b", 0.8), ("a", 0.6)]
        assert ranker.texts == ["a is east", "b is north"]


def test_a_model_goes_by_its_weights_and_its_prompt(tmp_path):
    def folder(name, weights, prompt=""):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(weights)
        encoder = FakeEncoder(name=str(tmp_path / name), passage_prompt=prompt)
        encoder.fingerprint = None  # the model need not be loaded
        return content_of(encoder)

    first = folder("one", b"w1")
    assert folder("moved", b"w1") == first
    assert len({first, folder("trained", b"w2"), folder("prompted", b"w1", "passage: ")}) == 3
    assert content_of(FakeEncoder(seed=1)) != content_of(FakeEncoder(seed=2))


def test_what_ranks_is_on_record(built):
    index, _ = built
    assert index.ranker_state is None
    index.use_ranker(ranker := Ranker())
    assert index.ranker_state == {"name": "ranker", "content": content_of(ranker)}
