"""Adding, updating, removing, searching and ranking."""

import copy
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import Document
from cirag_dspy.corpus.store import Store
from cirag_dspy.errors import CorpusIndexError, DataError
from cirag_dspy.schema import Extraction, Tries, Triple
from tests.corpus.fakes import FakeEncoder, TableEncoder, document, extraction, passage, stream


def report(added=0, unchanged=0, removed=0, skipped=0):
    return {"added": added, "unchanged": unchanged, "removed": removed, "skipped": skipped}


def test_search_scores_worked_by_hand(tmp_path):
    table = {"east": (3, 0), "northeast": (1, 1), "north": (0, 2), "go east": (5, 0)}
    with CorpusIndex.create(tmp_path, TableEncoder(table)) as index:
        index.add([document("f", "north", "northeast", "east")])
        hits = index.search("go east", 3)
    assert [hit.passage.text for hit in hits] == ["east", "northeast", "north"]
    assert [hit.score for hit in hits] == [1.0, 0.707107, 0.0]


def test_scaled_duplicates_rank_equal_and_ties_go_to_the_first(tmp_path):
    # E4: eight passages whose vectors differ only in length, and a query along them.
    texts = [f"copy {i}" for i in range(8)]
    table = {text: (0.3 * (i + 1), 0.4 * (i + 1)) for i, text in enumerate(texts)}
    with CorpusIndex.create(tmp_path, TableEncoder({**table, "q": (3, 4)})) as index:
        index.add([document("f", *texts)])
        hits = index.search("q", 3)
    assert [hit.passage.text for hit in hits] == texts[:3]
    assert {hit.score for hit in hits} == {1.0}


def test_k_beyond_the_corpus_gives_fewer_and_an_empty_corpus_nothing(index):
    # G11: FAISS pads with -1, which must never become the last passage.
    assert index.search("anything", 10) == []
    index.add([document("f", "one", "two", "three")])
    assert sorted(hit.passage.text for hit in index.search("one", 10)) == ["one", "three", "two"]
    assert index.search("one", 0) == []


def test_a_title_is_embedded_above_the_text(index, encoder):
    index.add([document("f", "Some text.", title="A title"), document("g", "No title.")])
    assert encoder.texts == ["A title\nSome text.", "No title."]


def test_adding_again_encodes_nothing(index, encoder):
    # G14
    assert vars(index.add(stream(50), batch_size=7)) == report(added=50)
    texts = len(encoder.texts)
    assert vars(index.add(stream(50), batch_size=7)) == report(unchanged=50)
    assert len(encoder.texts) == texts == 50


def test_batches_are_bounded(index, encoder):
    encoder.sizes = []
    encode = encoder.encode_passages
    encoder.encode_passages = lambda texts: encoder.sizes.append(len(texts)) or encode(texts)
    index.add([document("first", *"abcde"), *stream(100, per_document=25)], batch_size=10)
    assert max(encoder.sizes) == 10 and sum(encoder.sizes) == 105


def test_an_update_deletes_what_the_source_no_longer_has(index):
    # G15: the old fact is gone, with its triples and its vector.
    old, kept = passage("The mayor is Ann."), passage("The town is old.")
    index.add([Document("town.txt", (old, kept))])
    index.keep(old.id, extraction(old.id, "Ann | is | mayor"))
    index.rank("mayor", index.triples([old.id])[old.id])
    assert vars(index.add([document("town.txt", "The mayor is Bob.", "The town is old.")])) == report(1, 1, 1)
    assert {hit.passage.text for hit in index.search("mayor", 9)} == {"The mayor is Bob.", "The town is old."}
    assert index.passages([old.id]) == index.triples([old.id]) == index.states([old.id]) == {}
    assert index.counts()["triples"] == 0


def test_an_id_of_the_corpus_follows_its_text(index, encoder):
    def row(text):
        return [Document("c.jsonl#7", (passage(text, id="7"),), "c.jsonl")]

    index.add(row("v1"))
    index.keep("7", extraction("7", "v | is | 1"))
    before = index.corpus_hash
    assert vars(index.add(row("v2"))) == report(added=1, removed=1)
    assert index.passages(["7"])["7"].text == "v2"
    assert index.triples(["7"]) == {"7": ()} and index.states(["7"]) == {"7": "pending"}
    assert [hit.passage.text for hit in index.search("v2", 5)] == ["v2"]
    assert encoder.texts == ["v1", "v2"] and index.corpus_hash != before


