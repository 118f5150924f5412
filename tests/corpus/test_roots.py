"""Sources are named relative to the folder or file they come from, and known again where that has moved."""

import json
import os
import shutil

import pytest

from cirag_dspy.corpus.ingest import Document, read_corpus
from cirag_dspy.schema import Extraction, Passage


def write(folder, **texts):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
    return folder


def texts(index):
    return {passage.text for passage in index.pending()}


def test_a_folder_that_has_moved_is_known_again(tmp_path, index):
    index.add(read_corpus(write(tmp_path / "notes", a="Ann is the mayor.", b="Old text.", c="Same text.")))
    for place in ("papers", "else/where/notes"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(next(iter(index.roots().paths.values())), tmp_path / place)
        (tmp_path / place / "a.txt").write_text(f"Bob is the mayor, says {place}.")
        (tmp_path / place / "b.txt").unlink(missing_ok=True)
        index.add(read_corpus(tmp_path / place))
        assert texts(index) == {f"Bob is the mayor, says {place}.", "Same text."}
    assert index.sources() == {"notes/a.txt": 1, "notes/c.txt": 1}
    assert index.roots().paths == {"notes": f"{tmp_path}/else/where/notes/"} and index.roots().gone() == []


def test_two_folders_with_the_same_names_stay_apart_and_move_apart(tmp_path, index):
    for place in ("x", "y"):
        index.add(read_corpus(write(tmp_path / place / "docs", a=f"A of {place}.", b=f"B of {place}.")))
    assert index.sources() == {"docs/a.txt": 1, "docs/b.txt": 1, "docs (2)/a.txt": 1, "docs (2)/b.txt": 1}
    (tmp_path / "new").mkdir()
    for place in ("x", "y"):
        shutil.move(tmp_path / place, tmp_path / "new" / place)
    for place in ("y", "x"):
        assert index.add(read_corpus(tmp_path / "new" / place / "docs")).unchanged == 2
    assert len(index) == 4
    assert index.roots().paths == {"docs": f"{tmp_path}/new/x/docs/", "docs (2)": f"{tmp_path}/new/y/docs/"}


def test_another_folder_is_no_moved_one(tmp_path, index):
    index.add(read_corpus(write(tmp_path / "one", readme="Of one.", a="A.")))
    shutil.rmtree(tmp_path / "one")
    index.add(read_corpus(write(tmp_path / "two", readme="Of two.", b="B.")))
    assert texts(index) == {"Of one.", "A.", "Of two.", "B."}
    assert index.roots().gone() == ["one/"]
    assert index.remove("one/") == 2 and list(index.roots().paths) == ["two"]


@pytest.mark.parametrize(
    "spelling", ["notes", "notes/", "./notes", "../work/notes", "link", "notes/sub/..", "{tmp}/notes"]
)
def test_one_folder_however_it_is_spelt(tmp_path, monkeypatch, index, spelling):
    write(tmp_path / "work" / "notes" / "sub", a="Text.")
    (tmp_path / "work" / "link").symlink_to("notes")
    monkeypatch.chdir(tmp_path / "work")
    index.add(read_corpus("notes"))
    assert index.add(read_corpus(spelling.format(tmp=tmp_path / "work"))).unchanged == 1
    assert index.sources() == {"notes/sub/a.txt": 1}


def test_parts_of_a_folder(tmp_path, index):
    # A folder or file within a known one has its names; a folder takes over what was read from within it before.
    write(tmp_path / "notes", top="Top.")
    write(tmp_path / "notes" / "sub", a="A.", b="B.")
    index.add(read_corpus(tmp_path / "notes" / "sub"))
    index.add(read_corpus(tmp_path / "notes" / "top.txt"))
    assert index.sources() == {"sub/a.txt": 1, "sub/b.txt": 1, "top.txt": 1}
    assert index.add(read_corpus(tmp_path / "notes")).unchanged == 3
    assert index.sources() == {"notes/sub/a.txt": 1, "notes/sub/b.txt": 1, "notes/top.txt": 1}
    (tmp_path / "notes" / "sub" / "b.txt").unlink()
    (tmp_path / "notes" / "top.txt").unlink()
    assert index.add(read_corpus(tmp_path / "notes" / "sub")).removed == 1
    assert index.sources() == {"notes/sub/a.txt": 1, "notes/top.txt": 1} and index.roots().gone() == ["notes/top.txt"]
    assert index.add(read_corpus(tmp_path / "notes")).removed == 1


def test_a_file_that_moved_and_one_that_is_another(tmp_path, index):
    rows = tmp_path / "a" / "c.jsonl"
    rows.parent.mkdir()
    rows.write_text('{"id": 1, "text": "One."}\n{"id": 2, "text": "Two."}\n')
    index.add(read_corpus(rows))
    (tmp_path / "b").mkdir()
    rows = rows.rename(tmp_path / "b" / "c.jsonl")
    rows.write_text('{"id": 1, "text": "One."}\n')
    index.add(read_corpus(rows))
    assert texts(index) == {"One."} and index.sources() == {"c.jsonl": 1}
    rows.unlink()
    other = tmp_path / "a" / "c.jsonl"
    other.write_text('{"id": 1, "text": "Another."}\n')
    index.add(read_corpus(other))
    assert index.sources() == {"c.jsonl": 1, "c.jsonl (2)": 1} and index.roots().gone() == ["c.jsonl"]


def test_rows_within_a_folder_are_not_the_folder_s_to_remove(tmp_path, index):
    write(tmp_path / "notes", a="A.")
    (tmp_path / "notes" / "c.jsonl").write_text('{"id": 1, "text": "One."}\n')
    for _ in range(2):
        index.add(read_corpus(tmp_path / "notes" / "c.jsonl"))
        index.add(read_corpus(tmp_path / "notes"))
    assert index.sources() == {"c.jsonl": 1, "notes/a.txt": 1}


def test_absolute_sources_of_an_older_index_are_taken_over(tmp_path, index):
    notes = write(tmp_path / "notes", a="A.", b="B.")
    single = write(tmp_path / "other", s="S.") / "s.txt"
    rows = tmp_path / "c.jsonl"
    rows.write_text('{"id": 7, "text": "Row."}\n')
    made = [Passage.create(name, f"{name.upper()}.") for name in "abs"]
    index.add(
        [
            Document(f"{notes}/a.txt", (made[0],), f"{notes}/"),
            Document(f"{notes}/b.txt", (made[1],), f"{notes}/"),
            Document(str(single), (made[2],)),
            Document(f"{rows}#7", (Passage.create("", "Row.", "7"),), str(rows)),
            Document("a-benchmark-id", (Passage.create("", "Untouched."),)),
        ]
    )
    for passage in index.pending():
        index.keep(passage.id, Extraction("empty"))
    with index._store.transaction() as connection:
        connection.execute("DELETE FROM meta WHERE key = 'roots'")
    roots = index.roots()
    assert roots.renamed == 4 and index.roots().renamed == 0
    assert index.sources() == {"a-benchmark-id": 1, "c.jsonl": 1, "notes/a.txt": 1, "notes/b.txt": 1, "s.txt": 1}
    for path in (notes, single, rows):
        assert vars(index.add(read_corpus(path)))["added"] == 0
    assert index.counts()["empty"] == len(index) == 5
    (notes / "b.txt").unlink()
    assert index.add(read_corpus(notes)).removed == 1


def test_removing_by_name_and_by_path(tmp_path, monkeypatch, index):
    write(tmp_path / "notes", a="A.", b="B.", c="C.")
    (tmp_path / "c.jsonl").write_text('{"id": 1, "text": "One."}\n{"id": 2, "text": "Two."}\n')
    index.add(read_corpus(tmp_path / "notes"))
    index.add(read_corpus(tmp_path / "c.jsonl"))
    monkeypatch.chdir(tmp_path)
    assert index.remove("notes/a.txt") == 1
    assert index.remove(f"{tmp_path}/notes/b.txt") == 1
    assert index.remove("c.jsonl#1") == 1
    assert index.remove("./c.jsonl") == 1
    assert index.remove("nothing") == 0
    assert index.sources() == {"notes/c.txt": 1} and list(index.roots().paths) == ["notes"]
    assert index.remove("notes") == 1 and index.roots().paths == {}


def test_ids_are_those_of_their_file(tmp_path, index):
    for name in "abc":
        text = "Same." if name == "c" else f"Of {name}."
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"id": 1, "text": text}) + '\n{"id": 2, "text": "Same."}\n')
        index.add(read_corpus(tmp_path / f"{name}.jsonl"))
    ids = {p.id: p.text for p in index.pending()}
    assert ids == {"1": "Of a.", "2": "Same.", "b.jsonl#1": "Of b.", "c.jsonl#1": "Same."}
    assert index.sources_of(["b.jsonl#1", "2"]) == {
        "b.jsonl#1": ["b.jsonl#1"],
        "2": ["a.jsonl#2", "b.jsonl#2", "c.jsonl#2"],
    }
    # In any order, and without the file that came first, ids stay.
    for name in "cba":
        assert index.add(read_corpus(tmp_path / f"{name}.jsonl")).unchanged == 2
    index.remove("a.jsonl")
    index.add(read_corpus(tmp_path / "b.jsonl"))
    assert {p.id for p in index.pending()} == {"2", "b.jsonl#1", "c.jsonl#1"}
    # A text that two files share and one changes.
    (tmp_path / "b.jsonl").write_text('{"id": 1, "text": "Of b."}\n{"id": 2, "text": "New."}\n')
    index.add(read_corpus(tmp_path / "b.jsonl"))
    assert {p.id: p.text for p in index.pending()}["b.jsonl#2"] == "New."


