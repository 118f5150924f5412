"""What counts as an answer, and when a system may say that it has one. The one place for both rules.

Every system's prediction has ``answered``:

- A reply that is no answer (a refusal, garbage, the prompt's or the question's own words) is never one: ``answer`` is
  empty and ``answered`` false.
- An answer that a gate let pass, as a level of CIRAG's cascade does, is answered.
- An answer that was forced ("always give the most likely answer") is a guess: it is answered if it stands in the
  evidence that it was read from. Yes, no and what the question offers to choose from count as standing.
- A guess after the system itself had found its evidence insufficient is not answered, wherever it stands.

``answer`` keeps the guess where ``answered`` is false, since the benchmarks score guesses; whoever wants honest answers
only leaves it out (``--abstain``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import dspy

from cirag_dspy import signatures
from cirag_dspy.modules.grounding import holds_answer
from cirag_dspy.text import holds_run, is_refusal, match_key, words

# Words of labels and of what stands for an answer in a template. A reply of nothing else is no answer.
_LABELS = frozenset(
    re.findall(
        r"\w+",
        "a an the this is be my your our it short bare final best most likely correct exact predicted actual "
        "here insert placeholder answer answers question questions thought thoughts reason reasoning evidence "
        "passage passages context notes facts fact output response result reply text string null nil "
        "undefined nan unk pad eos bos inst sep mask json input",
    )
)
_TOKENS = re.compile(r"<[|/]?[\w\s|/-]{1,24}>|\[/?(?:INST|PAD|UNK|MASK|SEP|CLS)\]|\[\[?\s*##.{0,60}?##\s*\]?\]", re.I)
_ASKS = frozenset(
    re.findall(r"\w+", "who whom whose what which where when why how is are was were did does do can in of name")
)


def is_answer(text: str, question: str = "", evidence: Iterable[str] = ()) -> bool:
    """Whether a bare answer, as ``read_answer`` gives it, is one.

    Not so refusals, text without words, repeated or mostly made of marks, tokens of a model's own, and the words of the
    prompt: labels, descriptions of fields, instructions, the question. What looks like the prompt's words but stands in
    the evidence with its capitals (a film called "Evidence") is an answer; so is a refusal's word that is a title or an
    end of a fact there (a film called "Unknown").

    Args:
        text: The bare answer.
        question: What was asked.
        evidence: Lines that it was read from.
    """
    evidence = list(evidence)
    if _is_garbage(text) or (is_refusal(text) and not _is_named(text, evidence)):
        return False
    if not (_is_of_the_prompt(text) or _is_the_question(text, question)):
        return True
    return text != text.lower() and any(text in line for line in evidence)


def concluded(
    answer: str, question: str, evidence: Sequence[str] = (), *, forced: bool, refused: bool = False
) -> dict[str, Any]:
    """``answer`` and ``answered`` of a prediction, by the rules above.

    Args:
        answer: The bare answer, maybe empty or none.
        question: What was asked.
        evidence: Lines that it was read from.
        forced: Whether the reader had to answer.
        refused: Whether the system found its evidence insufficient before.
    """
    if not is_answer(answer, question, evidence):
        return {"answer": "", "answered": False}
    return {"answer": answer, "answered": not refused and (not forced or stands(answer, question, evidence))}


def stands(answer: str, question: str, evidence: Sequence[str]) -> bool:
    """Whether a line of the evidence holds an answer; of an answer of several items, each may stand in another line."""
    if holds_answer(evidence, answer, question):
        return True
    items = [item for item in re.split(r"\s*[,;、，；]\s*|\s+and\s+", answer) if words(item)]
    return len(items) > 1 and all(holds_answer(evidence, item, question) for item in items)


def _is_named(text: str, evidence: Sequence[str]) -> bool:
    """Whether a text with a capital is the title of a passage, or the head or tail of a fact."""
    if text == text.lower():
        return False
    ends = [end for line in evidence for end in (line.partition(": ")[0], *line.split(" | ")[::2])]
    return text in (re.sub(r"^\d+\. | \([^()]*\)$", "", end.strip()) for end in ends)


def _is_garbage(text: str) -> bool:
    rest = _TOKENS.sub(" ", text)
    marks = [sign for sign in rest if not sign.isspace()]
    found = words(rest)
    if not found or ("\ufffd" in text and 4 * text.count("\ufffd") >= len(marks)):
        return True
    kinds = len(set(found))
    repeated = (len(found) >= 4 and kinds == 1) or (len(found) >= 12 and 5 * kinds <= len(found))
    return repeated or 3 * sum(sign.isalnum() or bool(words(sign)) for sign in marks) < len(marks)


def _is_of_the_prompt(text: str) -> bool:
    found = words(text)
    if set(found) <= _LABELS:
        return True
    if len(found) == 2:
        return match_key(text) in _described()
    return len(found) > 2 and any(holds_run(prompt, text) for prompt in _prompts())


def _is_the_question(text: str, question: str) -> bool:
    """Whether it is the question, holds it, or is the greater part of it as it is asked."""
    found, asked = words(text), words(question)
    if not asked:
        return False
    if found == asked or (len(asked) > 2 and holds_run(text, question)):
        return True
    partly = len(found) >= 4 and 5 * len(found) >= 3 * len(asked) and holds_run(question, text)
    return partly and found[0] in _ASKS


@cache
def _prompts() -> tuple[str, ...]:
    """Every instruction and description of ours."""
    found: list[Any] = [one for one in vars(signatures).values() if _is_signature(one)]
    described = (field.json_schema_extra or {} for one in found for field in one.fields.values())
    return tuple(dict.fromkeys([*(one.instructions for one in found), *(str(said.get("desc")) for said in described)]))


def _is_signature(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, dspy.Signature)


@cache
def _described() -> frozenset[str]:
    """The parts of all instructions and descriptions: "one fact a line", "none if there is none"."""
    return frozenset(match_key(part) for text in _prompts() for part in re.split(r"[.;:,()]", text))