def test_rows_that_left_their_file_leave_the_index(index):
    def rows(*texts):
        return [Document(f"c.jsonl#{p.id}", (p,), "c.jsonl") for p in map(passage, texts)]

    index.add([*rows("stays", "goes"), document("other.txt", "untouched")])
    assert vars(index.add(rows("stays", "new"))) == report(1, 1, 1)
    assert {p.text for p in index.pending()} == {"stays", "new", "untouched"}


def test_a_passage_with_another_source_stays(index):
    index.add([document("a", "shared", "only a"), document("b", "shared")])
    assert index.remove("a") == 1
    assert [p.text for p in index.pending()] == ["shared"]
    assert index.remove("b") == 1 and len(index) == 0 and index.search("shared", 3) == []


def test_the_same_title_with_another_text_is_another_passage(index):
    assert index.add([document("f", "A river.", "A city.", title="Paris")]).added == 2
    assert len(index) == 2


def test_one_id_for_two_texts_is_refused(index):
    rows = [Document("c.jsonl#1", (passage(text, id="1"),), "c.jsonl") for text in ("one", "two")]
    with pytest.raises(DataError, match=r"c.jsonl#1: passage id 1 is already that of another text"):
        index.add(rows)
    with pytest.raises(DataError, match="comes twice"):
        index.add([document("f", "one"), document("f", "two")])
    assert len(index) == 0


def test_empty_passages_are_skipped_and_counted(index):
    assert vars(index.add([document("f", "", " \n ", "text")])) == report(added=1, skipped=2)


def test_rank_worked_by_hand_and_encodes_once(tmp_path):
    table = {"a is east": (1, 0), "b is northeast": (1, 1), "c is north": (0, 1), "q": (0, 1), "r": (1, 0)}
    with CorpusIndex.create(tmp_path, encoder := TableEncoder(table)) as index:
        index.add([document("f", "p")])
        (id,) = [p.id for p in index.pending()]
        index.keep(id, extraction(id, "a | is | east", "b | is | northeast", "c | is | north"))
        encoder.texts.clear()
        triples = index.triples([id])[id]
        assert [t.head for t in index.rank("q", triples)] == ["c", "b", "a"]
        assert [t.head for t in index.rank("r", triples, 2)] == ["a", "b"]
        assert index.rank("q", triples, 0) == index.rank("q", [], 5) == []
        assert encoder.texts == ["a is east", "b is northeast", "c is north"]
    with CorpusIndex.open(tmp_path, again := TableEncoder(table)) as index:
        assert [t.head for t in index.rank("q", index.triples([id])[id], 1)] == ["c"]
        assert again.texts == [] and index.embed_triples() == 0


def test_ties_in_rank_keep_their_order_and_foreign_triples_are_ranked_too(index, encoder):
    foreign = [Triple("x", "is", "y", "nowhere", i) for i in range(3)]
    assert index.rank("x", foreign) == foreign
    assert index.rank("y", foreign, 1) == foreign[:1]
    assert encoder.texts == ["x is y"]


def test_embed_triples_in_batches(index, encoder):
    index.add([document("f", "one", "two")])
    for p in index.pending():
        index.keep(p.id, extraction(p.id, *(f"{p.text} | has | {i}" for i in range(5))))
    encoder.texts.clear()
    steps = []
    assert index.embed_triples(batch=4, progress=lambda done, total: steps.append((done, total))) == 10
    assert steps == [(4, 10), (8, 10), (10, 10)] and len(encoder.texts) == 10
    index.rank("one", [t for ts in index.triples(p.id for p in index.pending()).values() for t in ts])
    assert len(encoder.texts) == 10


def test_extraction_states(index):
    # G4, G5: what failed is told from what is empty, and comes back as pending.
    index.add([document("f", "one", "two", "three", "four")])
    one, two, three, four = index.pending()
    index.keep(one.id, extraction(one.id, "a | b | c", "a | b | c"))
    index.keep(two.id, Extraction("empty"))
    index.keep(three.id, Extraction("failed", error="no triples in: Sorry"))
    assert index.counts() == {"passages": 4, "triples": 1, "pending": 1, "done": 1, "cut": 0, "empty": 1, "failed": 1}
    assert index.pending() == [three, four] and index.failed() == [three]
    assert list(index.states([two.id, "?", one.id]).items()) == [(two.id, "empty"), (one.id, "done")]
    assert list(index.passages([two.id, "?", one.id])) == [two.id, one.id]
    index.keep(three.id, extraction(three.id, "d | e | f"))
    assert [t.text for t in index.triples([three.id])[three.id]] == ["d | e | f"]
    with pytest.raises(CorpusIndexError, match="no passage nope"):
        index.keep("nope", Extraction("empty"))


