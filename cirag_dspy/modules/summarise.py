"""Passages become a few sentences: one entity's (DualRAG), or a summary that is rewritten as it grows (LogicRAG)."""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from cirag_dspy.modules.ask import ask
from cirag_dspy.modules.base import Module
from cirag_dspy.modules.reader import passage_line
from cirag_dspy.schema import Passage
from cirag_dspy.signatures import RefineSummary, SummariseEntity
from cirag_dspy.text import is_refusal, one_line, split_sentences


class Summarise(Module):
    """Summarises what passages say about an entity."""

    def __init__(self) -> None:
        super().__init__()
        self.summarise = dspy.Predict(SummariseEntity)

    def forward(
        self,
        question: str,
        thoughts: Sequence[str],
        entity: str,
        queries: Sequence[str],
        passages: Sequence[Passage],
    ) -> dspy.Prediction:
        """A prediction with ``summary``: empty if the passages say nothing about the entity or the reply could not be
        read.
        """
        inputs = {
            "question": one_line(question),
            "thoughts": "\n".join(thoughts) or "none",
            "entity": one_line(entity),
            "queries": "; ".join(map(one_line, queries)),
            "passages": "\n".join(map(passage_line, passages)),
        }
        reply = ask(self.summarise, inputs)
        return dspy.Prediction(summary=_summary(reply["summary"]))


class Refine(Module):
    """Brings a summary up to date with what was found last."""

    def __init__(self) -> None:
        super().__init__()
        self.refine = dspy.Predict(RefineSummary)

    def forward(self, question: str, summary: str, point: str, passages: Sequence[Passage]) -> dspy.Prediction:
        """Rewrite a summary.

        Args:
            question: The question to answer in the end.
            summary: The summary so far, may be empty.
            point: What was searched for this time.
            passages: What was found.

        Returns:
            A prediction with ``summary``: the one so far if the passages add nothing or the reply could not be read.
        """
        inputs = {
            "question": one_line(question),
            "known": one_line(summary) or "none",
            "point": one_line(point),
            "passages": "\n".join(map(passage_line, passages)),
        }
        reply = ask(self.refine, inputs)
        return dspy.Prediction(summary=_summary(reply["summary"]) or one_line(summary))


def _summary(text: str) -> str:
    """A summary as one line; empty if each of its sentences is a refusal, such as "none". One that has the word "none"
    in it, as in "None of her films won a prize.", is a summary.
    """
    summary = one_line(text)
    return "" if all(map(is_refusal, split_sentences(summary))) else summary
