"""What a run and a comparison look like: lines for a terminal, Markdown, CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

Table = list[list[str]]

_COUNTED = ("calls", "cached", "prompt_tokens", "completion_tokens", "seconds")


def summary_lines(title: str, summary: Mapping[str, Any]) -> str:
    """The summary of one run."""
    cost = summary["lm_per_question"]
    levels = ", ".join(f"{level} {group['n']}" for level, group in summary["levels"].items())
    kind = "recall" if summary["recall"] else "answer recall"
    found = summary["recall"] or summary["answer_recall"]
    recall = f"{kind} {'  '.join(f'{k} {100 * value:.1f}' for k, value in found.items()) or 'none'}"
    judged = f"LLM-Acc {100 * summary['llm_acc']:.1f}   " if "llm_acc" in summary else ""
    return "\n".join(
        [
            title,
            f"  EM {100 * summary['em']:.1f}   F1 {100 * summary['f1']:.1f}   {judged}{recall}",
            f"  levels: {levels or 'none'}   errors {summary['errors']}   unreadable hops {summary['unreadable_hops']}",
            f"  per question: {cost['calls']} LM calls, {cost['cached']} cached; {cost['prompt_tokens']:.0f} prompt + "
            f"{cost['completion_tokens']:.0f} reply tokens; {summary['seconds_per_question']['median']} s (median)",
        ]
    )


def comparison_lines(title: str, comparison: Mapping[str, Any]) -> str:
    """A comparison for a terminal of 120 columns, as long as names have no more than 20 letters."""
    return "\n\n".join([title, *("\n".join(_aligned(table)) for table in _tables(comparison))]) + f"\n\n{_LEGEND}"


def comparison_markdown(title: str, comparison: Mapping[str, Any]) -> str:
    """A comparison as Markdown tables."""
    return "\n\n".join([title, *("\n".join(_piped(table)) for table in _tables(comparison)), _LEGEND]) + "\n"


def comparison_csv(comparison: Mapping[str, Any]) -> str:
    """A comparison as CSV: a row a run, scores as shares of 1; what there is not is empty."""
    runs = comparison["runs"]
    scores = _score_names(runs)
    bounds = ("", "_low", "_high")
    header = ["name", "n", "errors"]
    header += [f"{score}{bound}" for score in scores for bound in bounds]
    header += [f"{score}_difference{bound}" for score in ("em", "f1") for bound in (*bounds, "_p")]
    header += [*_COUNTED, "levels"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for name, run in runs.items():
        row = [name, run["n"], run["errors"]]
        for score in scores:
            found = run["scores"].get(score, {})
            row += [found.get(key) for key in ("mean", "low", "high")]
        for score in ("em", "f1"):
            found = run.get("difference", {}).get(score, {})
            row += [found.get(key) for key in ("mean", "low", "high", "p")]
        row += [run["cost"][key] for key in _COUNTED]
        writer.writerow([*row, _levels(run)])
    return out.getvalue()


_LEGEND = (
    "Scores in percent, with 95 % bootstrap intervals; p of a paired permutation test, not corrected for several.\n"
    "Of a question: mean LM calls, cached ones included; mean prompt+reply tokens that were paid for; median seconds."
)


def _tables(comparison: Mapping[str, Any]) -> list[Table]:
    """Scores and cost; differences to the reference; levels."""
    runs, against = comparison["runs"], comparison["against"]
    recalls = [score for score in _score_names(runs) if "@" in score]
    others = [name for name in ("str_acc", "llm_acc") if all(name in run["scores"] for run in runs.values())]
    headers = [{"str_acc": "Str-Acc", "llm_acc": "LLM-Acc"}[name] for name in others]
    scores = [["", "EM", "F1", *headers, *_recall_headers(recalls), "LM calls", "tokens", "s", "errors"]]
    differences = [[f"minus {against}", "EM", "p", "F1", "p"]]
    levels = [["answers from", ""]]
    for name, run in runs.items():
        found, cost = run["scores"], run["cost"]
        tokens = f"{cost['prompt_tokens']:.0f}+{cost['completion_tokens']:.0f}"
        means = [_percent(found[score]["mean"]) if score in found else "" for score in [*others, *recalls]]
        calls = f"{cost['calls'] + cost['cached']:.1f}"
        seconds = f"{cost['seconds']:.{2 if cost['seconds'] < 100 else 0}f}"
        errors = str(run["errors"] or "")
        scores.append([name, _ranged(found["em"]), _ranged(found["f1"]), *means, calls, tokens, seconds, errors])
        if difference := run.get("difference"):
            cells = [_signed(difference.get("em")), _p(difference.get("em"))]
            differences.append([name, *cells, _signed(difference.get("f1")), _p(difference.get("f1"))])
        levels.append([name, _levels(run)])
    if not any(row[-1] for row in scores[1:]):
        scores = [row[:-1] for row in scores]
    return [table for table in (scores, differences, levels) if len(table) > 1]


def _score_names(runs: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(score for run in runs.values() for score in run["scores"]))


def _recall_headers(recalls: Sequence[str]) -> list[str]:
    """``recall@3``, then ``@5``; ``answer@3`` where it is the answer that is looked for in the passages."""
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
