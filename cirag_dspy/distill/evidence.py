"""Which evidence of a training row may go where the row is too long for its student, by the rule of ``modules.fit``.

A row is plain text to whoever trains on it, so what may go is noted while its fields are still known: for each message
a list of edits, the first of them one line shorter than the message, the next two lines, and so on. Any tokenizer can
then find how many it takes. The list ends before a line that the row's reply rests on: a student that is taught to
state what it was not shown learns to make things up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import dspy

from cirag_dspy.modules.fit import Inputs, one_less
from cirag_dspy.modules.parse import parse_core, parse_triples, says_nothing
from cirag_dspy.schema import Triple
from cirag_dspy.text import FUNCTION_WORDS, best_sentence, fact_lines, is_refusal, split_sentences, words

Edit = tuple[int, int, str]
Evidence = dict[str, list[Edit]]
Message = dict[str, Any]

# Outputs that ask or judge instead of stating what the evidence says.
_ASKING = frozenset({"next_query", "query", "queries", "questions", "searches", "missing", "dependencies", "feedback"})
_JUDGING = frozenset({"retrieve", "sufficient", "relevant", "score", "known", "same"})


def evidence_of(
    adapter: dspy.Adapter,
    signature: type[dspy.Signature],
    messages: Sequence[Message],
    turns: Sequence[tuple[Inputs, Mapping[str, str]]],
) -> Evidence | None:
    """What may go of a row's messages.

    Args:
        adapter: It wrote the messages.
        signature: Of the predictor that was called.
        messages: The row's, the last reply included or not.
        turns: Inputs (without a history) and outputs of each user message and its reply, in order.

    Returns:
        Edits by the number of their message: ``(start, end, text)`` puts a text in the place of part of the content.
        ``None`` where the messages are no such turns.
    """
    users = [number for number, message in enumerate(messages) if message["role"] == "user"]
    if len(users) != len(turns):
        return None
    found: Evidence = {}
    for number, (inputs, outputs) in zip(users, turns, strict=True):
        last = number == users[-1]

        def shown(inputs: Inputs, last: bool = last) -> str:
            return str(adapter.format_user_message_content(signature, inputs, main_request=last))

        whole = messages[number]["content"]
        if shown(inputs) != whole:
            continue
        edits: list[Edit] = []
        for less, gone, left in one_less(inputs):
            if rests_on(gone, left, inputs, outputs):
                break
            edits.append(_edit(whole, shown(less)))
        if edits:
            found[str(number)] = edits
    return found


def fact_of(text: str) -> Triple:
    """A fact as it is written in a prompt, ``head | relation | tail``, as a triple without a passage."""
    head, relation, tail = (*text.split(" | ", 2), "", "")[:3]
    return Triple(head, relation, tail, "", 0)


def edited(content: str, edit: Sequence[Any]) -> str:
    """A message's content with an edit made."""
    start, end, text = edit
    return f"{content[:start]}{text}{content[end:]}"


def rests_on(gone: str, left: Sequence[str], inputs: Inputs, outputs: Mapping[str, str]) -> bool:
    """Whether a reply needs a line of its evidence: it names it, or says what no other line says as well.

    Args:
        gone: The line.
        left: All other lines.
        inputs: The call's inputs.
        outputs: The reply.
    """
    chosen = next((outputs[name] for name in ("core", "next") if name in outputs), None)
    if chosen is not None and "facts" in inputs:
        return gone in _chosen(chosen, str(inputs["facts"]))
    triples, _ = parse_triples(outputs.get("triples", ""))
    if any(best_sentence(" ".join(triple), [*left, gone]) == len(left) for triple in triples):
        return True
    stated = [text for name, text in outputs.items() if name not in {"triples", *_ASKING, *_JUDGING}]
    lines = [line for text in stated if not _asks(text) for line in text.replace(";", "\n").splitlines()]
    pieces = [piece for line in lines for piece in split_sentences(line)]
    pieces += [name for head, _, tail in triples for name in (head, tail)]
    held, others = _content(gone), [_content(line) for line in left]
    for piece in pieces:
        said = _content(piece)
        if not (is_refusal(piece) or says_nothing(piece)):
            here = len(said & held)
            if here > max((len(said & other) for other in others), default=0):
                return True
    return False


@lru_cache(maxsize=8)
def _chosen(chosen: str, facts: str) -> frozenset[str]:
    """The lines of a list of facts that a reply chooses."""
    known = [fact_of(fact) for fact in fact_lines(facts)]
    kept, _ = parse_core(chosen, known)
    return frozenset(line for line, fact in zip(facts.splitlines(), known, strict=True) if fact in kept)


def _asks(text: str) -> bool:
    return text.lstrip().lower().startswith("search[")


def _content(text: str) -> set[str]:
    return set(words(text)) - FUNCTION_WORDS


def _edit(whole: str, shorter: str) -> Edit:
    """The one edit that makes the one of the other."""
    start = _same(whole, shorter)
    end = _same(whole[start:][::-1], shorter[start:][::-1])
    return start, len(whole) - end, shorter[start : len(shorter) - end]


def _same(one: str, other: str) -> int:
    """How many letters two texts begin with alike."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
