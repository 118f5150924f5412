"""One writer at a time for an index, whatever becomes of it; searching and keeping go on meanwhile."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest

from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.lock import NAME, WriterLock
from cirag_dspy.errors import CorpusIndexError, IndexInUseError
from tests.corpus.fakes import FakeEncoder, document, extraction, stream

# Holds the lock of the folder in argv[1] until its input ends.
HOLDER = """
import sys
from pathlib import Path
from cirag_dspy.corpus.lock import WriterLock
with WriterLock(Path(sys.argv[1])).held():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder():
    running = []

    def start(folder):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        running.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()


def test_a_second_writer_is_told_who_the_first_is(index, encoder, holder):
    index.add([document("a", "one")])
    other = holder(index.path)
    host = re.escape(socket.gethostname())
    said = rf"^index .* is in use by process {other.pid} on {host} since 20\d\d-.*: wait until it ends$"
    calls = (lambda: index.add([document("b", "two")]), lambda: index.remove("a"), lambda: index.writing().__enter__())
    for call in calls:
        with pytest.raises(IndexInUseError, match=said):
            call()
    with pytest.raises(IndexInUseError, match=said):
        CorpusIndex.create(index.path, encoder)
    assert len(index) == 1


def test_the_lock_of_a_killed_writer_is_gone_with_it(index, holder):
    other = holder(index.path)
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert (index.path / NAME).is_file()
    index.add([document("a", "one")])
    assert len(index) == 1 and not (index.path / NAME).exists()


def test_an_index_that_is_being_made_is_in_use(tmp_path, encoder, holder):
    (tmp_path / "new").mkdir()
    holder(tmp_path / "new")
    with pytest.raises(IndexInUseError, match="is in use by process"):
        CorpusIndex.create(tmp_path / "new", encoder)


def test_a_slow_run_excludes_a_quick_one_and_loses_nothing(tmp_path):
    # Both are runs over the same folder of texts; the quick one comes while the slow one is half done.
    refused = []

    def slow(other):
        for number in range(400):
            if number == 200:
                with pytest.raises(IndexInUseError) as error:
                    other.add(document(f"{n}.txt", f"text {n}", file="folder/") for n in range(200, 400))
                refused.append(str(error.value))
            yield document(f"{number}.txt", f"text {number}", file="folder/")

    with CorpusIndex.create(tmp_path, FakeEncoder()) as index, CorpusIndex.open(tmp_path, FakeEncoder()) as other:
        index.add(slow(other), batch_size=10)
        assert len(index) == 400 and len(refused) == 1 and f"process {os.getpid()} " in refused[0]
        assert other.add(document(f"{n}.txt", f"text {n}", file="folder/") for n in range(400)).unchanged == 400


def test_readers_go_on_while_another_writes(index, holder):
    index.add([document("a", "one", "two")])
    holder(index.path)
    with CorpusIndex.open(index.path, FakeEncoder()) as reader:
        (hit,) = reader.search("one", 1)
        reader.keep(hit.passage.id, extraction(hit.passage.id, "a | b | c"))
        assert reader.rank("a", reader.triples([hit.passage.id])[hit.passage.id])
        assert reader.embed_triples() == 0
        reader.extracted_by("some/lm")
    assert index.counts()["done"] == 1


def test_two_that_extract_lose_neither_triples_nor_who_wrote_them(index):
    index.add(stream(40))
    ids = [passage.id for passage in index.pending()]
    errors = []

    def ask(name, mine):
        try:
            with CorpusIndex.open(index.path, FakeEncoder()) as opened:
                opened.extracted_by(name)
                for id in mine:
                    opened.keep(id, extraction(id, f"{id} | told by | {name}"))
                    opened.rank("told", opened.triples([id])[id])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=ask, args=(name, ids[n::2])) for n, name in enumerate(("lm/a", "lm/b"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with CorpusIndex.open(index.path, FakeEncoder()) as opened:
        assert (opened.counts()["done"], opened.counts()["triples"]) == (40, 40)
        assert set(opened.extractor.split(", ")) in ({"lm/a", "lm/b"}, {"lm/a"}, {"lm/b"})
    index.close()  # one that was open all the time and changed something
    assert json.loads((index.path / "manifest.json").read_text())["counts"]["done"] == 40


def test_a_stale_view_does_not_take_back_who_wrote_the_triples(tmp_path):
    with CorpusIndex.create(tmp_path, FakeEncoder()) as first:
        first.add([document("a", "one")])
        (passage,) = first.pending()
        with CorpusIndex.open(tmp_path, FakeEncoder()) as second:
            second.keep(passage.id, extraction(passage.id, "a | b | c"))
            second.extracted_by("lm/a")
        first.extracted_by("lm/b")
    assert CorpusIndex.open(tmp_path, FakeEncoder()).extractor == "lm/a, lm/b"


def test_a_thread_holds_it_twice_and_others_wait(tmp_path):
    lock, order = WriterLock(tmp_path), []

    def other():
        with lock.held():
            order.append("other")

    with lock.held(), lock.held():
        thread = threading.Thread(target=other)
        thread.start()
        order.append("first")
    thread.join()
    assert order == ["first", "other"] and not (tmp_path / NAME).exists()


def test_a_file_system_without_locks_is_an_error_in_one_line(index, monkeypatch):
    def no_locks(file, how):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(CorpusIndexError, match=r"can't be locked \(No locks available\): free room, or move it"):
        index.add([document("a", "one")])