def test_an_id_twice_in_one_file_is_named_and_the_rest_goes_on(tmp_path, index):
    path = tmp_path / "c.jsonl"
    path.write_text('{"id": 1, "text": "One."}\n{"id": 1, "text": "Other."}\n{"id": 2, "text": "Two."}\n')
    errors = []
    report = index.add(read_corpus(path), on_error=errors.append)
    assert [str(error)[:30] for error in errors] == ["c.jsonl#1: passage id 1 is alre"[:30]]
    assert texts(index) == {"One.", "Two."} and vars(report) == {"added": 2, "unchanged": 0, "removed": 0, "skipped": 0}


def read(path, errors):
    return read_corpus(path, on_error=lambda error: errors.append(str(error)))


def test_what_cannot_be_read_now_keeps_its_passages(tmp_path, index):
    write(tmp_path / "notes", a="A.", b="B.", gone="Gone.")
    write(tmp_path / "notes" / "closed", c="C.")
    index.add(read_corpus(tmp_path / "notes"))
    (tmp_path / "notes" / "a.txt").write_bytes(b"caf\xe9")
    (tmp_path / "notes" / "gone.txt").unlink()
    (tmp_path / "notes" / "image.txt").write_bytes(bytes(range(256)))
    index.add(read(tmp_path / "notes", errors := []))
    assert texts(index) == {"A.", "B.", "C."}
    assert [error.split(": ")[0] for error in errors] == [f"{tmp_path}/notes/{n}.txt" for n in ("a", "image")]


