"""What a command would cost, before it calls anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cirag_dspy.adapter import LineAdapter
from cirag_dspy.benchmarks.base import Benchmark
from cirag_dspy.modules.queries import MOST_QUERIES
from cirag_dspy.schema import Passage
from cirag_dspy.signatures import (
    Act,
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
    ExtractTriples,
    FindEntities,
    IdentifyEntities,
    Integrate,
    JudgeAnswer,
    JudgeReliability,
    NextThought,
    OrderSubproblems,
    ReasonFromPassages,
    RefineSummary,
    RelateEntities,
    RewriteQuestions,
    SplitQuestion,
    SummariseEntity,
    UpdateReasoning,
)

# English prose has about this many characters a token; exact counts would need the LM's own tokenizer.
CHARACTERS_PER_TOKEN = 4
# What a reply, a fact and a question take, in characters, as measured with gpt-3.5's triples on MuSiQue passages.
REPLY, FACT, QUESTION, SENTENCE = 240, 60, 100, 100
TRIPLES_PER_PASSAGE = 10


def extraction_cost(passages: Sequence[Passage], calls: str) -> dict[str, int]:
    """LM calls and tokens to extract the triples of ``passages`` in ``one`` or ``two`` calls each."""
    signatures = (ExtractTriples,) if calls == "one" else (FindEntities, RelateEntities)
    prompt = sum(_system(signature) for signature in signatures) * len(passages)
    prompt += sum(len(passage.title) + len(passage.text) + 20 for passage in passages) * len(signatures)
    reply = len(passages) * TRIPLES_PER_PASSAGE * FACT
    return {
        "lm_calls": len(passages) * len(signatures),
        "prompt_tokens": _tokens(prompt),
        "reply_tokens": _tokens(reply),
    }


def run_cost(benchmark: Benchmark, system: str, settings: Mapping[str, Any]) -> dict[str, int]:
    """LM calls and tokens that answering a benchmark's questions takes at most, every hop and level being needed.

    Empty for a system whose calls are not known here.
    """
    if system not in _AT_MOST:
        return {}
    questions = len(benchmark.examples)
    calls, prompt = _AT_MOST[system](settings, _passage(benchmark))
    return {
        "lm_calls": questions * calls,
        "prompt_tokens": questions * _tokens(prompt),
        "reply_tokens": questions * calls * _tokens(REPLY),
    }


def _native_rag(settings: Mapping[str, Any], passage: int) -> tuple[int, int]:
    return 1, _system(AnswerAnyway) + QUESTION + settings["k"] * passage


def _cirag(settings: Mapping[str, Any], passage: int) -> tuple[int, int]:
    hops, levels = settings["max_hops"], len(settings["levels"])
    turn = 2 * QUESTION + settings["n"] * FACT
    prompt = hops * _system(Integrate) + turn * hops * (hops + 1) // 2 + REPLY * hops * (hops - 1) // 2
    prompt += levels * (_system(AnswerIfSufficient) + QUESTION) + _system(AnswerAnyway) + 2 * settings["k"] * passage
    return hops + levels + 1, prompt


def _d2f_reag(settings: Mapping[str, Any], passage: int) -> tuple[int, int]:
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


def _kirag(settings: Mapping[str, Any], passage: int) -> tuple[int, int]:
    steps = settings["max_hops"]
    prompt = steps * (_system(CompleteChain) + QUESTION + settings["n"] * FACT) + FACT * steps * (steps - 1) // 2
    return steps + 1, prompt + _system(AnswerAnyway) + QUESTION + settings["read"] * passage


def _ircot(settings: Mapping[str, Any], passage: int) -> tuple[int, int]:
    steps = settings["max_hops"]
    read = sum(min(step * settings["k"], settings["keep"]) for step in range(1, steps + 1))
    read += min(steps * settings["k"], settings["keep"])
    prompt = steps * (_system(NextThought) + QUESTION) + SENTENCE * steps * (steps - 1) // 2
    return steps + 1, prompt + _system(AnswerAnyway) + QUESTION + read * passage


def _react(settings: Mapping[str, Any], passage: int) -> tuple[int, int]:
    """Every turn holds all turns before it; the reader then gets what all of them found."""
    turns, found = settings["max_hops"], settings["k"] * passage
    prompt = turns * (_system(Act) + QUESTION) + (QUESTION + found + REPLY) * turns * (turns - 1) // 2
    return turns + 1, prompt + _system(AnswerAnyway) + QUESTION + turns * found


def _flare(settings: Mapping[str, Any], passage: int) -> tuple[int, int]:
    """Each sentence is drafted, and written again from what its search found."""
    steps = settings["max_hops"]
    prompt = 2 * steps * (_system(NextThought) + QUESTION) + SENTENCE * steps * (steps - 1)
    prompt += _system(AnswerAnyway) + QUESTION
    return 2 * steps + 1, prompt + 2 * steps * settings["k"] * passage


def _metarag(settings: Mapping[str, Any], passage: int) -> tuple[int, int]:
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


def _dualrag(settings: Mapping[str, Any], passage: int) -> tuple[int, int]:
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


def _logicrag(settings: Mapping[str, Any], passage: int) -> tuple[int, int]:
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
    prompt = sum(number * (_system(signature) + QUESTION) + more for signature, number, more in calls)
    return sum(number for _, number, _ in calls), prompt


# What a question takes at most, by system: (settings, characters of a passage) -> LM calls, characters of the prompts.
_AT_MOST: dict[str, Callable[[Mapping[str, Any], int], tuple[int, int]]] = {
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


def judging_cost(benchmark: Benchmark) -> dict[str, int]:
    """LM calls and tokens to judge an answer to each of a benchmark's questions, none being word for word right."""
    questions = len(benchmark.examples)
    return {
        "lm_calls": questions,
        "prompt_tokens": questions * _tokens(_system(JudgeAnswer) + 2 * QUESTION),
        "reply_tokens": questions * _tokens(FACT),
    }


