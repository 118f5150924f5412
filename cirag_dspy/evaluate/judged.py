"""LM-judged accuracy (LLM-Acc): whether an answer means the same as the gold, said by an LM apart from the system."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dspy
from dspy.utils.exceptions import LMError

from cirag_dspy.evaluate.outcome import told
from cirag_dspy.evaluate.rows import Row
from cirag_dspy.evaluate.run import RunFolder, conclude
from cirag_dspy.lms.meter import COUNTS, LMMeter
from cirag_dspy.modules.ask import ask
from cirag_dspy.modules.extract import FATAL
from cirag_dspy.modules.threads import each_in_threads
from cirag_dspy.modules.verdict import parse_yes_no, unclear
from cirag_dspy.plain import shown
from cirag_dspy.signatures import JudgeAnswer
from cirag_dspy.text import one_line


class AnswerJudge(dspy.Module):
    """Says whether a prediction means the same as one of the accepted answers."""

    def __init__(self) -> None:
        super().__init__()
        self.judge = dspy.Predict(JudgeAnswer)

    def forward(self, question: str, accepted: Sequence[str], predicted: str) -> dspy.Prediction:
        """A prediction with ``verdict``: ``yes``, ``no`` or ``unreadable``."""
        inputs = {
            "question": one_line(question),
            "accepted": "\n".join(map(one_line, accepted)),
            "predicted": one_line(predicted),
        }
        reply = ask(
            self.judge,
            inputs,
            check=lambda reply: unclear(reply, "same"),
        )
        same = parse_yes_no(reply["same"])
        return dspy.Prediction(verdict="unreadable" if same is None else "yes" if same else "no")


def judge_run(
    folder: RunFolder,
    examples: Sequence[dspy.Example],
    manifest: Mapping[str, Any],
    lm: dspy.LM,
    *,
    threads: int = 1,
    on_row: Callable[[Row], None] = lambda row: None,
) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Judge the rows of a run, each written again with ``llm_acc`` and ``judge``: its LM, its verdict and what it cost.

    The system's own costs stay as they are. A row that this LM has judged is not judged again, so that a run cut short
    goes on where it was. The LM is asked where the official EM is 0 and there is an answer: an answer equal to the gold
    means the same, and asking could add the judge's faults only. ``unreadable`` counts as wrong.

    Args:
        folder: The run, with a row of each question.
        examples: The questions to judge.
        manifest: The run's manifest.
        lm: The judge.
        threads: Answers at a time.
        on_row: Called with each row as it is written.

    Returns:
        The new summary, and the answers whose call failed, with ``id`` and ``error``: they stay unjudged.

    Raises:
        dspy.utils.exceptions.LMError: No LM call can succeed (key, billing or configuration); verdicts so far are kept.
    """
    judge = AnswerJudge()
    judge.set_lm(lm)
    wanted = {example.id for example in examples}
    rows = [row for row in folder.rows() if row["id"] in wanted]
    todo = [row for row in rows if row.get("judge", {}).get("lm") != lm.model]
    failures: list[dict[str, str]] = []

    def work(row: Row) -> Row | str:
        try:
            return _judged(row, judge, lm.model)
        except FATAL:
            raise
        except Exception as error:  # one verdict's fault must not cost the others
            return told(error) if not isinstance(error, LMError) else one_line(shown(error))[:500]

    with folder.writer() as write:
        for row in todo:  # where this judge fails, another one's verdict must not stand for its own
            if "judge" in row:
                write({key: value for key, value in row.items() if key not in ("llm_acc", "judge")})
        for row, judged in each_in_threads(work, todo, threads):
            if isinstance(judged, str):
                failures.append({"id": row["id"], "error": judged})
            else:
                write(judged)
                on_row(judged)
    return conclude(folder, examples, manifest), failures


def _judged(row: Row, judge: AnswerJudge, name: str) -> Row:
    meter = LMMeter()
    if row["error"] or not row["answer"]:
        verdict = "no answer"
    elif row["em"] == 1:
        verdict = "equal"
    else:
        with meter.context():
            verdict = judge(question=row["question"], accepted=row["gold"], predicted=row["answer"]).verdict
    counts = meter.snapshot()
    cost = {key: counts[key] for key in COUNTS}
    return {
        **row,
        "llm_acc": float(verdict in ("yes", "equal")),
        "judge": {"lm": name, "verdict": verdict, **cost},
    }
