"""Whether a summary answers the question, and if not, the sub-problems left and their order (LogicRAG)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from graphlib import TopologicalSorter

import dspy

from cirag_dspy.modules.ask import Reply, ask
from cirag_dspy.modules.base import Module
from cirag_dspy.modules.queries import parse_queries
from cirag_dspy.modules.verdict import parse_yes_no, unclear
from cirag_dspy.signatures import CheckSummary, OrderSubproblems
from cirag_dspy.text import one_line

MOST_SUBPROBLEMS = 8
_PAIRS = re.compile(r"[;\n]|[\])]\s*,\s*[\[(]|,\s*(?=\d+ depends)")
_NEGATED = re.compile(r"n['’]t\b|\b(?:no|not|none|never|neither|independent)\b", re.I)
_COUNTED = re.compile(r"^\s*\d{1,2}[.)]\s+(?!depend)(?=\D{0,15}\d)")


class Check(Module):
    """Says whether a summary answers a question, and what is missing if it doesn't."""

    def __init__(self) -> None:
        super().__init__()
        self.check = dspy.Predict(CheckSummary)

    def forward(self, question: str, summary: str) -> dspy.Prediction:
        """A prediction with ``sufficient``, true only where the reply says so (what can't be read is no), ``missing``
        (sub-problems as simple questions) and ``error`` (empty, or why the reply could not be read).
        """
        inputs = {"question": one_line(question), "summary": one_line(summary) or "none"}
        reply = ask(self.check, inputs, check=_problem)
        return dspy.Prediction(
            sufficient=parse_yes_no(reply["sufficient"]) is True,
            missing=parse_queries(reply["missing"], MOST_SUBPROBLEMS),
            error=reply.problem,
        )


class Order(Module):
    """Puts sub-problems in an order in which each comes after those it depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.order = dspy.Predict(OrderSubproblems)

    def forward(self, question: str, problems: Sequence[str]) -> dspy.Prediction:
        """A prediction with ``problems`` in order: as given where the reply could not be read or names no dependency.
        One sub-problem needs no LM call.
        """
        if len(problems) < 2:
            return dspy.Prediction(problems=list(problems))
        numbered = "\n".join(f"{number}. {one_line(problem)}" for number, problem in enumerate(problems, 1))
        reply = ask(self.order, {"question": one_line(question), "problems": numbered})
        places = in_order(len(problems), parse_dependencies(reply["dependencies"]))
        return dspy.Prediction(problems=[problems[place - 1] for place in places])


def parse_dependencies(text: str) -> list[tuple[int, int]]:
    """Pairs (number, number that it depends on): of each "2 depends on 1 and 3", the first number and each other."""
    pairs = []
    for piece in _PAIRS.split(text):
        numbers = [int(number) for number in re.findall(r"(?<![\w.])\d{1,2}(?!\w)", _COUNTED.sub("", piece))]
        if not _NEGATED.search(piece):  # "1 does not depend on 2", but "2 cannot be answered without 1"
            pairs += [(numbers[0], other) for other in numbers[1:]]
    return pairs


def in_order(count: int, dependencies: Iterable[tuple[int, int]]) -> list[int]:
    """The numbers 1 to ``count``, each after those it depends on.

    Dependencies on other numbers are left out, and so is one that would close a circle with those before it.
    """
    needs: dict[int, list[int]] = {number: [] for number in range(1, count + 1)}

    def rests_on(number: int, other: int) -> bool:
        return number == other or any(rests_on(needed, other) for needed in needs[number])

    for number, other in dict.fromkeys(dependencies):
        if {number, other} <= needs.keys() and not rests_on(other, number):
            needs[number].append(other)
    return list(TopologicalSorter(needs).static_order())


def _problem(reply: Reply) -> str:
    vague = unclear(reply, "sufficient")
    if vague or parse_yes_no(reply["sufficient"]) or parse_queries(reply["missing"]):
        return vague
    return "sufficient is no, but missing has no question; write what to look up"
