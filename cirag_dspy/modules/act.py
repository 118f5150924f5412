"""One turn of ReAct: question, observations so far -> a thought, and a search or the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import dspy

from cirag_dspy.modules.ask import Inputs, Reply, ask
from cirag_dspy.modules.integrate import read_query
from cirag_dspy.modules.reader import passage_line, read_answer, shorter
from cirag_dspy.schema import Passage
from cirag_dspy.signatures import Act
from cirag_dspy.text import is_refusal, one_line

Turn = Mapping[str, str]

# search: x, Search[x], search(x), finish - x; with or without the numbers of the original prompt (Action 1: ...).
_ACTION = re.compile(
    r"(?:action\W*\d*\W*)?\b(search|finish|answer)\b[\s*_]*(?:[:=-]|(?=[\[(\"'“]))[\s*_]*(.*)", re.I | re.S
)


class Actor(dspy.Module):
    """Decides what to do next, as one turn of a conversation per search."""

    def __init__(self) -> None:
        super().__init__()
        self.act = dspy.Predict(Act)

    def forward(self, question: str, found: Sequence[Passage], turns: Sequence[Turn] = ()) -> dspy.Prediction:
        """Act once.

        Args:
            question: The question.
            found: What the last search found.
            turns: The turns before this one, as ``turn`` of each prediction gave them.

        Returns:
            A prediction with ``thought``; ``query`` or ``answer`` (the other one is empty; both are if the reply could
            not be read); ``turn``, for the next call; and ``error``.
        """
        seen = "\n".join(map(passage_line, found)) or ("nothing found" if turns else "none yet: nothing was searched")
        inputs: Inputs = {"question": one_line(question), "observation": seen}
        asked = {**inputs, "history": dspy.History(messages=[dict(turn) for turn in turns])}
        reply = ask(self.act, asked, check=_problem, shrink=_shorter)
        query, answer = read_action(reply["action"])
        thought = one_line(reply["thought"])
        action = f"finish: {answer}" if answer else f"search: {query}"
        turn = {**inputs, "thought": thought, "action": action}
        return dspy.Prediction(thought=thought, query=query, answer=answer, turn=turn, error=reply.problem)


def read_action(text: str) -> tuple[str, str]:
    """(query, answer) of an action such as ``search: Ada Brook`` or ``Finish[Velden]``; one is empty, both if it is
    neither. A refusal is no answer.
    """
    match = _ACTION.match(text.strip().lstrip("*_`-> "))
    if match is None:
        return "", ""
    line = next(iter(match[2].strip().splitlines()), "").strip()
    if line[:1] + line[-1:] in ("[]", "()"):
        line = line[1:-1]
    if match[1].lower() == "search":
        return read_query(line), ""
    answer = read_answer(line)
    return "", "" if is_refusal(answer) else answer


def _problem(reply: Reply) -> str:
    if reply.problem:
        return reply.problem
    return "" if any(read_action(reply["action"])) else "action must be search: QUERY, or finish: ANSWER"


def _shorter(inputs: Inputs) -> Inputs | None:
    """Drop the oldest turn; without any, the later half of what was found."""
    turns = inputs["history"].messages
    if turns:
        return {**inputs, "history": dspy.History(messages=turns[1:])}
    return shorter(inputs, "observation")
