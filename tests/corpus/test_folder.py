"""The folder of an index: its manifest, its derived file, what a kill and a read-only disk leave."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest

from cirag_dspy.corpus.embedder import Embedder
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.errors import CorpusIndexError
from cirag_dspy.schema import Extraction
from tests.corpus.fakes import FakeEncoder, document, stream

ROOT = Path(__file__).parents[2]


def build(path, n=3, **settings):
    with CorpusIndex.create(path, FakeEncoder(**settings)) as index:
        index.add(stream(n))
    return path


def run(code):
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_manifest(tmp_path):
    build(tmp_path)
    data = json.loads((tmp_path / "manifest.json").read_text())
    assert data["format"] == 1 and data["extractor"] is None and data["version"] == version("cirag-dspy")
    assert data["counts"] == {"passages": 3, "triples": 0, "pending": 3, "done": 0, "cut": 0, "empty": 0, "failed": 0}
    assert data["embedder"]["name"] == "fake" and data["embedder"]["dimension"] == 32
    assert len(data["embedder"]["fingerprint"]) == 16 and len(data["corpus_hash"]) == 64
    with CorpusIndex.open(tmp_path, FakeEncoder()) as index:
        assert index.corpus_hash == data["corpus_hash"]
        index.extractor = "openai/gpt-4o-mini"
        assert json.loads((tmp_path / "manifest.json").read_text())["extractor"] == "openai/gpt-4o-mini"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["corpus.sqlite", "manifest.json", "passages.faiss"]


def test_the_corpus_hash_does_not_depend_on_the_order(tmp_path):
    hashes = set()
    for name, texts in {"a": ["one", "two"], "b": ["two", "one"]}.items():
        with CorpusIndex.create(tmp_path / name, FakeEncoder()) as index:
            index.add([document("f", *texts)])
            hashes.add(index.corpus_hash)
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"name": "other"}, ["fake", "other"]),
        ({"dimension": 16}, ["dimension 32", "dimension 16"]),
        ({"seed": 1}, ["fingerprint"]),  # the same name and dimension, other weights
        ({"query_prompt": "query: "}, ["query prompt ''", "query prompt 'query: '"]),
        ({"passage_prompt": "passage: "}, ["passage prompt ''", "passage prompt 'passage: '"]),
    ],
)
def test_another_embedder_is_refused(tmp_path, other, named):
    # G10
    build(tmp_path)
    encoder = FakeEncoder(**other)
    with pytest.raises(CorpusIndexError) as error:
        CorpusIndex.open(tmp_path, encoder)
    message = str(error.value)
    assert all(part in message for part in named) and "\n" not in message
    assert f"cirag-dspy index CORPUS --out {tmp_path} --embedder {encoder.name}" in message


def test_an_embedder_that_is_not_loaded_is_compared_at_its_first_use(tmp_path):
    build(tmp_path)
    encoder = FakeEncoder(seed=1)
    encoder.loaded = False
    with CorpusIndex.open(tmp_path, encoder) as index:
        assert len(index) == 3
        with pytest.raises(CorpusIndexError, match="fingerprint"):
            index.search("town", 1)
        with pytest.raises(CorpusIndexError, match="fingerprint"):
            index.add(stream(1))


def test_the_embedder_of_the_manifest_is_taken_unless_one_is_given(tmp_path):
    build(tmp_path, name="some/model", query_prompt="ask: ", passage_prompt="tell: ")
    with CorpusIndex.open(tmp_path) as index:
        assert isinstance(index.embedder, Embedder) and not index.embedder.loaded
        assert (index.embedder.name, index.embedder.query_prompt) == ("some/model", "ask: ")
        assert index.embedder.passage_prompt == "tell: "


def test_no_index(tmp_path):
    assert not CorpusIndex.exists(tmp_path)
    with pytest.raises(CorpusIndexError, match=r"no index at .* build one with cirag-dspy index"):
        CorpusIndex.open(tmp_path, FakeEncoder())


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 1, "embedder": {"name": 3}}', "\x00"])
def test_damaged_manifest(tmp_path, text):
    build(tmp_path)
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(CorpusIndexError, match=r"manifest\.json is damaged"):
        CorpusIndex.open(tmp_path, FakeEncoder())


def test_another_format(tmp_path):
    build(tmp_path)
    data = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps({**data, "format": 2}))
    with pytest.raises(CorpusIndexError, match="has format 2, this version reads 1"):
        CorpusIndex.open(tmp_path, FakeEncoder())


@pytest.mark.parametrize("content", [None, b"", b"not a database" * 100])
def test_missing_or_damaged_store(tmp_path, content):
    build(tmp_path)
    (tmp_path / "corpus.sqlite").unlink()
    if content is not None:
        (tmp_path / "corpus.sqlite").write_bytes(content)
    with pytest.raises(CorpusIndexError, match=r"corpus\.sqlite"):
        CorpusIndex.open(tmp_path, FakeEncoder())


def test_create_overwrites_nothing(tmp_path):
    build(tmp_path)
    with pytest.raises(CorpusIndexError, match="holds an index already"):
        CorpusIndex.create(tmp_path, FakeEncoder())
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(CorpusIndexError, match="holds passages but no manifest"):
        CorpusIndex.create(tmp_path, FakeEncoder())
    (tmp_path / "file").touch()
    with pytest.raises(CorpusIndexError, match="no index can be made"):
        CorpusIndex.create(tmp_path / "file", FakeEncoder())


def spoil_nothing(path):
    pass


def spoil_delete(path):
    path.unlink()


def spoil_truncate(path):
    path.write_bytes(path.read_bytes()[:-40])


def spoil_damage(path):
    path.write_bytes(b"XXXX" + path.read_bytes()[4:])


def spoil_swap(path):
    other = build(path.parent.parent / "other", n=3, seed=5)
    shutil.copy(other / path.name, path)


@pytest.mark.parametrize("spoil", [spoil_nothing, spoil_delete, spoil_truncate, spoil_damage, spoil_swap])
def test_the_faiss_file_is_derived(tmp_path, spoil):
    # Missing, cut short, damaged, or another index's of the same size: built from the store, with nothing encoded.
    path = build(tmp_path / "index")
    right = (path / "passages.faiss").read_bytes()
    spoil(path / "passages.faiss")
    with CorpusIndex.open(path, encoder := FakeEncoder()) as index:
        (hit,) = index.search("Passage 1 tells that town 1 lies on river 1.", 1)
        assert hit.passage.text.startswith("Passage 1 ") and hit.score == 1.0
        assert encoder.texts == []
    assert (path / "passages.faiss").read_bytes() == right


def test_kill_9_in_the_middle_of_a_build(tmp_path):
    # Killed while the fourth batch is encoded: three are there, and only the rest is encoded afterwards.
    done = run(
        "from cirag_dspy.corpus.index import CorpusIndex\n"
        "from tests.corpus.fakes import FakeEncoder, stream\n"
        f"index = CorpusIndex.create({str(tmp_path)!r}, FakeEncoder(kill_after=3))\n"
        "index.add(stream(50), batch_size=10)"
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    with CorpusIndex.open(tmp_path, encoder := FakeEncoder()) as index:
        assert len(index.search("town", 50)) == 30
        assert vars(index.add(stream(50), batch_size=10)) == {"added": 10, "unchanged": 40, "removed": 0, "skipped": 0}
        assert [text.split()[1] for text in encoder.texts] == [str(i) for i in range(30, 50)]
        assert len(index.search("town", 99)) == 50
    assert json.loads((tmp_path / "manifest.json").read_text())["counts"]["passages"] == 50


def test_kill_9_keeps_every_extraction(tmp_path):
    build(tmp_path)
    done = run(
        "import os, signal\n"
        "from cirag_dspy.corpus.index import CorpusIndex\n"
        "from tests.corpus.fakes import FakeEncoder, extraction\n"
        f"index = CorpusIndex.open({str(tmp_path)!r}, FakeEncoder())\n"
        "for p in index.pending()[:2]: index.keep(p.id, extraction(p.id, 'a | b | c'))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    with CorpusIndex.open(tmp_path, FakeEncoder()) as index:
        assert index.counts()["done"] == 2 and len(index.pending()) == 1


def test_memory_stays_bounded():
    # G9: 20,000 short passages, streamed.
    with tempfile.TemporaryDirectory() as folder:
        done = run(
            "import resource, faiss\n"
            "from cirag_dspy.corpus.index import CorpusIndex\n"
            "from tests.corpus.fakes import FakeEncoder, stream\n"
            "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024\n"
            "encoder = FakeEncoder(dimension=64); encoder.texts = type('Forget', (list,), "
            "{'__iadd__': lambda self, more: self})()\n"
            "before = peak()\n"
            f"with CorpusIndex.create({folder!r}, encoder) as index:\n"
            "    assert index.add(stream(20_000), batch_size=512).added == 20_000\n"
            "    assert len(index.search('town', 10)) == 10\n"
            "print(peak() - before)"
        )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 120  # MB; the vectors alone are 5


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="drops root to meet a folder it may not write to")
def test_a_read_only_folder_can_be_searched_as_another_user():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = build(Path(folder, "index"))
        os.chmod(path, 0o555)
        done = run(READ_ONLY.format(path=str(path)))
        assert done.returncode == 0, done.stderr


READ_ONLY = """
import os, faiss, encodings.utf_8_sig
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.errors import CorpusIndexError
from cirag_dspy.schema import Extraction, Triple
from tests.corpus.fakes import FakeEncoder
FakeEncoder().fingerprint()  # imports what that user may not
os.setuid(65534)
index = CorpusIndex.open({path!r}, FakeEncoder())
(hit,) = index.search("town 1", 1)
assert index.rank("b", [Triple("a", "is", "b", hit.passage.id, 0)])
try:
    index.keep(hit.passage.id, Extraction("empty"))
except CorpusIndexError as error:
    assert "cannot be written to" in str(error), error
else:
    raise SystemExit("written to a read-only folder")
index.close()
"""


def test_a_folder_that_cannot_be_written_to(tmp_path, monkeypatch):
    build(tmp_path)
    (tmp_path / "passages.faiss").unlink()
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with CorpusIndex.open(tmp_path, FakeEncoder()) as index:
        (hit,) = index.search("town 1", 1)
        with pytest.raises(CorpusIndexError, match="cannot be written to"):
            index.keep(hit.passage.id, Extraction("empty"))
        with pytest.raises(CorpusIndexError, match="cannot be written to"):
            index.add(stream(5))
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_importing_the_index_loads_no_model_library():
    done = run(
        "import sys, cirag_dspy.corpus.index\n"
        "print([m for m in ('torch', 'faiss', 'sentence_transformers', 'transformers') if m in sys.modules])"
    )
    assert done.stdout.strip() == "[]", done.stderr
