"""From a data set's name to a ``Benchmark``: find the rows, choose among them, read them, join them to a corpus."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cirag_dspy.benchmarks.base import Benchmark, assemble
from cirag_dspy.benchmarks.demo import demo_passages, demo_questions
from cirag_dspy.benchmarks.draw import Draw
from cirag_dspy.benchmarks.layouts import answers_of, is_answerable, is_open, parse, row_id
from cirag_dspy.benchmarks.recognise import check_questions, doubts
from cirag_dspy.benchmarks.rows import RawRow
from cirag_dspy.benchmarks.sources import described, file_rows, find_file, hub_rows, read_aliases, read_corpus
from cirag_dspy.errors import DataError
from cirag_dspy.files import path_errors
from cirag_dspy.schema import Passage

DATASETS = ("hotpotqa", "2wikimultihopqa", "musique", "nq", "webquestions", "bamboogle", "demo")
SPLITS = ("train", "dev", "test")
SETTINGS = ("distractor", "fullwiki")

T = TypeVar("T")

# Data sets that publish labelled questions under "test" only; papers report on those.
_TEST_FOR_DEV = ("webquestions", "bamboogle")


@path_errors(DataError)
def load_benchmark(
    name: str,
    split: str = "dev",
    *,
    data_dir: str | Path | None = None,
    data_file: str | Path | None = None,
    corpus: str | Path | Sequence[Passage] | None = None,
    limit: int | None = None,
    sample_seed: int = 0,
    first: bool = False,
    ids: Iterable[str] | None = None,
    setting: str = "distractor",
    unanswerable: bool = False,
) -> Benchmark:
    """Questions, gold and corpus of a data set.

    Args:
        name: One of ``DATASETS``.
        split: ``train``, ``dev`` or ``test``. WebQuestions and Bamboogle have no dev: theirs is ``test``.
        data_dir: Folder with the official files, looked for there and in its sub-folder ``name``. Without it and
            without ``data_file`` the data set is loaded from the Hugging Face hub.
        data_file: One file in any of the layouts of ``layouts``.
        corpus: Passages, or a file of ``{title, text}``, to search instead of the questions' own paragraphs.
        limit: Take only so many questions, drawn at random by ``sample_seed`` and kept in file order.
        sample_seed: Of the draw. The draw is in ``notes["draw"]``.
        first: Let ``limit`` take the first ones instead. Files may be sorted, so these are no sample.
        ids: Take only these questions; ``limit`` draws among them.
        setting: HotpotQA's ``distractor`` or ``fullwiki``.
        unanswerable: Keep the questions that a file says have no answer (``layouts.is_open``), to be abstained from;
            else rows with ``answerable`` false are skipped. Not both questions of a pair of MuSiQue-Full: among the
            paragraphs of all questions, which hold the passage that was taken out, both can be answered.

    Raises:
        DataError: A name that is not known, data that cannot be had, a row that is not in its layout, a split without
            labels, or a choice that leaves no question.
    """
    _check(name, split, setting)
    draw = Draw(limit, sample_seed, first)
    passages = read_corpus(Path(corpus)) if isinstance(corpus, str | Path) else corpus
    notes: dict[str, Any] = {"warnings": []}
    if isinstance(corpus, str | Path):
        notes["corpus"] = described(Path(corpus))
    if name == "demo":
        questions, source = demo_questions(split)
        chosen = _choose(questions, [question.id for question in questions], "demo", draw, ids, notes)
        return assemble(name, split, chosen, corpus=passages or demo_passages(), notes=notes, source=source)
    if name == "hotpotqa":
        notes["setting"] = setting
    file = Path(data_file) if data_file is not None else None
    published = "test" if split == "dev" and name in _TEST_FOR_DEV else split
    if file is None and data_dir is not None:
        file = _find(name, split, published, setting, Path(data_dir))
    rows, source = file_rows(file) if file is not None else hub_rows(name, published, setting)
    check_questions(rows, source)
    notes["warnings"] += doubts(name, published, rows, file.stem if file is not None else "")
    aliases = read_aliases(file.parent) if file is not None and name == "2wikimultihopqa" else {}
    if name == "2wikimultihopqa" and not any(row.has("answer_id") for row in rows):
        aliases = {}
    if name == "2wikimultihopqa":
        notes["aliases"] = "id_aliases.json" if aliases else "without aliases"
    if published != split and (file is None or file.stem == published):
        notes["warnings"].append(f"{name} has no dev split: these are its test questions")
    numbered = list(zip((row_id(row, f"{name}-{split}-{n}") for n, row in enumerate(rows)), rows, strict=True))
    answerable = [(id, row) for id, row in numbered if unanswerable or is_answerable(row)]
    if len(answerable) < len(numbered):
        notes["skipped_unanswerable"] = len(numbered) - len(answerable)
    _check_labels(name, split, [row for _, row in answerable if not (unanswerable and is_open(row))], source)
    chosen_rows = _choose(answerable, [id for id, _ in answerable], source, draw, ids, notes)
    if unanswerable:
        _check_pairs(chosen_rows, source)
    parsed = [parse(row, id, aliases, unanswerable=unanswerable) for id, row in chosen_rows]
    if unanswerable:
        notes["unanswerable"] = sum(not question.answerable for question in parsed)
    made = assemble(name, split, parsed, corpus=passages, notes=notes, source=source)
    if name == "hotpotqa" and setting == "distractor" and passages is None and made.notes["gold_missing"]:
        made.notes["setting"] = "fullwiki, at least in part"
        made.notes["warnings"].append(
            "the file is in the fullwiki setting, at least in part: its paragraphs lack gold; "
            "give the distractor file, or --corpus with passages that hold the gold"
        )
    return made


def _check(name: str, split: str, setting: str) -> None:
    if name not in DATASETS:
        raise DataError(f"unknown data set {name!r}; known are {', '.join(DATASETS)}")
    if split not in SPLITS:
        raise DataError(f"unknown split {split!r}; known are {', '.join(SPLITS)}")
    if setting not in SETTINGS:
        raise DataError(f"unknown setting {setting!r}; HotpotQA has {' and '.join(SETTINGS)}")
    if setting != "distractor" and name != "hotpotqa":
        raise DataError(f"setting {setting!r} is HotpotQA's; {name} has none")


def _find(name: str, split: str, published: str, setting: str, folder: Path) -> Path:
    """The split's file; where a data set has no dev of its own, somebody's ``dev.json`` before its test file."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; give the folder with the official files of {name}")
    try:
        return find_file(name, split, setting, folder)
    except DataError:
        if published == split:
            raise
        return find_file(name, published, setting, folder)


