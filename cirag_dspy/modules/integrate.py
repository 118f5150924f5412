"""Integration phase (CIRAG equation 1): question, history, candidates -> thought, core triples, next-hop query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import dspy

from cirag_dspy.modules.ask import Inputs, Reply, ask
from cirag_dspy.modules.base import Module
from cirag_dspy.modules.parse import parse_core, says_nothing
from cirag_dspy.replies.answers import unmarked
from cirag_dspy.schema import Hop, Triple
from cirag_dspy.signatures import NO_QUERY, Integrate, IntegrateByCopying
from cirag_dspy.text import is_empty_query, one_line


class Integration(Module):
    """Keeps the candidates that matter and asks for what is missing, as one turn of a conversation per hop.

    Args:
        core: How the candidates to keep are named: by their ``"numbers"``, or by their ``"text"``, copied.
    """

    def __init__(self, core: Literal["numbers", "text"] = "numbers") -> None:
        super().__init__()
        self.integrate = dspy.Predict(IntegrateByCopying if core == "text" else Integrate)

    @property
    def core(self) -> Literal["numbers", "text"]:
        """How the candidates to keep are named, as the prompt has it."""
        return "text" if copies_facts(self.integrate.signature) else "numbers"

    def forward(
        self, question: str, query: str, candidates: Sequence[Triple], hops: Sequence[Hop] = ()
    ) -> dspy.Prediction:
        """Integrate one hop's candidates.

        Args:
            question: The question to answer in the end.
            query: This hop's query.
            candidates: This hop's candidate triples, as they are numbered in the prompt.
            hops: The hops before it (the history of equation 2).

        Returns:
            A prediction with ``thought``, ``core`` (candidates only), ``next_query`` (empty: none), ``rejected``
            (choices that are no candidate) and ``error`` (empty, or why the reply could not be used: then nothing is
            kept and nothing asked, and the evidence so far stands).
        """
        history = dspy.History(messages=[self._turn(question, hop) for hop in hops])
        inputs = {**self._observation(question, query, candidates), "history": history}
        reply = ask(
            self.integrate,
            inputs,
            check=lambda reply: _problem(reply, candidates),
        )
        core, rejected = parse_core(reply["core"], candidates)
        next_query = read_query(reply["next_query"])
        if reply.problem:
            core, next_query = [], ""
        return dspy.Prediction(
            thought=one_line(reply["thought"]),
            core=core,
            next_query=next_query,
            rejected=rejected,
            error=reply.problem,
        )

    def _observation(self, question: str, query: str, candidates: Sequence[Triple]) -> Inputs:
        facts = [one_line(triple.text) for triple in candidates]
        if not copies_facts(self.integrate.signature):
            facts = [f"{number}. {fact}" for number, fact in enumerate(facts, 1)]
        return {"question": one_line(question), "query": one_line(query), "facts": "\n".join(facts) or "none"}

    def _turn(self, question: str, hop: Hop) -> dict[str, Any]:
        """An earlier hop as the turn it was: what was shown, and the decision in its canonical form."""
        decision = write_decision(self.integrate.signature, hop.thought, hop.core, hop.candidates, hop.next_query)
        return {**self._observation(question, hop.query, hop.candidates), **decision}


def copies_facts(signature: type[dspy.Signature]) -> bool:
    """Whether a prompt has its facts copied; if not, they are numbered. Other instructions leave it its name."""
    return signature.__name__ == IntegrateByCopying.__name__


def write_decision(
    signature: type[dspy.Signature],
    thought: str,
    core: Sequence[Triple],
    candidates: Sequence[Triple],
    next_query: str,
) -> dict[str, str]:
    """A decision in its canonical form: what earlier turns are shown as, and what a student is trained on."""
    if copies_facts(signature):
        kept = "\n".join(one_line(triple.text) for triple in core)
    else:
        kept = ", ".join(str(candidates.index(triple) + 1) for triple in core)
    decision = {"core": kept or "none", "next_query": next_query or NO_QUERY}
    return {"thought": thought, **decision} if thought else decision


def read_query(text: str) -> str:
    """A query without its quotes and what a model adds on further lines; empty if it says that there is none."""
    query = one_line(unmarked(next(filter(None, map(str.strip, text.splitlines())), "")))
    return "" if is_empty_query(query) else query


def _problem(reply: Reply, candidates: Sequence[Triple]) -> str:
    if reply.truncated and not reply["next_query"]:
        return "the reply was cut off before next_query; be shorter"
    core, rejected = parse_core(reply["core"], candidates)
    if reply.problem or core or says_nothing(reply["core"]) or (not reply["core"] and reply["next_query"]):
        return reply.problem
    if rejected:
        return f"core names no fact of the list of {len(candidates)}; keep one of these, or none"
    return "core says nothing; write which facts to keep, or none"
