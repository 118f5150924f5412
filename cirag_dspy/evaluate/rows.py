"""A question's row: asked, scored, costed; and the summary of many."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

import dspy

from cirag_dspy.benchmarks.gold import title_key
from cirag_dspy.errors import ModelError
from cirag_dspy.evaluate.metrics import answer_scores, gold_answers, string_accuracy
from cirag_dspy.evaluate.outcome import label, outcome, told
from cirag_dspy.evaluate.retrieval import all_recall_at, answer_recall_at, recall_at
from cirag_dspy.lms.meter import COUNTS, LMMeter
from cirag_dspy.modules.extract import FATAL

Row = dict[str, Any]

RECALL_AT = (2, 3, 5, 10)
KEPT_PASSAGES = 20
RECALLS = ("recall", "all_recall", "title_recall", "answer_recall")


def answer_one(system: Any, example: dspy.Example, *, latency: bool = False, abstain: bool = False) -> Row:
    """Ask one question; the row holds its answer, scores, cost and trajectory, or its error.

    Whatever one question makes the system raise or return is its row's alone, but for Ctrl-C and errors that no other
    question would escape.

    Args:
        system: Called with ``question``.
        example: The question.
        latency: Whether nothing else runs meanwhile; only then do ``seconds`` compare with others.
        abstain: Whether a guess that the system does not stand by (``answered`` false) is left out and scored as no
            answer.
    """
    meter = LMMeter()
    started = time.perf_counter()
    found, error = outcome({}), ""
    try:
        with meter.context():
            prediction = system(question=example.question)
    except (*FATAL, ModelError, KeyboardInterrupt):  # no other question would fare better
        raise
    except BaseException as exception:  # sys.exit() and a cancelled task are a fault of one question, too
        error = told(exception)
    seconds = time.perf_counter() - started
    if not error:
        try:
            found = outcome(prediction)
        except Exception as exception:
            error = told(exception)
    answered, passages = found["answered"] and not error, found["passages"]
    answer = found["answer"] if answered or not abstain else ""
    answerable = example.get("answerable", True)
    scores = {"em": 0.0, "f1": 0.0}
    if not answerable:  # right is to abstain
        scores = dict.fromkeys(scores, float(not answered and not error))
    elif not error:
        scores = answer_scores(example.dataset, answer, example)
    gold, missing = list(example.get("gold_passages") or ()), int(example.get("gold_missing") or 0)
    with_gold = bool(gold or missing) and answerable
    return {
        "id": example.id,
        "question": example.question,
        "type": label(example.get("type")),
        "gold": gold_answers(example) if answerable else [],
        "answer": answer,
        "answered": answered,
        **({} if answerable else {"answerable": False}),
        "level": found["level"],
        "em": float(scores["em"]),
        "f1": float(scores["f1"]),
        "str_acc": float(scores["em"]) if error or not answerable else string_accuracy(answer, example),
        "recall": _at(recall_at(passages, gold, RECALL_AT, missing=missing)) if with_gold else {},
        "all_recall": _at(all_recall_at(passages, gold, RECALL_AT, missing=missing)) if with_gold else {},
        "title_recall": _at(_title_recall(system, passages, example)) if answerable else {},
        "answer_recall": {}
        if with_gold or not answerable
        else _at(_answer_recall(system, passages, gold_answers(example))),
        "gold_passages": gold,
        "gold_missing": missing,
        "passages": passages[:KEPT_PASSAGES],
        "citations": found["citations"],
        "hops": found["hops"],
        "triples": found["triples"],
        "stopped": found["stopped"],
        "lm": meter.snapshot(),
        "seconds": round(seconds, 3),
        "latency": latency,
        "error": error,
    }


def summarise(rows: Sequence[Row]) -> dict[str, Any]:
    """Means over all rows (a failed question scores 0), levels with their own scores, and what it cost.

    Scores are of the questions that have an answer, as in MuSiQue's official script. ``abstention`` says how often the
    system answered and how good these answers were, and of unanswerable questions how many it rightly left open.
    """
    n = len(rows)
    if not n:
        return {"n": 0}
    answered = [row for row in rows if not row["error"]]
    scored = {name: [row for row in rows if row.get(name)] for name in RECALLS}
    totals = {name: sum(row["lm"].get(name, 0) for row in rows) for name in COUNTS}
    return {
        "n": n,
        "errors": n - len(answered),
        "empty_answers": sum(not row["answer"] for row in answered),
        **_scores(rows),
        **abstention(rows),
        **{
            name: {f"@{k}": _mean([row[name][k] for row in found]) for k in recall_ranks(found, name)}
            for name, found in scored.items()
        },
        "questions_with_gold_passages": len(scored["recall"]),
        "levels": _by(answered, "level"),
        "types": _by(rows, "type"),
        "stopped": {key: sum(label(row["stopped"]) == key for row in answered) for key in _values(answered, "stopped")},
        "hops": _mean([float(len(row["hops"])) for row in answered]),
        "unreadable_hops": sum(bool(hop["error"]) for row in answered for hop in row["hops"]),
        "lm": totals,
        "lm_per_question": {key: round(value / n, 2) for key, value in totals.items()},
        "lm_by_module": _modules(rows),
        **_judging(rows),
        **_seconds(rows),
    }


def has_answer(row: Row) -> bool:
    """Whether a row's question has an answer; of rows that say nothing of it, it has."""
    return bool(row.get("answerable", True))


