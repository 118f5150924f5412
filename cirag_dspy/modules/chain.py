"""A chain of triples (KiRAG section 3.2): what is searched and ranked with, and the constructor that completes it."""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from cirag_dspy.modules.ask import Reply, ask
from cirag_dspy.modules.base import Module
from cirag_dspy.modules.parse import parse_core, says_nothing
from cirag_dspy.schema import Triple
from cirag_dspy.signatures import CompleteChain
from cirag_dspy.text import one_line


def search_query(question: str, chain: Sequence[Triple]) -> str:
    """What a step searches passages with: the question, and the last triple where there is one."""
    return f"{question} {one_line(chain[-1].text)}" if chain else question


def aligner_query(question: str, chain: Sequence[Triple]) -> str:
    """What candidates are ranked against: the question, and the triples so far where there are any."""
    return f"{question}\nknowledge triples: {'. '.join(triple.text for triple in chain)}." if chain else question


class Constructor(Module):
    """Completes the chain from the candidates; only the first triple of its completion counts."""

    def __init__(self) -> None:
        super().__init__()
        self.complete = dspy.Predict(CompleteChain)

    def forward(self, question: str, chain: Sequence[Triple], candidates: Sequence[Triple]) -> dspy.Prediction:
        """Choose what comes next.

        Args:
            question: The question.
            chain: The triples so far.
            candidates: What can come next, as they are numbered in the prompt.

        Returns:
            A prediction with ``triple`` (the next one, a candidate; ``None`` if the chain is complete, or the reply
            could not be used) and ``error`` (empty, or why it could not).
        """
        facts = "\n".join(f"{number}. {one_line(triple.text)}" for number, triple in enumerate(candidates, 1))
        inputs = {
            "question": one_line(question),
            "chain": "\n".join(one_line(triple.text) for triple in chain) or "none yet",
            "facts": facts,
        }
        reply = ask(
            self.complete,
            inputs,
            check=lambda reply: _problem(reply, candidates),
        )
        chosen, _ = parse_core(reply["next"], candidates)
        return dspy.Prediction(triple=chosen[0] if chosen else None, error="" if chosen else reply.problem)


def _problem(reply: Reply, candidates: Sequence[Triple]) -> str:
    chosen, _ = parse_core(reply["next"], candidates)
    if reply.problem or chosen or says_nothing(reply["next"]):
        return reply.problem
    return f"next names no fact of the list; use the numbers 1 to {len(candidates)}, or none"