def refusals_cost(benchmark: Benchmark, settings: Mapping[str, Any]) -> dict[str, int]:
    """LM calls and tokens to ask once more, from less evidence, for the answer to each of a benchmark's questions."""
    questions = len(benchmark.examples)
    prompt = _system(AnswerIfSufficient) + QUESTION + settings["k"] * _passage(benchmark)
    return {
        "lm_calls": questions,
        "prompt_tokens": questions * _tokens(prompt),
        "reply_tokens": questions * _tokens(REPLY),
    }


def rows_cost(benchmark: Benchmark, program: Any, settings: Mapping[str, Any], contrast: bool) -> dict[str, int]:
    """Chat rows, and their tokens, that the trajectories of a benchmark's questions give at most: a conversation of all
    hops and an answer of each level a question.

    Args:
        benchmark: Its questions are trained on.
        program: Its signatures are the prompts.
        settings: Its settings.
        contrast: Whether there is a refusal a question as well, where the program can refuse.
    """
    turn = 2 * QUESTION + settings.get("n", 0) * FACT + REPLY
    context = QUESTION + settings.get("k", 0) * _passage(benchmark) + REPLY
    sizes = []
    for _, predictor in program.named_predictors():
        fields = predictor.signature.input_fields
        if "question" in fields:
            prompt = settings["max_hops"] * turn if "facts" in fields else context
            sizes.append(_system(predictor.signature) + prompt)
            if contrast and "evidence" in fields:
                sizes.append(sizes[-1])
                contrast = False
    return {"rows": len(benchmark.examples) * len(sizes), "tokens": len(benchmark.examples) * _tokens(sum(sizes))}


def most_passages(benchmark: Benchmark, settings: Mapping[str, Any]) -> int:
    """How many passages the questions can retrieve at most: those that online extraction may have to read."""
    retrieved = len(benchmark.examples) * settings.get("max_hops", 1) * settings.get("k", len(benchmark.passages))
    return min(len(benchmark.passages), retrieved)


def _passage(benchmark: Benchmark) -> int:
    """Mean characters of a passage."""
    return sum(len(p.title) + len(p.text) for p in benchmark.passages) // max(1, len(benchmark.passages))


def _system(signature: Any) -> int:
    return len(LineAdapter().format_system_message(signature))


def _tokens(characters: int) -> int:
    return round(characters / CHARACTERS_PER_TOKEN)
