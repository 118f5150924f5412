"""What one question takes at most, system by system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cirag_dspy.adapter import LineAdapter
from cirag_dspy.modules.queries import MOST_QUERIES
from cirag_dspy.signatures import (
    AnswerAnyway,
    AnswerFromMemory,
    AnswerFromNotes,
    AnswerIfSufficient,
    AnswerWithReason,
    CheckRelevance,
    CheckSummary,
    CompleteChain,
    ContinueReasoning,
    CritiqueAnswer,
    DecomposeQuestion,
    DraftThought,
    IdentifyEntities,
    Integrate,
    JudgeReliability,
    NextAction,
    NextThought,
    OrderSubproblems,
    ReasonFromPassages,
    RefineSummary,
    RewriteQuestions,
    SplitQuestion,
    SummariseEntity,
    UpdateReasoning,
)

# What a reply, a fact and a question take, in characters, as measured with gpt-3.5's triples on MuSiQue passages.
REPLY, FACT, QUESTION = 240, 60, 100
TRIPLES_PER_PASSAGE = 10

Settings = Mapping[str, Any]


def _native_rag(settings: Settings, passage: int) -> tuple[int, int]:
    return 1, _read(settings["k"] * passage)


def _cirag(settings: Settings, passage: int) -> tuple[int, int]:
    """The last level and the forced answer count as K passages each; core triples of several hops may be of more."""
    hops, levels = settings["max_hops"], len(settings["levels"])
    shown = settings["n"] if settings["rank"] else settings["k"] * TRIPLES_PER_PASSAGE
    prompt = _conversation(Integrate, hops, 2 * QUESTION + shown * FACT)
    prompt += levels * (system_size(AnswerIfSufficient) + QUESTION)
    return hops + levels + 1, prompt + _read(2 * settings["k"] * passage)


def _kirag(settings: Settings, passage: int) -> tuple[int, int]:
    steps = settings["max_hops"]
    prompt = steps * (system_size(CompleteChain) + QUESTION + settings["n"] * FACT) + FACT * steps * (steps - 1) // 2
    return steps + 1, prompt + _read(settings["read"] * passage)


def _ircot(settings: Settings, passage: int) -> tuple[int, int]:
    hops = settings["max_hops"]
    collected = [min(settings["keep"], settings["k"] * hop) * passage for hop in range(1, hops + 1)]
    prompt = hops * (system_size(NextThought) + QUESTION) + sum(collected) + _earlier(hops)
    return hops + 1, prompt + _read(collected[-1])


def _flare(settings: Settings, passage: int) -> tuple[int, int]:
    """Worst when each sentence is drafted, and written again from what its search found."""
    hops, found = settings["max_hops"], settings["k"] * passage
    prompt = hops * (system_size(DraftThought) + system_size(NextThought) + 2 * QUESTION + found) + 2 * _earlier(hops)
    return 2 * hops + 1, prompt + _read(found)


def _react(settings: Settings, passage: int) -> tuple[int, int]:
    """Every turn holds all turns before it; the reader then gets what all of them found."""
    hops, found = settings["max_hops"], settings["k"] * passage
    return hops + 1, _conversation(NextAction, hops, QUESTION + found) + _read(hops * found)


def _d2f_reag(settings: Settings, passage: int) -> tuple[int, int]:
    """Worst when nothing but the deepest sub-questions is reliable, and these never make the root so."""
    width, depth = settings["max_subquestions"], settings["max_depth"]
    asked = sum(width**level for level in range(1, depth + 1))
    deepest = width**depth if depth else 0
    lists = sum(width**level for level in range(depth))
    return _total(
        (ReasonFromPassages, 1 + asked, (1 + asked) * settings["k"] * passage),
        (JudgeReliability, 1 + asked + deepest, (1 + asked + deepest) * REPLY),
        (DecomposeQuestion, lists, 0),
        (RewriteQuestions, lists * (width - 1), lists * (width - 1) * (REPLY + width * QUESTION)),
        (CheckRelevance, deepest, deepest * (QUESTION + REPLY)),
        (UpdateReasoning, deepest, deepest * (QUESTION + 2 * REPLY)),
    )


def _metarag(settings: Settings, passage: int) -> tuple[int, int]:
    """Worst when every round splits the question, and finds nothing but new passages."""
    rounds, once = settings["max_hops"], settings["k"] * passage
    searched = [(1 + number * MOST_QUERIES) * once for number in range(rounds + 1)]
    return _total(
        (AnswerWithReason, 1 + rounds, sum(searched) + REPLY * rounds),
        (AnswerFromMemory, 1, 0),
        (CritiqueAnswer, rounds, sum(searched[:-1]) + REPLY * rounds),
        (SplitQuestion, rounds, QUESTION * rounds),
        (AnswerAnyway, 1, searched[-1]),
    )


def _dualrag(settings: Settings, passage: int) -> tuple[int, int]:
    """Worst when every step learns of as many entities as it may."""
    steps, entities, once = settings["max_hops"], settings["max_entities"], settings["k"] * passage
    notes = [number * (entities + 1) * REPLY for number in range(steps + 1)]
    return _total(
        (ContinueReasoning, steps, sum(notes)),
        (IdentifyEntities, steps, sum(notes) + QUESTION * steps),
        (SummariseEntity, steps * entities, steps * entities * (once + 2 * QUESTION) + sum(notes)),
        (AnswerFromNotes, 1, notes[-1]),
        (AnswerAnyway, 1, once),
    )


def _logicrag(settings: Settings, passage: int) -> tuple[int, int]:
    """Worst when no summary suffices."""
    rounds, once = 1 + settings["max_hops"], settings["k"] * passage
    return _total(
        (RefineSummary, rounds, rounds * (once + REPLY + QUESTION)),
        (CheckSummary, rounds, rounds * REPLY),
        (OrderSubproblems, 1, REPLY),
        (AnswerFromNotes, 1, REPLY),
        (AnswerAnyway, 1, once),
    )


def _total(*calls: tuple[Any, int, int]) -> tuple[int, int]:
    """Calls and characters of prompts, from each signature, how often it is called, and what all its calls take beside
    instructions and question.
    """
    prompt = sum(number * (system_size(signature) + QUESTION) + more for signature, number, more in calls)
    return sum(number for _, number, _ in calls), prompt


def system_size(signature: Any) -> int:
    """Characters of a signature's instructions."""
    return len(LineAdapter().format_system_message(signature))


def _read(passages: int) -> int:
    """The reader's prompt over that many characters of passages."""
    return system_size(AnswerAnyway) + QUESTION + passages


def _conversation(signature: Any, turns: int, shown: int) -> int:
    """All prompts of a conversation whose turns show that many characters each."""
    return turns * system_size(signature) + shown * turns * (turns + 1) // 2 + _earlier(turns)


def _earlier(calls: int) -> int:
    """The earlier replies in the prompts of that many calls, each of which shows all before it."""
    return REPLY * calls * (calls - 1) // 2


# What a question takes at most, by system: (settings, characters of a passage) -> LM calls, characters of the prompts.
# A reply of no use, and a reader's refusal, is asked for once more: that is not in it.
QUESTION_COSTS: dict[str, Callable[[Settings, int], tuple[int, int]]] = {
    "cirag": _cirag,
    "d2f_reag": _d2f_reag,
    "dualrag": _dualrag,
    "flare": _flare,
    "ircot": _ircot,
    "kirag": _kirag,
    "logicrag": _logicrag,
    "metarag": _metarag,
    "native_rag": _native_rag,
    "react": _react,
}
