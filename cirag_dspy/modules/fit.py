"""How a prompt that is too long is made to fit, at inference and in training rows alike: evidence gives way.

Whole lines of evidence go from the end, where the lowest ranks are; of a text of one line, its last sentences. The
reasoning so far goes from its beginning, for what was concluded stands at its end. Of a conversation the oldest turns
go first. Instructions, question, query and whatever else a signature asks with are never shortened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dspy

from cirag_dspy.text import split_sentences

Inputs = dict[str, Any]

# Input fields that give way, the first of them first. Any other field stays whole.
RANKED = ("facts", "passages", "passage", "evidence", "knowledge", "observation", "notes", "summary")
REASONED = ("previous", "finding", "reasoning", "thoughts", "predicted")
_SHORT = 200  # letters of a single sentence that is not cut into


def smaller(inputs: Inputs, fields: Sequence[str] | None = None) -> Inputs | None:
    """The inputs of a call one step shorter; ``None`` when nothing is left that may go.

    The step is the oldest turn of the history, else the last quarter of the first field's lines. It is for LMs that
    say only that a prompt is too long; where tokens can be counted, ``one_less`` loses no more than it must.

    Args:
        inputs: Input fields by name.
        fields: The fields that give way; by default those of ``RANKED`` and ``REASONED`` among the inputs.
    """
    history = inputs.get("history")
    if isinstance(history, dspy.History) and history.messages:
        return {**inputs, "history": dspy.History(messages=history.messages[1:])}
    for name in giving_way(inputs) if fields is None else fields:
        pieces, join = _pieces(str(inputs[name]))
        if len(pieces) > 1:
            gone = max(1, len(pieces) // 4)
            return {**inputs, name: join.join(pieces[gone:] if name in REASONED else pieces[:-gone])}
        if len(pieces[0]) > _SHORT:  # a single sentence: better a part of it than no answer at all
            words = pieces[0].split(" ")
            kept = words[: len(words) // 2] if len(words) > 1 else [pieces[0][: len(pieces[0]) // 2]]
            return {**inputs, name: " ".join(kept)}
    return None


def one_less(inputs: Inputs) -> Iterator[tuple[Inputs, str, list[str]]]:
    """Ever smaller inputs, each one line (of a single line, one sentence) less than the one before.

    Turns of a history are left as they are, and the last line of a field stays.

    Yields:
        The inputs, the piece that went, and the pieces that are left of all fields that give way.
    """
    fields = giving_way(inputs)
    left = {name: _pieces(str(inputs[name])) for name in fields}
    for name in fields:
        pieces, join = left[name]
        while len(pieces) > 1:
            gone = pieces.pop(0 if name in REASONED else -1)
            inputs = {**inputs, name: join.join(pieces)}
            yield inputs, gone, [piece for known, _ in left.values() for piece in known]
            if join == "\n" and len(pieces) == 1:  # the last line stays, and may lose sentences
                pieces, join = left[name] = _pieces(pieces[0])


def giving_way(inputs: Inputs) -> list[str]:
    """The names of the input fields that give way, in their order."""
    return [name for name in (*RANKED, *REASONED) if name in inputs]


def _pieces(text: str) -> tuple[list[str], str]:
    """The lines of a text, or the sentences of a single one, and what joins them."""
    lines = text.splitlines()
    if len(lines) > 1:
        return lines, "\n"
    sentences = split_sentences(text)
    blank = " " if " ".join(sentences) == text else ""  # some scripts have no blanks between sentences
    return (sentences, blank) if sentences and blank.join(sentences) == text else ([text], " ")