@pytest.mark.parametrize("closed", ["notes/closed", "notes"])
def test_a_folder_that_may_not_be_entered_keeps_its_passages(tmp_path, monkeypatch, index, closed):
    write(tmp_path / "notes" / "closed", c="C.")
    index.add(read_corpus(write(tmp_path / "notes", a="A.")))
    scandir = os.scandir

    def refuse(path):
        if os.fspath(path) == str(tmp_path / closed):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)  # the tests may run as root, who may enter everything
    index.add(read(tmp_path / "notes", errors := []))
    assert errors == [f"{tmp_path}/{closed}: cannot be read: Permission denied"]
    assert texts(index) == {"A.", "C."} and index.roots().gone() == []


def test_a_bad_row_keeps_what_the_file_had(tmp_path, index):
    path = tmp_path / "c.jsonl"
    path.write_text('{"id": 1, "text": "One."}\n{"id": 2, "text": "Two."}\n')
    index.add(read_corpus(path))
    path.write_bytes(
        b'{"id": 1, "text": "New."}\n{"id": 2, "text": \n{"text": "caf\xe9"}\n{"id": 3, "text": "Three."}\n'
    )
    index.add(read(path, errors := []))
    assert texts(index) == {"New.", "Two.", "Three."}
    assert [error.split(": ")[0] for error in errors] == [f"{path}:2", f"{path}:3"]
    path.write_text('{"id": 3, "text": "Three."}\n')
    index.add(read(path, errors := []))
    assert texts(index) == {"Three."} and errors == []


@pytest.mark.parametrize(
    "name", [b"caf\xe9.txt", b"two\nlines.txt", b"-rf.txt", "👩‍👩‍👧 Ö.txt".encode(), b"\x1b[31m.txt", b"c#1.txt"]
)
def test_names_of_any_bytes(tmp_path, index, name):
    folder = os.path.join(os.fsencode(tmp_path), b"d\xff")
    os.mkdir(folder)
    with open(os.path.join(folder, name), "w") as file:
        file.write("Text.")
    for _ in range(2):
        index.add(read_corpus(os.fsdecode(folder)))
        index.add(read_corpus(os.fsdecode(os.path.join(folder, name))))
    assert len(index) == 1 and list(index.roots().paths) == [r"d\xff"] and index.roots().gone() == []
    (source,) = index.sources()
    assert "\n" not in source and source.encode() and source.startswith(r"d\xff/")
    assert index.remove(source) == 1