def test_a_cut_extraction_keeps_its_triples_and_its_room(index):
    index.add([document("f", "one")])
    (one,) = index.pending()
    index.keep(one.id, replace(extraction(one.id, "a | b | c"), state="cut", room=512, error="cut off"))
    assert index.states([one.id]) == {one.id: "cut"} and index.counts()["cut"] == 1 and index.counts()["done"] == 0
    assert index.pending() == [one] == index.failed()
    assert index.tries([one.id]) == {one.id: Tries(useless=0, room=512)} and index.errors([one.id]) == {
        one.id: "cut off"
    }
    assert [t.text for t in index.triples([one.id])[one.id]] == ["a | b | c"]
    index.keep(one.id, extraction(one.id, "a | b | c", "d | e | f"))
    assert index.states([one.id]) == {one.id: "done"} and index.tries([one.id]) == {} == index.errors([one.id])


@pytest.mark.parametrize("writable", [True, False])
def test_an_index_of_before_there_were_tries_opens(tmp_path, writable):
    path = tmp_path / "old"
    with CorpusIndex.create(path, FakeEncoder()) as built:
        built.add([document("f", "one", "two")])
        one, two = built.pending()
        built.keep(one.id, extraction(one.id, "a | b | c"))
        database = built._store.path
    with sqlite3.connect(database) as connection:
        connection.execute("DROP TABLE tries")
    connection.close()
    if not writable:
        store = Store(database, read_only=True)
        assert store.states([one.id, two.id]) == {one.id: "done", two.id: "pending"}
        assert store.tries([one.id]) == {} and store.counts()["cut"] == 0
        with pytest.raises(CorpusIndexError, match="cannot be written"):
            store.keep(two.id, Extraction("empty"))
        store.close()
        return
    with CorpusIndex.open(path, FakeEncoder()) as opened:
        assert opened.states([one.id, two.id]) == {one.id: "done", two.id: "pending"}
        opened.keep(two.id, Extraction("cut", room=16))
        assert opened.counts()["cut"] == 1


def test_keep_replaces_triples_that_were_cached(index):
    index.add([document("f", "one")])
    (p,) = index.pending()
    assert index.triples([p.id]) == {p.id: ()}
    index.keep(p.id, extraction(p.id, "a | b | c"))
    assert len(index.triples([p.id])[p.id]) == 1


def test_a_deep_copy_is_the_index(index):
    assert copy.deepcopy({"index": index})["index"] is index


def test_eight_threads_search_keep_and_rank(index):
    index.add(stream(64))
    passages = index.pending()
    errors = []

    def work(worker):
        try:
            for p in passages[worker::8]:
                index.keep(p.id, extraction(p.id, f"town {p.id} | lies on | a river", f"{worker} | kept | {p.id}"))
                assert len(index.search(f"river {worker}", 5)) == 5
                triples = index.triples(q.id for q in passages)
                assert len(triples[p.id]) == 2
                index.rank("a river", [t for ts in triples.values() for t in ts], 3)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert index.counts() == {
        "passages": 64,
        "triples": 128,
        "pending": 0,
        "done": 64,
        "cut": 0,
        "empty": 0,
        "failed": 0,
    }


def test_stored_vectors_are_float32_units(index):
    index.add(stream(5))
    keys, vectors = index._store.vectors(index._store.vector_keys(), 32)
    assert keys.tolist() == [1, 2, 3, 4, 5] and vectors.dtype == np.float32 and vectors.shape == (5, 32)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)


def test_progress_counts_passages(index):
    steps = []
    index.add(stream(25), batch_size=10, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(10, None), (20, None), (25, None)]


def test_a_closed_index_says_so(tmp_path):
    index = CorpusIndex.create(tmp_path, FakeEncoder())
    index.close()
    index.close()
    with pytest.raises(CorpusIndexError, match="is closed"):
        index.search("q", 1)


