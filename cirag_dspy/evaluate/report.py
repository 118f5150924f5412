"""What a run and a comparison look like: lines for a terminal, Markdown, CSV."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from cirag_dspy.benchmarks.draw import told

Table = list[list[str]]

_COUNTED = ("calls", "cached", "prompt_tokens", "completion_tokens")
_ABSTENTION = ("coverage", "em_answered", "f1_answered", "em_unanswerable")


def summary_lines(title: str, summary: Mapping[str, Any], passages: Mapping[str, int] | None = None) -> str:
    """The summary of one run.

    Args:
        title: The first line.
        summary: As ``RunFolder`` keeps it.
        passages: What its system sees of them, as ``passages_seen`` says.
    """
    cost, intervals = summary["lm_per_question"], summary.get("intervals", {})
    levels = ", ".join(f"{level} {group['n']}" for level, group in summary["levels"].items())
    names = {"em": "EM", "f1": "F1", "llm_acc": "LLM-Acc"}
    scores = [
        f"{shown} {_ranged(intervals[name]) if name in intervals else _percent(summary[name])}"
        for name, shown in names.items()
        if name in summary
    ]
    seconds = summary.get("seconds_per_question")
    return "\n".join(
        [
            title,
            f"  {'   '.join(scores)}",
            *_recall_lines(summary),
            *_abstention_lines(summary),
            f"  levels: {levels or 'none'}   errors {summary['errors']}   unreadable hops {summary['unreadable_hops']}",
            f"  per question: {cost['calls']} LM calls, {cost['cached']} cached; {cost['prompt_tokens']:.0f} prompt + "
            f"{cost['completion_tokens']:.0f} reply tokens"
            + (f"; k {_seen(passages)}" if passages else "")
            + (f"; {seconds['median']} s (median, one at a time)" if seconds else ""),
        ]
    )


def _abstention_lines(summary: Mapping[str, Any]) -> list[str]:
    """How often the system answered, and how good its answers were then."""
    found = summary.get("abstention")
    if not found:
        return []
    lines = []
    if found["of"]:
        share = f"{found['answered']} of {found['of']} ({_percent(found['coverage'])} %)"
        good = f": EM {_percent(found['em_answered'])}   F1 {_percent(found['f1_answered'])} of these"
        lines.append(f"  answered: {share}{good if found['answered'] else ''}; else a guess, or none")
    if "unanswerable" in found:
        lines.append(f"  unanswerable: rightly left open {found['rightly_abstained']} of {found['unanswerable']}")
    return lines


def _recall_lines(summary: Mapping[str, Any]) -> list[str]:
    """The recalls that there are, each with what it counts; that of titles where it is another one."""
    kinds = {"recall": "recall of gold passages", "title_recall": "recall of gold titles"}
    found = {shown: summary.get(name) for name, shown in kinds.items()}
    if found["recall of gold titles"] == found["recall of gold passages"]:
        del found["recall of gold titles"]
    if not any(found.values()):
        found = {"answer recall, passages that hold an answer": summary["answer_recall"]}
    lines = [
        f"  {shown}: {'  '.join(f'{k} {100 * value:.1f}' for k, value in values.items())}"
        for shown, values in found.items()
        if values
    ]
    return lines or ["  recall: none"]


def comparison_lines(title: str, comparison: Mapping[str, Any]) -> str:
    """A comparison for a terminal of 120 columns, as long as names have no more than 20 letters."""
    return "\n\n".join([title, *("\n".join(_aligned(table)) for table in _tables(comparison)), _legend(comparison)])


def comparison_markdown(title: str, comparison: Mapping[str, Any]) -> str:
    """A comparison as Markdown tables."""
    tables = ("\n".join(_piped(table)) for table in _tables(comparison))
    return "\n\n".join([title, *tables, _legend(comparison)]) + "\n"


def comparison_csv(comparison: Mapping[str, Any]) -> str:
    """A comparison as CSV: a row a run, scores as shares of 1; what there is not is empty.

    ``coverage`` is the share of questions that were answered, ``em_answered`` and ``f1_answered`` the scores of these
    answers, ``em_unanswerable`` the share of unanswerable questions rightly left open. ``k`` and ``read`` are what
    ``passages_seen`` says. ``seconds`` are there if all runs were taken with ``--latency``.
    """
    runs = comparison["runs"]
    scores = _score_names(runs)
    counted = [*_COUNTED, *(["seconds"] if _timed(runs) else [])]
    bounds = ("", "_low", "_high")
    header = ["name", "k", "read", "n", "errors"]
    header += [f"{score}{bound}" for score in scores for bound in bounds]
    header += [f"{score}_difference{bound}" for score in ("em", "f1") for bound in (*bounds, "_p")]
    abstention = [key for key in _ABSTENTION if any(key in run.get("abstention", {}) for run in runs.values())]
    header += [*counted, *abstention, "levels"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for name, run in runs.items():
        row = [name, *(run.get("passages", {}).get(key) for key in ("k", "read")), run["n"], run["errors"]]
        for score in scores:
            found = run["scores"].get(score, {})
            row += [found.get(key) for key in ("mean", "low", "high")]
        for score in ("em", "f1"):
            found = run.get("difference", {}).get(score, {})
            row += [found.get(key) for key in ("mean", "low", "high", "p")]
        row += [run["cost"][key] for key in counted]
        row += [run.get("abstention", {}).get(key) for key in abstention]
        writer.writerow([*row, _levels(run)])
    return out.getvalue()


_SCORES = (
    "Scores in percent, with 95 % bootstrap intervals; p of a paired permutation test, not corrected for several.\n"
    "Of a question: mean LM calls, cached ones included; mean prompt+reply tokens that were paid for"
)
_RECALLS = {
    "-recall@": "recall@K: of the gold passages (their ids in the corpus) among the first K",
    ":title": "recall@K:title: of the gold titles, whichever of a title's passages was found",
    "-answer_recall@": "answer@K: whether one of the first K passages holds an answer",
}
_K = "k: passages a search gives; after a slash, those that the reader sees at most, where a setting of its own says so"


def _legend(comparison: Mapping[str, Any]) -> str:
    """What the columns mean, and what makes the rows unlike each other."""
    runs, shown = comparison["runs"], _score_names(comparison["runs"])
    seconds = ["s: median seconds of a question, one at a time, without a cache."] if _timed(runs) else []
    lines = [f"{_SCORES}.", *seconds, *([f"Questions: {told(comparison['draw'])}."] if "draw" in comparison else [])]
    lines += [f"{text}." for mark, text in _RECALLS.items() if any(mark in f"-{name}" for name in shown)]
    seen = {name: _seen(run.get("passages")) for name, run in runs.items()}
    lines += [f"{_K}."] if any(seen.values()) else []
    if len(set(seen.values())) > 1:
        each = ", ".join(f"{name} {k or 'none'}" for name, k in seen.items())
        lines += textwrap.wrap(f"Note: k is not the same ({each}); -k sets it for all.", 120)
    return "\n".join(lines)


def _timed(runs: Mapping[str, Any]) -> bool:
    return all("seconds" in run["cost"] for run in runs.values())


def _seen(passages: Mapping[str, int] | None) -> str:
    return "/".join(str(passages[key]) for key in ("k", "read") if key in passages) if passages else ""


def _tables(comparison: Mapping[str, Any]) -> list[Table]:
    """Scores and cost; differences to the reference; levels."""
    runs, against = comparison["runs"], comparison["against"]
    differences = [[f"minus {against}", "EM", "p", "F1", "p"]]
    levels = [["answers from", ""]]
    for name, run in runs.items():
        if difference := run.get("difference"):
            cells = [_signed(difference.get("em")), _p(difference.get("em"))]
            differences.append([name, *cells, _signed(difference.get("f1")), _p(difference.get("f1"))])
        levels.append([name, _levels(run)])
    return [table for table in (_scores(runs), differences, _answered(runs), levels) if len(table) > 1]


def _answered(runs: Mapping[str, Any]) -> Table:
    """How often each system answered, and how good its answers were then; of old runs, nothing."""
    found = {name: run["abstention"] for name, run in runs.items() if "abstention" in run}
    open_ones = any("unanswerable" in one for one in found.values())
    table = [["of those answered", "answered", "EM", "F1", *(["rightly left open"] if open_ones else [])]]
    for name, one in found.items():
        cells = [f"{one['answered']}/{one['of']}", _percent(one["em_answered"]), _percent(one["f1_answered"])]
        cells += [f"{one['rightly_abstained']}/{one['unanswerable']}"] if "unanswerable" in one else []
        table.append([name, *cells, *[""] * (len(table[0]) - len(cells) - 1)])
    return table


def _scores(runs: Mapping[str, Any]) -> Table:
    """The first table: a column is left out where no run has anything in it."""
    recalls = _recalls_shown(runs)
    others = [name for name in ("str_acc", "llm_acc") if all(name in run["scores"] for run in runs.values())]
    headers = [{"str_acc": "Str-Acc", "llm_acc": "LLM-Acc"}[name] for name in others]
    table = [["", "k", "EM", "F1", *headers, *_recall_headers(recalls), "LM calls", "tokens", "s", "errors"]]
    for name, run in runs.items():
        found, cost = run["scores"], run["cost"]
        means = [_percent(found[score]["mean"]) if score in found else "" for score in [*others, *recalls]]
        tokens = f"{cost['prompt_tokens']:.0f}+{cost['completion_tokens']:.0f}"
        seconds = f"{cost['seconds']:.{2 if cost['seconds'] < 100 else 0}f}" if _timed(runs) else ""
        calls = f"{cost['calls'] + cost['cached']:.1f}"
        first = [name, _seen(run.get("passages")), _ranged(found["em"]), _ranged(found["f1"])]
        table.append([*first, *means, calls, tokens, seconds, str(run["errors"] or "")])
    empty = [n for n in range(1, len(table[0])) if not any(row[n] for row in table[1:])]
    return [[cell for n, cell in enumerate(row) if n not in empty] for row in table]


def _recalls_shown(runs: Mapping[str, Any]) -> list[str]:
    """The recalls; one by title only where it is another than the one by passage, since mostly they are the same."""
    names = [score for score in _score_names(runs) if "@" in score]
    return [
        name
        for name in names
        if not name.endswith(":title")
        or any(run["scores"].get(name) != run["scores"].get(name.removesuffix(":title")) for run in runs.values())
    ]


def _score_names(runs: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(score for run in runs.values() for score in run["scores"]))


def _recall_headers(recalls: Sequence[str]) -> list[str]:
    """``recall@3``, then ``@5``, ``@5:title``; ``answer@3`` where an answer is looked for in the passages."""
    short = [score.replace("answer_recall", "answer") for score in recalls]
    return [name if index == 0 else f"@{name.partition('@')[2]}" for index, name in enumerate(short)]


def _levels(run: Mapping[str, Any]) -> str:
    return ", ".join(f"{level} {n}" for level, n in run["levels"].items()) or "none"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _ranged(score: Mapping[str, Any]) -> str:
    low, high = score["low"], score["high"]
    return _percent(score["mean"]) + ("" if low is None else f" [{_percent(low)}, {_percent(high)}]")


def _signed(score: Mapping[str, Any] | None) -> str:
    if score is None:
        return ""
    low, high = score["low"], score["high"]
    return f"{100 * score['mean']:+.1f}" + ("" if low is None else f" [{100 * low:+.1f}, {100 * high:+.1f}]")


def _p(score: Mapping[str, Any] | None) -> str:
    if score is None:
        return ""
    return f"{score['p']:.3f}" if score["p"] >= 0.001 else "<0.001"


def _aligned(table: Table) -> list[str]:
    """Columns of one width each: names to the left, as what stands in the last column of two, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for name, *cells in table:
        rest = cells if len(cells) == 1 else [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *rest]).rstrip())
    return lines


def _piped(table: Table) -> list[str]:
    header, *rows = [[cell.replace("|", "\\|") for cell in row] for row in table]
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]
