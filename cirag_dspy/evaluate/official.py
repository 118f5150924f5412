"""Prediction files that the official evaluation scripts of HotpotQA, 2WikiMultiHopQA and MuSiQue accept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cirag_dspy.benchmarks.base import Benchmark
from cirag_dspy.errors import DataError, RunError
from cirag_dspy.plain import dump

Row = Mapping[str, Any]

# The ending of each data set's prediction file.
FORMATS = {"hotpotqa": ".json", "demo": ".json", "2wikimultihopqa": ".json", "musique": ".jsonl"}


def official_row(row: Row, example: Any) -> dict[str, Any]:
    """A row of a run, with its citations turned into what the official scripts call support.

    Args:
        row: ``id``, ``answer``, ``error``, ``citations``, each with ``title``, ``sentence`` and ``passage_id``, and
            ``triples``, each head, relation and tail.
        example: The question, whose ``paragraphs`` give MuSiQue's index of each passage.
    """
    citations = row.get("citations") or ()
    return {
        "id": row["id"],
        "answer": None if row.get("error") else row.get("answer"),
        "supporting": [
            (citation["title"], citation["sentence"]) for citation in citations if citation["sentence"] is not None
        ],
        "evidences": row.get("triples") or [],
        "answerable": bool(row.get("answered", True)),
        "support_idxs": [
            example.paragraphs[c["passage_id"]] for c in citations if c["passage_id"] in example.paragraphs
        ],
    }


def require_format(dataset: str) -> None:
    """Raise DataError if the authors of a data set define no prediction file."""
    if dataset not in FORMATS:
        raise DataError(f"{dataset}: its authors define no prediction file ({', '.join(FORMATS)} have one)")


def run_file(dataset: str, folder: Path, name: str) -> Path:
    """Where ``write_run`` writes a run. Raises DataError if there is no file format for the data set."""
    require_format(dataset)
    return folder / f"{name}{FORMATS[dataset]}"


def write_run(benchmark: Benchmark, rows: Iterable[Row], folder: Path, name: str) -> Path:
    """Write the rows of a run over a benchmark as ``folder/name``, with the ending of the data set's format.

    In the order of the benchmark's questions, which is that of its file: MuSiQue's script wants that order.

    Raises:
        DataError: There is no official file format for the data set.
        RunError: The file can't be written.
    """
    path = run_file(benchmark.name, folder, name)
    by_id = {row["id"]: row for row in rows}
    found = [official_row(by_id[example.id], example) for example in benchmark.examples if example.id in by_id]
    try:
        return write_official(benchmark.name, found, path)
    except OSError as error:
        raise RunError(f"{path} can't be written: {error.strerror}; name another folder") from None


def write_official(dataset: str, rows: Iterable[Row], path: str | Path) -> Path:
    """Write the predictions of a run for the official script of a data set.

    Args:
        dataset: ``hotpotqa`` (or ``demo``), ``2wikimultihopqa`` or ``musique``.
        rows: One a question: ``id``, ``answer`` (``None`` for a failed question), and as far as known ``supporting``
            (``(title, sentence)`` pairs), ``evidences`` (triples), ``support_idxs`` (MuSiQue paragraph indices) and
            ``answerable``. MuSiQue's script wants them in the order of its gold file.
        path: File to write: JSON, for MuSiQue JSON lines. Its folder is made.

    Raises:
        DataError: There is no official file format for the data set.
    """
    require_format(dataset)
    rows = list(rows)
    if dataset == "musique":
        content = "".join(dump(_musique(row)) + "\n" for row in rows)
    else:
        content = dump(_hotpotqa(rows, evidence=dataset == "2wikimultihopqa"))
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content, encoding="utf-8")
    return target


def _hotpotqa(rows: Iterable[Row], evidence: bool) -> dict[str, dict[str, Any]]:
    """A failed question is left out of ``answer``: the scripts say that it is missing and count it as 0."""
    rows = list(rows)
    content: dict[str, dict[str, Any]] = {
        "answer": {row["id"]: row["answer"] for row in rows if row.get("answer") is not None},
        "sp": {row["id"]: [list(fact) for fact in row.get("supporting") or ()] for row in rows},
    }
    if evidence:
        content["evidence"] = {row["id"]: [list(triple) for triple in row.get("evidences") or ()] for row in rows}
    return content


def _musique(row: Row) -> dict[str, Any]:
    """A failed question stays as an empty answer: the script wants every question, in order."""
    return {
        "id": row["id"],
        "predicted_answer": row.get("answer") or "",
        "predicted_support_idxs": sorted({int(index) for index in row.get("support_idxs") or ()}),
        "predicted_answerable": bool(row.get("answerable", True)),
    }
