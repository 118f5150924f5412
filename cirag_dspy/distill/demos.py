"""Which calls of a trajectory become demonstrations, and in what form.

DSPy keeps one random call per predictor and question, and shows whole training questions to predictors that know
nothing of their fields. Here demonstrations are chosen on purpose: a loop's hops in turn, decisions to go on and to
stop alike, over different questions; and only ones with every field.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import dspy

from cirag_dspy.distill.trajectories import Call
from cirag_dspy.modules.parse import parse_triples
from cirag_dspy.text import is_empty_query, is_refusal, one_line


@dataclass(frozen=True)
class Step:
    """A call that can be shown.

    Args:
        predictor: Its predictor's name.
        hop: The how-manieth call of that predictor for this question; 0 of one that does not depend on the question,
            as in extraction.
        goes_on: Whether it leaves the question to what comes after it: asks for another search, or refuses to answer.
        demo: The demonstration.
    """

    predictor: str
    hop: int
    goes_on: bool
    demo: dspy.Example


def steps(calls: Sequence[Call], example: dspy.Example, signatures: Mapping[str, type[dspy.Signature]]) -> list[Step]:
    """The calls of one question that can be shown, in an order that does not depend on threads.

    Args:
        calls: The question's calls, in the order they were made.
        example: The question.
        signatures: Of the program's predictors, by name.
    """
    hops: Counter[str] = Counter()
    of_loop: list[Step] = []
    others: list[Step] = []
    for call in calls:
        about = is_about(call.inputs, example)
        hops[call.predictor] += about
        made = demonstration(call, signatures[call.predictor]) if call.predictor in signatures else None
        if made is not None:
            step = Step(call.predictor, hops[call.predictor] if about else 0, _goes_on(call.outputs), made)
            (of_loop if about else others).append(step)
    # Passages are extracted in threads, so their order is chance; that of their texts is not, and favours no letter.
    return of_loop + sorted(others, key=lambda step: zlib.crc32(repr(sorted(step.demo.items())).encode()))


def is_about(fields: Mapping[str, Any], example: dspy.Example) -> bool:
    """Whether a call, or a demonstration, was given the question."""
    return all(one_line(str(fields.get(name))) == one_line(str(value)) for name, value in example.inputs().items())


def demonstration(call: Call, signature: type[dspy.Signature]) -> dspy.Example | None:
    """A call as a demonstration with every field of its signature; ``None`` where one is missing or of no use.

    A demonstration of a later hop is that one turn: its question, query, facts and decision. The turns before it are
    left out, as our adapter leaves them out of its prompts, and stand as an empty history (plain, as it would come back
    from a file), so that DSPy does not mark the demonstration as incomplete; what they had found is said in its
    ``thought``.
    """
    histories = [name for name, field in signature.fields.items() if field.annotation is dspy.History]
    fields: dict[str, Any] = {**call.inputs, **call.outputs, **{name: {"messages": []} for name in histories}}
    required = [name for name, field in signature.output_fields.items() if field.is_required()]
    if any(name not in fields for name in signature.fields) or not all(fields[name] for name in required):
        return None
    if "triples" in required and not parse_triples(fields["triples"])[0]:
        return None
    return dspy.Example(augmented=True, **{name: fields[name] for name in signature.fields})


def balanced(questions: Sequence[Sequence[Step]], n: int) -> list[dspy.Example]:
    """At most ``n`` demonstrations of one predictor: its hops in turn, of those the decision and question less shown.

    The decision comes before the question, or deep hops, of which only few questions have any, would fill a prompt with
    last hops, and teach to stop. For the same reason they choose first. Among equals the first is taken.

    Args:
        questions: For each question its steps of this predictor.
        n: Demonstrations at most.

    Returns:
        The demonstrations by turn: hop 1, hop 2, hop 3, hop 1, ...
    """
    by_hop: dict[int, list[tuple[int, Step]]] = {}
    for question, made in enumerate(questions):
        for step in made:
            by_hop.setdefault(step.hop, []).append((question, step))
    rounds = zip_longest(*([hop] * len(by_hop[hop]) for hop in sorted(by_hop)))
    turns = [hop for one_round in rounds for hop in one_round if hop is not None][:n]
    shown: Counter[bool] = Counter()
    used: Counter[int] = Counter()
    chosen: dict[int, list[dspy.Example]] = {hop: [] for hop in turns}
    for hop in sorted(turns, reverse=True):
        left = by_hop[hop]
        best = min(left, key=lambda item: (shown[item[1].goes_on], used[item[0]]))
        left[:] = [item for item in left if item is not best]
        question, step = best
        shown[step.goes_on] += 1
        used[question] += 1
        chosen[hop].append(step.demo)
    return [chosen[hop].pop(0) for hop in turns]


def labelled(
    predictor: dspy.Predict, examples: Sequence[dspy.Example], k: int, rng: random.Random
) -> list[dspy.Example]:
    """At most ``k`` training questions that have every field of a predictor: none for one within a larger program."""
    complete = [example for example in examples if all(name in example for name in predictor.signature.fields)]
    return rng.sample(complete, min(max(k, 0), len(complete)))


def _goes_on(outputs: Mapping[str, str]) -> bool:
    if "next_query" in outputs:
        return not is_empty_query(outputs["next_query"])
    return is_refusal(outputs.get("answer", "an answer"))
