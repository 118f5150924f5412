"""Hashes of large files: every byte counts, each is read once, and older hashes are understood."""

import json
import os
import shutil

import pytest

from cirag_dspy import content
from cirag_dspy.content import content_hash, former, remember_former, same_content
from cirag_dspy.corpus.embedder import Embedder
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.model_files import model_files
from cirag_dspy.corpus.ranker import content_of
from cirag_dspy.errors import CorpusIndexError
from cirag_dspy.files import sha256
from cirag_dspy.lms.weights import _former_fingerprint, fingerprint, weights_hash
from tests.corpus.fakes import FakeEncoder

LARGE = 20 * 2**20


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CIRAG_DSPY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(content, "_SETTLED", -1e9)  # files are remembered however young they are
    return tmp_path / "cache"


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(LARGE)
    for name in ("config.json", "tokenizer.json", "merges.txt"):
        (folder / name).write_text("{}")
    return folder


def write_at(file, place, byte):
    """Change a byte in place and set the time of the last change back."""
    stat = file.stat()
    with file.open("r+b") as stream:
        stream.seek(place)
        stream.write(byte)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_any_byte_of_the_weights_changes_the_name(model):
    seen = {(fingerprint(model), weights_hash(model))}
    for place in (0, 2**20 + 1, LARGE // 2, LARGE - 2**20 - 1, LARGE - 1):
        write_at(model / "model.safetensors", place, bytes([len(seen)]))
        seen.add((fingerprint(model), weights_hash(model)))
    assert len({name for name, _ in seen}) == len({weights for _, weights in seen}) == 6


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "merges.txt", "chat_template.jinja", "spm.model"])
def test_so_does_its_tokenizer_and_its_configuration(model, name):
    before = fingerprint(model)
    (model / name).write_text('{"other": 1}')
    assert fingerprint(model) != before


def test_a_large_file_is_read_once(model, monkeypatch):
    read = []
    monkeypatch.setattr(content, "sha256", lambda path: read.append(path.name) or sha256(path))
    weights = model / "model.safetensors"
    first = content_hash(weights)
    assert content_hash(weights) == first == sha256(weights) and read == ["model.safetensors"]
    link = model / "link.safetensors"
    link.symlink_to(weights)
    assert content_hash(link) == first and len(read) == 1
    shutil.copy(weights, other := model / "other.safetensors")
    assert content_hash(other) == first and len(read) == 2
    other.replace(weights)
    assert content_hash(weights) == first and len(read) == 3


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"state": 1}', b'{"state": [], "sha256": 3}', b"\xff"])
def test_a_damaged_note_is_a_miss(model, cache, damage):
    found = content_hash(model / "model.safetensors")
    (note,) = (cache / "hashes").iterdir()
    note.write_bytes(damage)
    assert content_hash(model / "model.safetensors") == found
    assert json.loads(note.read_text())["sha256"] == found


def test_a_file_that_may_still_be_written_to_is_not_remembered(model, cache, monkeypatch):
    monkeypatch.setattr(content, "_SETTLED", 2.0)
    content_hash(model / "model.safetensors")
    assert not (cache / "hashes").exists()


def test_a_cache_that_cannot_be_written_costs_time_only(model, cache):
    cache.write_text("a file")
    assert content_hash(model / "model.safetensors") == sha256(model / "model.safetensors")


def test_what_older_versions_wrote_is_understood(model):
    before, now = _former_fingerprint(model, None), fingerprint(model)
    assert before != now and former(f"embedded@{now} (one)") == f"embedded@{before} (one)"
    assert same_content(before, now) and same_content(now, now) and not same_content("0123456789ab", now)
    assert same_content(f"local/m@{before}", f"local/m@{now}") and not same_content(None, now)
    remember_former("a" * 12, "b" * 12)
    assert not same_content("a" * 12, "b" * 12)  # only what was, not what will be


def test_an_embedder_changed_in_place_is_refused_and_one_of_an_old_index_is_noted(tmp_path):
    class Model(FakeEncoder):
        """Its fingerprint is that of any other."""

        folder = tmp_path / "st"

        def files(self):
            return model_files(self.folder)

    (tmp_path / "st" / "1_Pooling").mkdir(parents=True)
    for name in ("model.safetensors", "tokenizer.json", "1_Pooling/config.json", "README.md", "training.json"):
        (tmp_path / "st" / name).write_text("{}")
    (tmp_path / "st" / "modules.json").write_text('[{"path": ""}, {"path": "1_Pooling"}, {"path": "../.."}]')
    assert list(Model().files()) == ["1_Pooling/config.json", "model.safetensors", "modules.json", "tokenizer.json"]
    CorpusIndex.create(tmp_path / "index", FakeEncoder()).close()  # as an old version would: no files in the manifest
    with CorpusIndex.open(tmp_path / "index", Model()) as index:
        index.add([])
        assert len(index.embedder_state["content"]) == 12
    for name in ("model.safetensors", "tokenizer.json", "1_Pooling/config.json"):
        (tmp_path / "st" / name).write_text("{ }")
        with pytest.raises(CorpusIndexError, match=f"{name} with hash"):
            CorpusIndex.open(tmp_path / "index", Model())
        (tmp_path / "st" / name).write_text("{}")
    (tmp_path / "st" / "README.md").write_text("another card")
    CorpusIndex.open(tmp_path / "index", Model()).close()


def test_a_ranker_is_its_tokenizer_too(model):
    encoder = FakeEncoder(name=str(model))
    before = content_of(encoder)
    (model / "tokenizer.json").write_text('{"other": 1}')
    assert content_of(encoder) != before


@pytest.mark.slow
def test_the_embedded_model_names_its_files():
    files = Embedder().files()
    assert {"model.safetensors", "tokenizer.json", "1_Pooling/config.json"} <= files.keys()
