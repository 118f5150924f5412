"""``index`` and ``sources`` over files that move, go and cannot be read."""

import json
import os
import shutil

import pytest
from typer.testing import CliRunner

from cirag_dspy.cli import app
from tests.corpus.fakes import FakeEncoder


class Encoder(FakeEncoder):
    def beyond_window(self, texts):
        return [max(0, len(text.split()) - 100) for text in texts]


@pytest.fixture(autouse=True)
def encoder(monkeypatch):
    monkeypatch.setattr("cirag_dspy.corpus.embedder.Embedder", lambda *args, **kwargs: Encoder())
    monkeypatch.setattr("cirag_dspy.corpus.index.Embedder", lambda *args, **kwargs: Encoder())


def cli(*arguments, code=0):
    done = CliRunner().invoke(app, [os.fspath(argument) for argument in arguments])
    assert done.exit_code == code, (done.output, done.exception)
    return done


@pytest.fixture
def notes(tmp_path):
    (tmp_path / "notes").mkdir()
    for name in "abc":
        (tmp_path / "notes" / f"{name}.txt").write_text(f"Text {name}.")
    return tmp_path / "notes"


def test_a_folder_that_moved_and_sources_that_are_gone(tmp_path, notes):
    single = tmp_path / "single.txt"
    single.write_text("Single.")
    cli("index", notes, single, "--out", tmp_path / "i")
    moved = shutil.move(notes, tmp_path / "papers")
    (tmp_path / "papers" / "a.txt").unlink()
    single.unlink()
    done = cli("index", moved, "--out", tmp_path / "i")
    assert f"note: notes has moved from {notes}/ to {moved}/" in done.stderr
    assert "note: 1 source gone from the disk (single.txt): their passages stay, --prune removes them" in done.stderr
    assert "3 passages (0 new, 2 unchanged, 1 removed)" in done.stdout
    assert cli("sources", tmp_path / "i").stdout.splitlines() == [
        "notes/b.txt: 1 passages",
        "notes/c.txt: 1 passages",
        "single.txt: 1 passages, gone from the disk",
        f"notes is {moved}/",
        f"single.txt is {single}",
    ]
    shutil.rmtree(moved)
    # Nothing is given: only what is gone is removed.
    done = json.loads(cli("index", "--out", tmp_path / "i", "--prune", "--json").stdout)
    assert done["gone"] == ["notes/", "single.txt"] and done["passages"] == 0 and done["removed"] == 3


def test_listing_and_removing(tmp_path, notes):
    (tmp_path / "c.jsonl").write_text('{"id": 1, "text": "One."}\n{"id": 2, "text": "Two."}\n')
    cli("index", notes, tmp_path / "c.jsonl", "--out", tmp_path / "i")
    done = json.loads(
        cli("sources", tmp_path / "i", "--remove", "notes/a.txt", "--remove", notes / "b.txt", "--json").stdout
    )
    assert done["removed"] == 2
    assert done["sources"] == [
        {"name": "c.jsonl", "passages": 2, "gone": False},
        {"name": "notes/c.txt", "passages": 1, "gone": False},
    ]
    assert done["roots"] == {"notes": f"{notes}/", "c.jsonl": f"{tmp_path}/c.jsonl"}
    assert "2 passages removed" in cli("sources", tmp_path / "i", "--remove", "c.jsonl").stdout
    done = cli("sources", tmp_path / "i", "--remove", "nothing", code=2)
    assert done.stderr == f"error: no source nothing; cirag-dspy sources {tmp_path}/i lists them\n"


def test_one_bad_file_is_named_and_the_rest_goes_on(tmp_path, notes):
    (notes / "b.txt").write_bytes(b"caf\xe9")
    (notes / "image.md").write_bytes(bytes(range(256)))
    rows = tmp_path / "c.jsonl"
    rows.write_text('{"id": 1, "text": "One."}\n{"id": \n{"id": 1, "text": "Again."}\n')
    done = cli("index", notes, rows, "--out", tmp_path / "i", "--json", code=1)
    result = json.loads(done.stdout)
    assert result["passages"] == 3
    assert [line.split(": ")[0] for line in result["unread"]] == [
        f"{notes}/b.txt",
        f"{notes}/image.md",
        f"{rows}:2",
        "c.jsonl#1",
    ]
    assert "4 files or rows not read; what the index has of them stays" in done.stderr
    assert cli("index", notes, "--out", tmp_path / "j", "--dry-run", code=1).stderr.count("not read: ") == 2
    done = cli("index", notes / "b.txt", "--out", tmp_path / "k", code=2)
    assert done.stderr.count("\n") == 1 and "b.txt: not UTF-8" in done.stderr


def test_rows_that_the_embedder_does_not_read_to_the_end(tmp_path):
    rows = tmp_path / "c.jsonl"
    text = "A sentence has five words. " * 160 + "The fact."
    rows.write_text(json.dumps({"id": 7, "title": "Long", "text": text}) + '\n{"id": 8, "text": "Short."}\n')
    done = cli("index", rows, "--out", tmp_path / "i")
    assert "warning: 1 passage is longer than the embedder reads" in done.stderr
    assert "the first is Long (703 tokens too many); --cut cuts rows" in done.stderr
    done = json.loads(cli("index", rows, "--out", tmp_path / "i", "--cut", "--json").stdout)
    assert done["passages"] == 8 and done["removed"] == 1


@pytest.mark.parametrize("name", ["ö 北京".encode(), b"two\nlines"])
def test_an_index_of_any_name(tmp_path, notes, name):
    out = os.fsdecode(os.path.join(os.fsencode(tmp_path), name))
    shutil.copy(notes / "a.txt", os.path.join(os.fsencode(notes), b"caf\xe9.txt"))
    shutil.copy(notes / "a.txt", os.path.join(os.fsencode(notes), b"caf\xe9.pdf"))
    for _ in range(2):
        done = cli("index", notes, "--out", out)
        assert r"(caf\xe9.pdf)" in done.stderr and len(done.stdout.splitlines()) == 1
    listed = json.loads(cli("sources", out, "--json").stdout)["sources"]
    assert [row["name"] for row in listed] == ["notes/a.txt", "notes/b.txt", "notes/c.txt", r"notes/caf\xe9.txt"]


def test_nothing_to_do(tmp_path):
    assert "no corpus: name folders or files" in cli("index", "--out", tmp_path / "i", code=2).stderr