def abstention(rows: Sequence[Row]) -> dict[str, Any]:
    """How often the system answered, and how well where it did; of rows of an older version, nothing."""
    if not all("answered" in row for row in rows):
        return {}
    with_answer = [row for row in rows if has_answer(row)]
    without = [row for row in rows if not has_answer(row)]
    given = [row for row in with_answer if row["answered"]]
    found: dict[str, Any] = {
        "answered": len(given),
        "of": len(with_answer),
        "coverage": _mean([float(row["answered"]) for row in with_answer]),
        "em_answered": _mean([row["em"] for row in given]),
        "f1_answered": _mean([row["f1"] for row in given]),
    }
    if without:
        right = [row["em"] for row in without]
        found |= {"unanswerable": len(without), "rightly_abstained": int(sum(right)), "em_unanswerable": _mean(right)}
    return {"abstention": found}


def recall_ranks(rows: Sequence[Row], name: str) -> list[str]:
    """The ranks that every row has a recall of this name at: of rows that an older version wrote, fewer."""
    return [str(k) for k in RECALL_AT if rows and all(str(k) in row[name] for row in rows)]


def is_timed(rows: Sequence[Row]) -> bool:
    """Whether the seconds of rows say something: one question at a time, no cache, warmed up, for all of them."""
    return bool(rows) and all(row.get("latency") for row in rows)


def _title_recall(system: Any, passages: Sequence[str], example: dspy.Example) -> dict[int, float]:
    """Recall of the gold titles among those of the passages, each title at its first rank; of data sets whose gold is
    titles. Where a page is several passages, or the corpus is another one, its passage ids say less.
    """
    titles = list(dict.fromkeys(map(title_key, example.get("gold_titles") or ())))
    index = getattr(system, "index", None)
    if not titles or index is None:
        return {}
    found = index.passages(passages[: max(RECALL_AT)])
    return recall_at([title_key(found[id].title) if id in found else "" for id in passages], titles, RECALL_AT)


def _answer_recall(system: Any, passages: Sequence[str], answers: Sequence[str]) -> dict[int, float]:
    """Whether a retrieved passage holds an answer: what open-domain sets have instead of gold passages."""
    index = getattr(system, "index", None)
    found = index.passages(passages[: max(RECALL_AT)]) if index is not None else {}
    return answer_recall_at([passage.text for passage in found.values()], answers, RECALL_AT)


def _at(scores: Mapping[int, float]) -> dict[str, float]:
    return {str(k): value for k, value in scores.items()}


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4) if values else 0.0


def _values(rows: Sequence[Row], key: str) -> list[str]:
    return sorted({name for row in rows if (name := label(row[key]))})


def _by(rows: Sequence[Row], key: str) -> dict[str, Any]:
    groups = {value: [row for row in rows if label(row[key]) == value] for value in _values(rows, key)}
    return {value: {"n": len(group), **_scores(group), **_effort(group)} for value, group in groups.items()}


def _effort(rows: Sequence[Row]) -> dict[str, float]:
    """Mean tokens, prompts and replies together, of a question (D2F-ReAG's table 2), and seconds where they count."""
    tokens = [float(row["lm"]["prompt_tokens"] + row["lm"]["completion_tokens"]) for row in rows]
    return {"tokens": _mean(tokens)} | ({"seconds": _mean([row["seconds"] for row in rows])} if is_timed(rows) else {})


def _seconds(rows: Sequence[Row]) -> dict[str, Any]:
    """Mean and median seconds of a question, where they were taken one at a time."""
    if not is_timed(rows):
        return {}
    seconds = [row["seconds"] for row in rows]
    return {"seconds_per_question": {"mean": round(fmean(seconds), 3), "median": round(median(seconds), 3)}}


def _scores(rows: Sequence[Row]) -> dict[str, float]:
    """Means of the answer scores, ``llm_acc`` over the rows that were judged, if any."""
    rows = [row for row in rows if has_answer(row)] or rows
    scores = {name: [row[name] for row in rows if name in row] for name in ("em", "f1", "str_acc", "llm_acc")}
    return {name: _mean(values) for name, values in scores.items() if values}


def _judging(rows: Sequence[Row]) -> dict[str, Any]:
    """How many answers were judged, how many verdicts could not be read, and what judging cost."""
    judged = [row["judge"] for row in rows if "judge" in row]
    if not judged:
        return {}
    unreadable = sum(verdict["verdict"] == "unreadable" for verdict in judged)
    costs = {name: sum(verdict.get(name, 0) for verdict in judged) for name in COUNTS}
    return {"judging": {"judged": len(judged), "unreadable": unreadable, **costs}}


def _modules(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    total: dict[str, dict[str, int]] = {}
    for row in rows:
        for module, counts in row["lm"].get("by_module", {}).items():
            kept = total.setdefault(module, dict.fromkeys(counts, 0))
            for key, value in counts.items():
                kept[key] = kept.get(key, 0) + value
    return total
