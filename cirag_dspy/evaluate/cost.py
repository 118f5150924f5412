"""What a command would cost, before it calls anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cirag_dspy.benchmarks.base import Benchmark
from cirag_dspy.evaluate.question_costs import (
    FACT,
    QUESTION,
    QUESTION_COSTS,
    REPLY,
    TRIPLES_PER_PASSAGE,
    system_size,
)
from cirag_dspy.schema import Passage
from cirag_dspy.signatures import AnswerIfSufficient, ExtractTriples, FindEntities, JudgeAnswer, RelateEntities

# English prose has about this many characters a token, other scripts about as many bytes of UTF-8; exact counts would
# need the LM's own tokenizer.
CHARACTERS_PER_TOKEN = 4


def extraction_cost(passages: Sequence[Passage], calls: str) -> dict[str, int]:
    """LM calls and tokens to extract the triples of ``passages`` in ``one`` or ``two`` calls each."""
    signatures = (ExtractTriples,) if calls == "one" else (FindEntities, RelateEntities)
    prompt = sum(system_size(signature) for signature in signatures) * len(passages)
    prompt += sum(_size(passage) + 20 for passage in passages) * len(signatures)
    reply = len(passages) * TRIPLES_PER_PASSAGE * FACT
    return {
        "lm_calls": len(passages) * len(signatures),
        "prompt_tokens": _tokens(prompt),
        "reply_tokens": _tokens(reply),
    }


def run_cost(benchmark: Benchmark, system: str, settings: Mapping[str, Any]) -> dict[str, int]:
    """LM calls and tokens that answering a benchmark's questions takes at most, every hop and level being needed; where
    no reply is asked for again.

    Empty for a system that ``QUESTION_COSTS`` lacks.
    """
    if system not in QUESTION_COSTS:
        return {}
    questions = len(benchmark.examples)
    calls, prompt = QUESTION_COSTS[system](settings, _passage(benchmark))
    return {
        "lm_calls": questions * calls,
        "prompt_tokens": questions * _tokens(prompt),
        "reply_tokens": questions * calls * _tokens(REPLY),
    }


def judging_cost(benchmark: Benchmark) -> dict[str, int]:
    """LM calls and tokens to judge an answer to each of a benchmark's questions, none being word for word right."""
    questions = len(benchmark.examples)
    return {
        "lm_calls": questions,
        "prompt_tokens": questions * _tokens(system_size(JudgeAnswer) + 2 * QUESTION),
        "reply_tokens": questions * _tokens(FACT),
    }


def contrasts_cost(benchmark: Benchmark, settings: Mapping[str, Any]) -> dict[str, int]:
    """LM calls and tokens to ask again, with other evidence, for the answer to each of a benchmark's questions: from
    less, and where it is of triples from more and from both.
    """
    asked = len(benchmark.examples) * (3 if "triples" in settings["levels"] else 1)
    prompt = system_size(AnswerIfSufficient) + QUESTION + settings["k"] * _passage(benchmark)
    return {"lm_calls": asked, "prompt_tokens": asked * _tokens(prompt), "reply_tokens": asked * _tokens(REPLY)}


def rows_cost(benchmark: Benchmark, program: Any, settings: Mapping[str, Any], contrast: bool) -> dict[str, int]:
    """Chat rows, and their tokens, that the trajectories of a benchmark's questions give at most: a conversation of all
    hops and an answer of each level a question.

    Args:
        benchmark: Its questions are trained on.
        program: Its signatures are the prompts.
        settings: Its settings.
        contrast: Whether answers are asked for again with other evidence, where the program can refuse.
    """
    turn = 2 * QUESTION + settings.get("n", 0) * FACT + REPLY
    context = QUESTION + settings.get("k", 0) * _passage(benchmark) + REPLY
    sizes = []
    for _, predictor in program.named_predictors():
        fields = predictor.signature.input_fields
        if "question" in fields:
            prompt = settings["max_hops"] * turn if "facts" in fields else context
            sizes.append(system_size(predictor.signature) + prompt)
            if contrast and "evidence" in fields:
                sizes += sizes[-1:] * (3 if "triples" in settings["levels"] else 1)
                contrast = False
    return {"rows": len(benchmark.examples) * len(sizes), "tokens": len(benchmark.examples) * _tokens(sum(sizes))}


def most_passages(benchmark: Benchmark, settings: Mapping[str, Any]) -> int:
    """How many passages the questions can retrieve at most: those that online extraction may have to read."""
    retrieved = len(benchmark.examples) * settings.get("max_hops", 1) * settings.get("k", len(benchmark.passages))
    return min(len(benchmark.passages), retrieved)


def _passage(benchmark: Benchmark) -> int:
    """Mean size of a passage."""
    return sum(map(_size, benchmark.passages)) // max(1, len(benchmark.passages))


def _size(passage: Passage) -> int:
    """Bytes of a passage in UTF-8: letters of other scripts cost more tokens than Latin ones."""
    return len(f"{passage.title}{passage.text}".encode())


def _tokens(characters: int) -> int:
    return round(characters / CHARACTERS_PER_TOKEN)
