"""Where the rows of a data set come from: the official files in a folder, one given file, or the Hugging Face hub."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cirag_dspy.benchmarks.rows import RawRow, raw_rows, read_records
from cirag_dspy.errors import DataError
from cirag_dspy.schema import Passage

# File names to look for, in this order; the data set's own names first.
_FILES = {
    "hotpotqa": ("hotpot_{split}_{setting}_v1.json", "hotpot_{split}_v1.1.json"),
    "2wikimultihopqa": (),
    "musique": ("musique_ans_v1.0_{split}.jsonl", "musique_full_v1.0_{split}.jsonl"),
    "nq": ("NQ-open.{split}.jsonl",),
    "webquestions": (),
    "bamboogle": (),
}
_ANY_FILE = ("{split}.json", "{split}.jsonl")

# Hub repository and the name there of each of our splits, as far as they have labels.
_HUB = {
    "hotpotqa": ("hotpotqa/hotpot_qa", {"train": "train", "dev": "validation"}),
    "2wikimultihopqa": ("framolfese/2WikiMultihopQA", {"train": "train", "dev": "validation"}),
    "musique": ("dgslibisey/MuSiQue", {"train": "train", "dev": "validation"}),
    "nq": ("google-research-datasets/nq_open", {"train": "train", "dev": "validation"}),
    "webquestions": ("stanfordnlp/web_questions", {"train": "train", "test": "test"}),
    "bamboogle": ("chiayewken/bamboogle", {"test": "test"}),
}


def file_names(name: str, split: str, setting: str) -> list[str]:
    """The file names under which a split is looked for."""
    return [template.format(split=split, setting=setting) for template in (*_FILES[name], *_ANY_FILE)]


def find_file(name: str, split: str, setting: str, folder: Path) -> Path:
    """The split's file in ``folder`` or in ``folder/NAME``.

    Raises:
        DataError: There is none; lists what was looked for.
    """
    names = file_names(name, split, setting)
    for place in (folder, folder / name):
        for candidate in names:
            if (place / candidate).is_file():
                return place / candidate
    raise DataError(f"{folder}: no file of {name} {split} here or in {name}/; looked for {', '.join(names)}")


def file_rows(path: Path) -> tuple[list[RawRow], str]:
    """The rows of a file, and the file with its SHA-256 as the source of a run."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    return list(raw_rows(read_records(path), path.name)), described(path)


def described(path: Path) -> str:
    """A file as reports name it: path and SHA-256."""
    return f"{path} sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def hub_rows(name: str, split: str, setting: str) -> tuple[list[RawRow], str]:
    """The rows of a data set on the Hugging Face hub, and its id and revision.

    Raises:
        DataError: The hub copy has no such split, or the hub cannot be reached and nothing is cached.
    """
    repository, splits = _HUB[name]
    if split not in splits:
        raise DataError(
            f"{name}: no {split} questions with answers are published ({repository}); use {' or '.join(splits)}"
        )
    import datasets

    try:
        table: Any = datasets.load_dataset(repository, setting if name == "hotpotqa" else None, split=splits[split])
    except Exception as error:  # the hub's errors have no common base: offline, not found, proxy, damaged cache
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        unset = " or unset HF_HUB_OFFLINE" if os.environ.get("HF_HUB_OFFLINE") else ""
        raise DataError(
            f"{name} {split}: {repository} cannot be loaded from the Hugging Face hub ({why}); pass --data-dir "
            f"with the official files ({', '.join(file_names(name, split, setting))}){unset}"
        ) from error
    return list(raw_rows(table, repository)), f"{repository}@{_revision(table)}"


def _revision(table: Any) -> str:
    """The commit that the table was downloaded at, as its download record has it."""
    record = " ".join(map(str, getattr(getattr(table, "info", None), "download_checksums", None) or {}))
    found = re.search(r"@([0-9a-f]{40})", record)
    return found.group(1) if found else "unknown"


def read_corpus(path: Path) -> list[Passage]:
    """Passages of a corpus file: a JSON list or JSON lines of ``{title, text}`` (HippoRAG's layout).

    ``paragraph_text`` or a list of ``sentences`` may stand for ``text``; an ``id`` of the row's own is kept.
    """
    passages = []
    for row in file_rows(path)[0]:
        id = next((str(row.fields[key]) for key in ("id", "_id") if row.has(key)), None)
        text: str | Sequence[str]
        if row.has("sentences"):
            text = row.strings("sentences")
        else:
            text = row.text("paragraph_text") if row.has("paragraph_text") else row.text("text")
        passages.append(Passage.create(row.text("title", ""), text, id))
    if not passages:
        raise DataError(f"{path}: the corpus is empty")
    return passages


def read_aliases(folder: Path) -> dict[str, list[str]]:
    """2Wiki's ``id_aliases.json`` in ``folder``: aliases and demonyms by Wikidata id; empty where there is no file."""
    path = folder / "id_aliases.json"
    if not path.is_file():
        return {}
    return {row.text("q_id"): [*row.strings("aliases"), *row.strings("demonyms")] for row in file_rows(path)[0]}
