"""One step of an agent that can search and finish, as a turn of a conversation (ReAct section 3)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import dspy

from cirag_dspy.modules.ask import Reply, ask
from cirag_dspy.modules.base import Module
from cirag_dspy.replies.answers import unmarked
from cirag_dspy.replies.jsontext import as_text, load_json, payload
from cirag_dspy.schema import Hop
from cirag_dspy.signatures import NextAction
from cirag_dspy.text import one_line

_NESTED = r"[^\[\]\n]*(?:\[[^\[\]\n]*\][^\[\]\n]*)*"
_BRACKETED = re.compile(rf"\b(search|finish)\s*\[({_NESTED})(?:\]|$)", re.I | re.M)
_BARE = re.compile(r"^(\W*)(search|finish)\b(\W*)(.*)", re.I)
_CLOSING = {"(": ")", "[": "]", "{": "}", '"': '"', "'": "'", "<": ">", "「": "」", "［": "］", "（": "）", "“": "”"}
_NAMED = re.compile(r"^(?:query|q|answer|text|input)\s*=\s*(?=[\"'“])", re.I)


class Act(Module):
    """Thinks about what is known, and searches or finishes."""

    def __init__(self) -> None:
        super().__init__()
        self.act = dspy.Predict(NextAction)

    def forward(self, question: str, observation: str, hops: Sequence[Hop], seen: Sequence[str]) -> dspy.Prediction:
        """The next step.

        Args:
            question: The question to answer in the end.
            observation: What the last search found, each line safe to show.
            hops: The steps so far, all of them searches.
            seen: The observation that each of them was taken on.

        Returns:
            A prediction with ``thought``, ``query`` (of a search) or ``answer`` (as it was written), and ``error``
            (empty, or why there is no action).
        """
        question = one_line(question)
        turns = [
            {"question": question, "observation": shown, "thought": hop.thought, "action": f"search[{hop.query}]"}
            for hop, shown in zip(hops, seen, strict=True)
        ]
        inputs = {"history": dspy.History(messages=turns), "question": question, "observation": observation}
        reply = ask(self.act, inputs, check=_problem)
        kind, argument = read_action(_written(reply))
        return dspy.Prediction(
            thought=one_line(reply["thought"]),
            query=argument if kind == "search" else "",
            answer=argument if kind == "finish" else "",
            error=reply.problem,
        )


def read_action(text: str) -> tuple[str, str]:
    """The first action in a text and its argument, ("search", "Ada Brook"); two empty strings if there is none.

    Read are ``search[...]`` anywhere, also with its closing bracket missing, and at the beginning ``search: ...``,
    ``search("...")`` or JSON. What an LM writes behind it, such as an observation of its own making, does not count.
    """
    if called := _called(text):
        kind, argument = called
    elif match := _BRACKETED.search(text):
        kind, argument = match[1], match[2]
    elif match := _BARE.match(unmarked(text)):
        opened, kind, opened_too, argument = match.groups()
        argument = re.sub(rf"</{kind}>.*$", "", argument, flags=re.I)
        argument = argument.rstrip(" " + "".join(_CLOSING.get(mark, "") for mark in opened + opened_too))
    else:
        return "", ""
    argument = argument.strip()
    if named := _NAMED.match(argument):  # query="Ada", its last quote maybe gone with the brackets
        argument = argument[named.end() + 1 :].rstrip("\"'” ")
    return kind.lower(), one_line(unmarked(argument))


def _called(text: str) -> tuple[str, str] | None:
    """The action of a tool call, ``{"name": "search", "arguments": {"query": "Ada"}}``; ``None`` if it is none."""
    call = load_json(text)
    for _ in range(5):
        call = call[0] if isinstance(call, list) and call else call
        if not isinstance(call, dict):
            return None
        named = {str(key).lower(): value for key, value in call.items()}
        for name in ("name", "tool", "tool_name", "action", "function", "type"):
            kind = str(named.pop(name, "") if isinstance(named.get(name), str) else "").lower()
            if kind in ("search", "finish"):
                inner = payload({key: value for key, value in named.items() if key not in ("id", "type")})
                texts = (
                    [inner] if isinstance(inner, str) else list(inner.values()) if isinstance(inner, dict) else inner
                )
                return kind, next((as_text(text, kind) for text in texts if isinstance(text, (str, int, float))), "")
        if len(named) == 1 and (kind := next(iter(named))) in ("search", "finish"):
            return kind, as_text(payload(named[kind]), "query")
        call = next((value for value in named.values() if isinstance(value, (dict, list))), None)
    return None


def _written(reply: Reply) -> str:
    """The field, or the whole reply of an LM that acted without the label."""
    return reply["action"] or reply.raw


def _problem(reply: Reply) -> str:
    _, argument = read_action(_written(reply))
    return "" if argument else reply.problem or "the action is neither search[query] nor finish[answer]"
