"""Files to documents: folders of text, JSON Lines, JSON and tab-separated values, read as a stream."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cirag_dspy.corpus.cutting import PASSAGE_WORDS, cut, pack, size
from cirag_dspy.corpus.markdown import read_markdown
from cirag_dspy.corpus.rows import READERS, not_text, read_rows
from cirag_dspy.errors import DataError
from cirag_dspy.files import path_errors, printable, read_text
from cirag_dspy.schema import Passage

TEXTS = (".txt", ".md")
# Called with what is wrong with a file or a row that is passed over.
OnError = Callable[[DataError], None]


@dataclass(frozen=True)
class Document:
    """A source of the corpus (a file, or a row of one) and all its passages, in order.

    Args:
        source: Its name in the index.
        passages: Its passages.
        file: The file that the source is a row of, or the folder (its name ends with a slash) that it is a file of:
            once that was read to its end, sources that did not come again leave the index. Sources without one are
            only replaced or removed by name.
        root: The folder or file, by its absolute path, that was read for it: ``source`` and ``file`` begin with the
            name of its last part, and an index may put another name there to keep two roots of one name apart.
        unread: It could not be read now: what the index has of it stays.
    """

    source: str
    passages: tuple[Passage, ...]
    file: str | None = None
    root: Path | None = None
    unread: bool = False


@path_errors(DataError)
def read_corpus(path: str | Path, *, on_error: OnError | None = None, cut_rows: bool = False) -> Iterator[Document]:
    """Documents of a corpus, in a fixed order.

    * A folder: its ``.txt`` and ``.md`` files at any depth; hidden files and links that lead outside are passed over.
      The title is the file's stem; of ``.md``, see `read_markdown`.
    * One ``.txt`` or ``.md`` file.
    * ``.jsonl``, ``.json`` (a list) or ``.tsv``: a row is a passage, see `read_rows`.

    Sources have names relative to what is read (``notes/sub/a.md`` of the folder ``notes``); that of a row is
    ``FILE#ID``. Texts are UTF-8, or UTF-16 or UTF-32 with a byte-order mark. Running text is cut into passages of
    whole sentences of about 120 words.

    Args:
        path: The folder or file.
        on_error: Called with the error of each file or row that cannot be read, which is passed over; what an index
            has of it from before stays. None raises it.
        cut_rows: Whether rows of more than 120 words are cut as running text is; otherwise a row is never cut.

    Raises:
        DataError: If there is nothing to read, or a file or row is not as it should be; it names file and line.
    """
    path = Path(path)
    if path.is_dir():
        return _folder(path, on_error)
    if not path.is_file():
        raise DataError(f"{printable(path)}: no such file or folder")
    kind = path.suffix.lower()
    if kind not in (*TEXTS, *READERS):
        raise DataError(
            f"{printable(path)}: not a corpus that can be read: name a folder, or a .txt, .md, .jsonl, .json or .tsv "
            "file"
        )
    root, name = path.resolve(), root_name(path)
    if kind in TEXTS:
        return iter([_text_document(path, partial(Document, name, root=root), on_error)])
    return _row_documents(path, partial(Document, file=name, root=root), on_error, cut_rows)


def root_name(path: Path) -> str:
    """The name that the sources of a folder or file begin with."""
    return printable(path.resolve().name) or "root"


def text_files(folder: Path, on_error: Callable[[OSError], None] | None = None) -> Iterator[tuple[str, Path]]:
    """The ``.txt`` and ``.md`` files of a folder with their names in it, sorted by folder and name."""
    root = folder.resolve()
    for parent, folders, names in os.walk(folder, onerror=on_error):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(parent, name)
            if name.startswith(".") or file.suffix.lower() not in TEXTS or _elsewhere(file, root):
                continue
            yield printable(file.relative_to(folder).as_posix()), file


def other_files(folder: Path) -> list[str]:
    """Files of a folder that ``read_corpus`` passes over for their kind, hidden ones left out."""
    found = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            file = Path(parent, name)
            if not name.startswith(".") and file.suffix.lower() not in TEXTS and os.path.isfile(file):  # noqa: PTH113
                found.append(printable(file.relative_to(folder).as_posix()))
    return sorted(found)


def _elsewhere(file: Path, root: Path) -> bool:
    """Whether a name is no file, or a link that leads out of the folder; what may not be looked at is neither."""
    try:
        return not file.is_file() or not file.resolve().is_relative_to(root)
    except OSError:
        return False


def _folder(folder: Path, on_error: OnError | None) -> Iterator[Document]:
    root, name = folder.resolve(), root_name(folder)
    closed: list[OSError] = []
    files = list(text_files(folder, closed.append))
    if not files and not closed:
        raise DataError(
            f"{printable(folder)}: no .txt or .md file in this folder: name a folder of texts, or a .jsonl file"
        )

    def documents() -> Iterator[Document]:
        for error in closed:
            place = Path(os.fsdecode(error.filename))
            _say(_unreadable(place, error), on_error)
            inside = printable(place.relative_to(folder).as_posix())
            yield Document(f"{name}/" if inside == "." else f"{name}/{inside}/", (), f"{name}/", root, unread=True)
        for relative, file in files:
            yield _text_document(file, partial(Document, f"{name}/{relative}", file=f"{name}/", root=root), on_error)

    return documents()


def _text_document(path: Path, make: Callable[..., Document], on_error: OnError | None) -> Document:
    try:
        text = read_text(path)
    except OSError as error:
        _say(_unreadable(path, error), on_error)
    except UnicodeDecodeError as error:
        _say(not_text(printable(path), error), on_error)
    else:
        title, paragraphs = printable(path.stem), None
        if path.suffix.lower() == ".md":
            page = read_markdown(text)
            title, paragraphs = page.title or title, page.paragraphs
        passages = cut(text) if paragraphs is None else pack(paragraphs)
        return make(passages=tuple(Passage.create(title, sentences) for sentences in passages))
    return make(passages=(), unread=True)


def _row_documents(
    path: Path, make: Callable[..., Document], on_error: OnError | None, cut_rows: bool
) -> Iterator[Document]:
    name = root_name(path)
    rows = read_rows(path)
    while True:
        try:
            row = next(rows, None)
        except DataError as error:
            row = error
        if row is None:
            return
        if isinstance(row, DataError):
            _say(row, on_error)
            yield make(source=name, passages=(), unread=True)
        else:
            yield make(source=f"{name}#{row.id}", passages=tuple(_cut_row(row)) if cut_rows else (row,))


def _cut_row(row: Passage) -> Iterator[Passage]:
    if size(row.text) <= PASSAGE_WORDS:
        yield row
        return
    parts = pack([[sentence] for sentence in row.sentences])
    for number, sentences in enumerate(parts, 1):
        yield Passage.create(row.title, sentences, f"{row.id}:{number}")


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(f"{printable(path)}: cannot be read: {error.strerror or error}")


def _say(error: DataError, on_error: OnError | None) -> None:
    if on_error is None:
        raise error
    on_error(error)