def test_closing_while_threads_work_is_an_error_to_them_and_no_crash(tmp_path):
    code = """
import subprocess
import sys
import threading
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import Document
from cirag_dspy.corpus.store import Store
from cirag_dspy.errors import CorpusIndexError
from cirag_dspy.schema import Extraction, Passage, Triple
from tests.corpus.fakes import FakeEncoder
import sys
passages = [Passage.create(f"T{n}", f"Fact {n}.") for n in range(50)]
for round in range(10):
    index = CorpusIndex.create(f"{sys.argv[1]}/{round}", FakeEncoder())
    index.add(Document(p.id, (p,)) for p in passages)
    def work():
        try:
            while True:
                for p in passages:
                    index.keep(p.id, Extraction("done", (Triple("a", "b", p.title, p.id, 0),)))
                    index.triples([p.id])
        except CorpusIndexError:
            pass
    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads: t.start()
    threading.Event().wait(0.03)
    index.close()
    for t in threads: t.join()
print("fine")
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.stdout == "fine\n", done.stderr[-800:]


def test_one_passage_at_a_time_encodes_and_copies_each_once(tmp_path, monkeypatch):
    copied = []
    read = Store.vectors

    def counted(self, keys, dimension):
        copied.extend(keys)
        return read(self, keys, dimension)

    monkeypatch.setattr(Store, "vectors", counted)
    with CorpusIndex.create(tmp_path, encoder := FakeEncoder()) as index:
        index.add([document("0.txt", "text 0")])
        assert len(index.search("text", 900)) == 1
        for number in range(1, 300):
            index.add([document(f"{number}.txt", f"text {number}")])
        assert len(index.search("text", 900)) == 300
        for number in range(300, 400):
            index.add([document(f"{number}.txt", f"text {number}")])
            assert index.search(f"text {number}", 1)[0].passage.text == f"text {number}"
        assert index.remove("7.txt") == 1
        assert len(index.search("text", 900)) == 399
        assert not (tmp_path / "passages.faiss").exists()  # written once, at the end
    assert encoder.calls == 400 and len(encoder.texts) == 400 and len(copied) == 400
    with CorpusIndex.open(tmp_path, FakeEncoder()) as index:
        before = {hit.passage.text: hit.score for hit in index.search("text 5", 900)}
        (tmp_path / "passages.faiss").unlink()
    with CorpusIndex.open(tmp_path, FakeEncoder()) as index:
        assert {hit.passage.text: hit.score for hit in index.search("text 5", 900)} == before


def test_a_small_addition_leaves_the_file_to_the_next_search(tmp_path):
    with CorpusIndex.create(tmp_path, FakeEncoder()) as index:
        index.add(stream(100))
    file = tmp_path / "passages.faiss"
    written = file.read_bytes()
    with CorpusIndex.open(tmp_path, FakeEncoder()) as index:
        index.add([document("new", "something new")])
    assert file.read_bytes() == written
    with CorpusIndex.open(tmp_path, FakeEncoder()) as index:
        assert index.search("something new", 1)[0].passage.text == "something new"
    assert len(file.read_bytes()) > len(written)


def test_threads_search_while_another_adds_and_removes(index):
    index.add(stream(50))
    errors = []

    def search():
        try:
            for number in range(60):
                assert 3 <= len(index.search(f"town {number}", 5)) <= 5  # one that is removed meanwhile is left out
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(40):
        index.add([document(f"new {number}", f"A new town {number}.")])
        index.remove(f"{number}.txt")
    for thread in threads:
        thread.join()
    assert errors == [] and len(index.search("town", 99)) == 50


def test_torch_is_imported_before_faiss():
    # The other order ends the process on macOS: each brings its own OpenMP.
    code = """
import sys, tempfile
from cirag_dspy.corpus.index import CorpusIndex
from tests.corpus.fakes import FakeEncoder, document
class Torch(FakeEncoder):
    loaded = False
    def _vectors(self, texts):
        import json.tool  # stands for torch
        return super()._vectors(texts)
with tempfile.TemporaryDirectory() as folder:
    with CorpusIndex.create(folder, FakeEncoder()) as index:
        index.add([document("a", "one"), document("b", "two")])
    for name in [name for name in sys.modules if name.partition(".")[0] == "faiss" or name == "json.tool"]:
        del sys.modules[name]
    with CorpusIndex.open(folder, Torch()) as index:
        if sys.argv[1] == "search": index.search("one", 1)
        if sys.argv[1] == "remove": index.remove("b"); index.search("one", 1)
        if sys.argv[1] == "add": index.add([document("c", "three")])
    print(*[name for name in sys.modules if name in ("faiss", "json.tool")])
"""
    for way in ("search", "remove", "add"):
        done = subprocess.run([sys.executable, "-c", code, way], capture_output=True, text=True, timeout=120)
        assert done.stdout == "json.tool faiss\n", (way, done.stdout, done.stderr[-800:])
