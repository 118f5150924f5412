import pytest

from cirag_dspy.benchmarks import load_benchmark
from cirag_dspy.benchmarks.base import Benchmark
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import Document
from cirag_dspy.errors import CorpusIndexError, RunError
from cirag_dspy.evaluate import corpus
from cirag_dspy.evaluate.corpus import open_corpus
from cirag_dspy.evaluate.manifest import run_manifest
from cirag_dspy.schema import Passage
from tests.fakes import WordEncoder


@pytest.fixture(autouse=True)
def words_in_a_cache(monkeypatch, tmp_path):
    encoders = []

    def make(name):
        encoders.append(WordEncoder(name))
        return encoders[-1]

    monkeypatch.setattr(corpus, "Embedder", make)
    monkeypatch.setenv("CIRAG_DSPY_CACHE", str(tmp_path / "cache"))
    return encoders


def test_runs_on_the_same_passages_share_an_index(words_in_a_cache):
    demo = load_benchmark("demo", limit=2)
    with open_corpus(demo, extractor="a/b") as first:
        assert len(first) == 89 and first.extractor == "a/b"
        assert first.corpus_hash == demo.corpus_hash
    with open_corpus(demo, extractor="a/b") as second:
        assert second.path == first.path
    assert words_in_a_cache[1].encoded == []
    with open_corpus(demo, extractor="another") as third:
        assert third.path != first.path  # triples of two extractors are never mixed


def test_given_triples_are_the_demo_sets_own():
    demo = load_benchmark("demo", limit=2)
    with open_corpus(demo) as index:
        assert index.counts()["done"] == 89 and index.counts()["triples"] == 349
    with pytest.raises(RunError, match="--extract given is for the demo set"):
        open_corpus(Benchmark("hotpotqa", "dev", demo.examples, demo.passages))


def test_ids_of_the_corpus_do_not_hide_other_texts(tmp_path):
    examples = load_benchmark("demo", limit=2).examples

    def benchmark(text):
        passages = [Passage.create("T", text, id="0"), Passage.create("Empty", "", id="1")]
        return Benchmark("nq", "dev", examples, passages)

    old, new = benchmark("Old text about Ann."), benchmark("New text about Bob.")
    with open_corpus(old, extractor="x") as one, open_corpus(new, extractor="x") as two:
        assert one.path != two.path and two.search("text", 1)[0].passage.text == "New text about Bob."
        assert (one.corpus_hash, two.corpus_hash) == (old.corpus_hash, new.corpus_hash)
        with open_corpus(old, path=one.path) as same:
            assert len(same) == 1
        with pytest.raises(RunError, match="lacks 1 of the 2 passages"):
            open_corpus(new, path=one.path)


def test_an_index_without_the_passages_is_refused(tmp_path):
    demo = load_benchmark("demo", limit=2)
    with CorpusIndex.create(tmp_path / "index", WordEncoder("embedded")) as index:
        index.add(Document(passage.id, (passage,)) for passage in demo.passages[1:])
    with pytest.raises(RunError, match="lacks 1 of the 89 passages"):
        open_corpus(demo, path=tmp_path / "index")


def test_no_passages_is_an_error():
    demo = load_benchmark("demo", limit=2)
    with pytest.raises(RunError, match="no passages; give --corpus or --index"):
        open_corpus(Benchmark("bamboogle", "test", demo.examples, []), extractor="x")


def test_a_cache_that_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("CIRAG_DSPY_CACHE", str(tmp_path / "file"))
    with pytest.raises(CorpusIndexError, match="CIRAG_DSPY_CACHE"):
        open_corpus(load_benchmark("demo", limit=2))


def test_two_runs_have_the_same_manifest_but_for_when():
    def manifest():
        demo = load_benchmark("demo", limit=2)
        with open_corpus(demo) as index:
            return run_manifest(demo, index, system={"name": "cirag"}, lms={"reader": {"model": "m"}}, threads=1)

    one, two = manifest(), manifest()
    assert {**one, "started": ""} == {**two, "started": ""}
    assert one["corpus"]["sha256"] == one["index"]["sha256"]
    assert one["dataset"]["n"] == 2 and len(one["dataset"]["ids_sha256"]) == 64