def _check_labels(name: str, split: str, rows: Sequence[RawRow], source: str) -> None:
    if rows and not any(answers_of(row) for row in rows):
        advice = "; its authors keep the labels back: use dev" if split == "test" else ""
        raise DataError(f"{name} {split} has no answers, so nothing can be scored ({source}){advice}")


def _check_pairs(rows: Sequence[tuple[str, RawRow]], source: str) -> None:
    """Refuse a question and its unanswerable twin, which the twin's paragraphs answer in a corpus of both."""
    paired = {id for id, row in rows if is_open(row)} & {id for id, row in rows if not is_open(row)}
    if paired:
        raise DataError(
            f"{len(paired)} questions, such as {min(paired)!r}, come twice, with an answer and without ({source}): "
            "in a corpus of both rows' paragraphs both can be answered; give a file with one row of each"
        )


def _choose(
    items: Sequence[T],
    names: Sequence[str],
    source: str,
    draw: Draw,
    ids: Iterable[str] | None,
    notes: dict[str, Any],
) -> list[T]:
    """The items with the wanted ids, and of them those of the draw, in file order; the draw is noted."""
    chosen = list(items)
    if ids is not None:
        wanted = set(ids)
        unknown = sorted(wanted.difference(names))
        if unknown:
            shown = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
            raise DataError(f"no examples with {len(unknown)} of the {len(wanted)} ids: {shown} ({source})")
        chosen = [item for item, name in zip(items, names, strict=True) if name in wanted]
    if not chosen:
        raise DataError(f"no examples in {source}")
    notes["draw"] = draw.record(len(chosen))
    if warning := draw.warning(len(chosen)):
        notes["warnings"].append(warning)
    return [chosen[index] for index in draw.indices(len(chosen))]
