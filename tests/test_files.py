"""Text files as editors save them, and names as they can be printed."""

import codecs
import json
import os

import pytest

from cirag_dspy.benchmarks.rows import read_records
from cirag_dspy.corpus.manifest import Manifest
from cirag_dspy.distill.rows import read_rows
from cirag_dspy.distill.trajectories import read_trajectories
from cirag_dspy.evaluate.ablate import read_grid
from cirag_dspy.evaluate.run import RunFolder
from cirag_dspy.files import printable, read_json, read_text
from cirag_dspy.recipe import read_recipe
from tests.corpus.fakes import FakeEncoder

SAVED_AS = {
    "utf-8": "ö\r\n".encode(),
    "Notepad's UTF-8": codecs.BOM_UTF8 + "ö\r\n".encode(),
    "Notepad's Unicode": codecs.BOM_UTF16_LE + "ö\r\n".encode("utf-16-le"),
    "UTF-16 BE": codecs.BOM_UTF16_BE + "ö\r".encode("utf-16-be"),
    "UTF-32": codecs.BOM_UTF32_LE + "ö\n".encode("utf-32-le"),
    "UTF-32 BE": codecs.BOM_UTF32_BE + "ö\n".encode("utf-32-be"),
}


@pytest.mark.parametrize("data", SAVED_AS.values(), ids=SAVED_AS)
def test_a_byte_order_mark_is_no_text(tmp_path, data):
    (tmp_path / "f").write_bytes(data)
    assert read_text(tmp_path / "f") == "ö\n"


@pytest.mark.parametrize("data", [b"caf\xe9", codecs.BOM_UTF16_LE + b"a", codecs.BOM_UTF16_LE + b"\x00\xd8a\x00"])
def test_another_encoding_is_an_error_or_replaced(tmp_path, data):
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(UnicodeDecodeError):
        read_text(tmp_path / "f")
    assert "\ufffd" in read_text(tmp_path / "f", "replace")


RECIPE = """system = "cirag"
optimizer = "trajectory_distillation"
[lm]
teacher = "annotations"
student = "embedded"
[[data]]
dataset = "demo"
"""
ROW = {"messages": [{"role": "user", "content": "ä"}, {"role": "assistant", "content": "b"}]}


def _manifest(path):
    (path.parent / "manifest.json").write_bytes(path.read_bytes())
    return Manifest.read(path.parent).embedder["name"]


def _rows_of_a_run(path):
    run = RunFolder(path.parent)
    run.rows_file.write_bytes(path.read_bytes())
    return [row["id"] for row in run.rows()]


READERS = {
    "recipe": (RECIPE, lambda path: read_recipe(path).name, "f"),
    "grid": ('system = "cirag"\n[[variants]]\nname = "ä"\n', lambda path: str(read_grid(path)).count("ä") > 0, True),
    "json": ('{"a": "ä"}', lambda path: read_json(path, "again"), {"a": "ä"}),
    "chat rows": (json.dumps(ROW), lambda path: read_rows(path)[0]["messages"], ROW["messages"]),
    "benchmark, list": ('[{"a": 1}]', read_records, [{"a": 1}]),
    "benchmark, lines": ('{"a": 1}\n\n{"a": 2}', read_records, [{"a": 1}, {"a": 2}]),
    "traces": ('{"manifest": {"a": 1}}\n', lambda path: read_trajectories(path), ({"a": 1}, [])),
    "manifest": (json.dumps(vars(Manifest.of(FakeEncoder()))), _manifest, "fake"),
    "rows of a run": ('{"id": "q1"}\n', _rows_of_a_run, ["q1"]),
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("name", READERS)
def test_whatever_is_read_may_have_a_byte_order_mark(tmp_path, name, encoding):
    content, read, expected = READERS[name]
    (tmp_path / "f.toml").write_bytes(content.replace("\n", "\r\n").encode(encoding))
    assert read(tmp_path / "f.toml") == expected


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain ö 北京 👩‍👩‍👧", "plain ö 北京 👩‍👩‍👧"),
        (os.fsdecode(b"caf\xe9.txt"), r"caf\xe9.txt"),
        ("two\nlines\t\x1b[31m", r"two\nlines\t\x1b[31m"),
        ("gpj.\u202etxt", r"gpj.\u202etxt"),
        ("half \ud83d", r"half \ud83d"),
        ("-rf", "-rf"),
    ],
)
def test_names_are_printed_in_one_line(name, shown):
    assert printable(name) == shown
    printable(name).encode()
