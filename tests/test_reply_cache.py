"""Entries of DSPy's reply cache that can't be read are misses, however they are damaged."""

import os
import pickle
import sqlite3
from pathlib import Path

import dspy
import numpy as np
import pytest

from cirag_dspy.modules.reader import Reader
from cirag_dspy.reply_cache import guard_reply_cache
from cirag_dspy.schema import Passage
from tests.fakes import scripted_lm

PASSAGE = Passage.create("Harbor Song", "Harbor Song was directed by Ada Brook.")


class Gone:
    """A class that the reader of a pickle does not have."""


def asked(engine_calls):
    lm, engine = scripted_lm(lambda messages: "answer: Ada Brook", cache=True)
    with dspy.context(lm=lm):
        answer = Reader()(question="Who directed Harbor Song?", passages=[PASSAGE]).answer
    engine_calls.append(len(engine.prompts))
    return answer


@pytest.fixture
def folder(tmp_path):
    def fresh():
        dspy.configure_cache(enable_disk_cache=True, enable_memory_cache=False, disk_cache_dir=str(tmp_path / "cache"))

    fresh()
    yield tmp_path / "cache", fresh
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)


def rows(folder, statement, *values):
    for file in Path(folder).rglob("cache.db"):
        with sqlite3.connect(file) as connection:
            connection.execute(statement, values)


def cut_pickle(folder):
    rows(folder, "UPDATE Cache SET value = ?, filename = NULL, mode = 4", sqlite3.Binary(b"\x80\x05cut"))


def another_class(folder):
    entry = pickle.dumps(Gone()).replace(b"Gone", b"Lost")
    rows(folder, "UPDATE Cache SET value = ?, filename = NULL, mode = 4", sqlite3.Binary(entry))


def another_record(folder):
    entry = pickle.dumps({"_dspy_format": "dspy-lm15-result-v1", "responses": "none"})
    rows(folder, "UPDATE Cache SET value = ?, filename = NULL, mode = 4", sqlite3.Binary(entry))


def another_version(folder):
    entry = pickle.dumps({"_dspy_format": "of a later version"})
    rows(folder, "UPDATE Cache SET value = ?, filename = NULL, mode = 4", sqlite3.Binary(entry))


def plain_text(folder):
    rows(folder, "UPDATE Cache SET value = 'oops', filename = NULL, mode = 1")


def missing_file(folder):
    rows(folder, "UPDATE Cache SET value = NULL, filename = 'aa/bb/cc.val', mode = 4")


def no_database(folder):
    for file in Path(folder).rglob("cache.db"):
        for name in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
            name.unlink(missing_ok=True)
        file.write_bytes(b"this is no database" * 100)


@pytest.mark.parametrize(
    "damage",
    [cut_pickle, another_class, another_record, another_version, plain_text, missing_file, no_database],
)
def test_a_damaged_entry_is_a_miss(folder, damage, caplog):
    path, fresh = folder
    calls = []
    assert [asked(calls), asked(calls)] == ["Ada Brook"] * 2 and calls == [1, 0]  # the second from the cache
    if damage is no_database:
        dspy.cache.disk_cache.close()
        damage(path)
    else:
        damage(path)
        fresh()
    assert asked(calls) == "Ada Brook" and calls[-1] == 1
    assert "can't be read" in caplog.text or damage is missing_file


@pytest.mark.parametrize("record", [np.ones(3), [[0.5, 1.0]], {"topk": [{"pid": 1}]}])
def test_what_others_keep_in_the_cache_stays(folder, record):
    key = {"request": "of an embedder"}
    guard_reply_cache()
    dspy.cache.put(key, record)
    for _ in range(2):
        assert np.array_equal(dspy.cache.get(key), record) or dspy.cache.get(key) == record


def test_what_was_damaged_is_written_anew(folder):
    path, fresh = folder
    calls = []
    asked(calls)
    cut_pickle(path)
    fresh()
    asked(calls)
    fresh()
    assert asked(calls) == "Ada Brook" and calls == [1, 1, 0]


def test_a_folder_that_cannot_be_made_costs_the_cache_only(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("DSPY_CACHEDIR", os.fspath(tmp_path / "file" / "below"))
    from dspy.clients import _get_dspy_cache

    monkeypatch.setattr(dspy, "cache", _get_dspy_cache())
    calls = []
    assert [asked(calls), asked(calls)] == ["Ada Brook"] * 2 and calls == [1, 0]  # in memory
