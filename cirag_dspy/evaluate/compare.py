"""Runs beside each other: means with confidence intervals, paired differences to one of them, and what each costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
from scipy import stats

from cirag_dspy.errors import RunError
from cirag_dspy.evaluate.outcome import label
from cirag_dspy.evaluate.rows import Row, abstention, has_answer, is_timed, recall_ranks
from cirag_dspy.evaluate.variants import check_reference, passages_seen

Scores = dict[str, float | None]

CONFIDENCE, RESAMPLES, FLIPS = 0.95, 2000, 9999
RECALL_SHOWN = ("3", "5")
COMPARED = ("em", "f1")
RULES = {
    "interval": f"{CONFIDENCE:.0%}, percentile bootstrap over the questions, {RESAMPLES} resamples; of one: none",
    "difference": "mean of the differences to the reference on the questions that both have, its interval likewise",
    "p": f"two-sided paired permutation test of that mean: all flips of signs, or {FLIPS} at random where there are "
    "more; not corrected for the number of comparisons",
}


def compare(
    runs: Mapping[str, Sequence[Row]],
    *,
    against: str | None = None,
    seed: int = 0,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Compare the rows of several runs over the same questions.

    Args:
        runs: Rows by name, a row a question. A failed question counts as it does in a run's summary: it scores 0.
        against: The reference of the differences; default: the first.
        seed: Of resampling.
        settings: Those of each run's system, by name, for the passages that it sees.

    Returns:
        ``against``, ``seed``, ``rules``, and ``runs``: for each name ``n``, ``errors``, ``scores`` (``em``, ``f1``,
        ``str_acc``, ``llm_acc`` where it was judged, ``recall@K`` of passages and ``recall@K:title`` of titles, or
        ``answer_recall@K``, each ``mean``, ``low`` and ``high``, as shares of 1), ``cost`` (means a question, and the
        median of ``seconds`` where the run was one of ``--latency``), ``levels`` (how many answers are from each),
        ``passages`` (``k`` and ``read``, as ``passages_seen`` says), and, but for the reference, ``difference`` (``n``,
        and for ``em`` and ``f1`` also ``p``).

    Raises:
        RunError: ``against`` is none of the runs, or one of them has no rows.
    """
    against = check_reference(list(runs), against)
    if empty := [name for name, rows in runs.items() if not rows]:
        raise RunError(f"nothing to compare: {', '.join(empty)} has no questions")
    compared = {name: _described(rows, seed) for name, rows in runs.items()}
    for name, rows in runs.items():
        compared[name]["passages"] = passages_seen((settings or {}).get(name, {}))
        if name != against:
            compared[name]["difference"] = _difference(rows, runs[against], seed)
    return {"against": against, "seed": seed, "rules": dict(RULES), "runs": compared}


def interval(values: Sequence[float], seed: int = 0) -> tuple[float, float] | None:
    """Bootstrap confidence interval of a mean; of one value there is none."""
    if len(values) < 2:
        return None
    if min(values) == max(values):
        return values[0], values[0]
    found = stats.bootstrap(
        (np.asarray(values),),
        np.mean,
        confidence_level=CONFIDENCE,
        n_resamples=RESAMPLES,
        method="percentile",
        batch=100,  # so that many questions fit the memory
        rng=seed,
    ).confidence_interval
    return float(found.low), float(found.high)


def p_value(differences: Sequence[float], seed: int = 0) -> float:
    """Two-sided p-value of the mean of paired differences being 0: how often flipped signs give one as far from 0."""
    # A difference of 0 has no sign to flip; without them the flips of the others can more often be counted out.
    changed = np.asarray([value for value in differences if value])
    if len(changed) < 2:
        return 1.0
    test = stats.permutation_test(
        (changed,), np.mean, permutation_type="samples", n_resamples=FLIPS, batch=100, rng=seed
    )
    return float(test.pvalue)


def _described(rows: Sequence[Row], seed: int) -> dict[str, Any]:
    answered = [row for row in rows if not row["error"]]
    lms = [row["lm"] for row in rows]
    counted = ("calls", "cached", "prompt_tokens", "completion_tokens")
    cost = {key: round(math.fsum(lm.get(key, 0) for lm in lms) / len(rows), 2) for key in counted}
    seconds = {"seconds": round(median(row["seconds"] for row in rows), 3)} if is_timed(rows) else {}
    return {
        "n": len(rows),
        "errors": len(rows) - len(answered),
        "scores": score_intervals(rows, seed),
        "cost": cost | seconds,
        **abstention(rows),
        "levels": dict(sorted(Counter(name for row in answered if (name := label(row["level"]))).items())),
    }


def score_intervals(rows: Sequence[Row], seed: int = 0) -> dict[str, Scores]:
    """Mean of each score with its interval: what a run's summary and a comparison say."""
    return {name: _score(values, seed) for name, values in _columns(rows).items()}


def _columns(rows: Sequence[Row]) -> dict[str, list[float]]:
    """The values of each score; recalls only of the questions that have one."""
    rows = [row for row in rows if has_answer(row)] or rows  # of the questions that have an answer, if any has
    columns = {name: [row[name] for row in rows] for name in COMPARED}
    for name in ("str_acc", "llm_acc"):
        if all(name in row for row in rows):
            columns[name] = [row[name] for row in rows]
    for name, column in (
        ("recall", "recall@{}"),
        ("title_recall", "recall@{}:title"),
        ("answer_recall", "answer_recall@{}"),
    ):
        found = [row for row in rows if row.get(name)]
        for k in recall_ranks(found, name):
            if k in RECALL_SHOWN:
                columns[column.format(k)] = [row[name][k] for row in found]
    return columns


def _difference(rows: Sequence[Row], reference: Sequence[Row], seed: int) -> dict[str, Any]:
    rows = [row for row in rows if has_answer(row)] or rows
    others = {row["id"]: row for row in reference}
    pairs = [(row, others[row["id"]]) for row in rows if row["id"] in others]
    found: dict[str, Any] = {"n": len(pairs)}
    for name in COMPARED if pairs else ():
        values = [row[name] - other[name] for row, other in pairs]
        found[name] = _score(values, seed) | {"p": round(p_value(values, seed), 4)}
    return found


def _score(values: Sequence[float], seed: int) -> Scores:
    low, high = interval(values, seed) or (None, None)
    return {"mean": _rounded(math.fsum(values) / len(values)), "low": _rounded(low), "high": _rounded(high)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
