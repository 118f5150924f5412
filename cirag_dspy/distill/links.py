"""What an aligner learns from: gold chains of triples, taken apart into what is known and what comes next.

KiRAG, section 3.4 and appendix B.3. The gold steps of a question come from `GoldChain`; the triple of a step is one
that states it (``Step.holds``), extracted from the gold passage that the step names.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from cirag_dspy.corpus.shelves import fact
from cirag_dspy.errors import RunError
from cirag_dspy.lms.gold import GoldChain, Step
from cirag_dspy.modules.chain import aligner_query, search_query
from cirag_dspy.modules.construct import distinct_facts
from cirag_dspy.modules.search import SearchIndex
from cirag_dspy.schema import Passage, Triple
from cirag_dspy.text import one_line, words

MOST_LOOKS = 64  # a question; the orders of a comparison multiply
Rank = Callable[[str, Sequence[Triple]], list[tuple[Triple, float]]]


@dataclass(frozen=True)
class Look:
    """An incomplete chain, as the aligner meets it.

    Args:
        chain: The triples so far.
        query: What is ranked against.
        offered: The triples of all passages that were retrieved up to here, without those of the chain.
        following: The gold triples that may come next: for each step that is open, all that state it.
        wrong: What is offered and states none of these steps.
    """

    chain: tuple[Triple, ...]
    query: str
    offered: tuple[Triple, ...]
    following: tuple[tuple[Triple, ...], ...]
    wrong: tuple[Triple, ...]


@dataclass(frozen=True)
class Walk:
    """The looks along a question's gold chain: of a comparison, in every order.

    ``gold`` are the passages that answer the question, ``missing`` further ones that the corpus lacks; of ``steps``
    gold steps ``stated`` have a triple.
    """

    question: str
    looks: tuple[Look, ...]
    gold: tuple[str, ...]
    missing: int
    steps: int
    stated: int

    @property
    def path(self) -> list[Look]:
        """The looks of the first order alone."""
        return [look for number, look in enumerate(self.looks) if len(look.chain) == number]


@dataclass(frozen=True)
class Row:
    """What training sees: a query about a question, the triple that comes next, and triples that do not."""

    question: str
    query: str
    positive: str
    negatives: tuple[str, ...]


def walk(example: Any, corpus: Mapping[str, Passage], index: SearchIndex, k: int) -> Walk:
    """The walk of a question.

    At each look passages are retrieved as `KiRAG` does. A chain ends where no triple states what comes next.

    Args:
        example: A question with its gold, as ``load_benchmark`` makes it.
        corpus: The passages that ids in the gold mean.
        index: Has them, with their triples.
        k: Passages retrieved at each look.
    """
    question = one_line(example.question)
    chain = GoldChain.of(example, corpus)
    stating = gold_triples(example, chain, corpus, index)
    looks: list[Look] = []

    def look(known: tuple[Triple, ...], before: tuple[str, ...]) -> None:
        steps = chain.open_steps(question, [triple.text for triple in known])
        steps = [number for number in (steps if chain.takes_all else steps[:1]) if stating[number]]
        if (known and not steps) or len(looks) == MOST_LOOKS:
            return
        hits = index.search(search_query(question, known), k)
        retrieved = tuple(dict.fromkeys([*before, *(hit.passage.id for hit in hits)]))
        offered = tuple(distinct_facts(index, retrieved, exclude=known))
        open_steps = [chain.steps[number] for number in steps]
        wrong = tuple(triple for triple in offered if not any(step.holds(triple.text) for step in open_steps))
        following = tuple(tuple(stating[number]) for number in steps)
        looks.append(Look(known, aligner_query(question, known), offered, following, wrong))
        for triples in following:
            look((*known, triples[0]), retrieved)

    look((), ())
    gold, missing = tuple(example.gold_passages), int(example.get("gold_missing") or 0)
    return Walk(question, tuple(looks), gold, missing, len(chain.steps), sum(map(bool, stating)))


def gold_triples(
    example: Any, chain: GoldChain, corpus: Mapping[str, Passage], index: SearchIndex
) -> list[list[Triple]]:
    """For each step the triples that state it, of the gold passages that it can be in; those of fewest words first."""
    found = index.triples(example.gold_passages)

    def stating(step: Step) -> list[Triple]:
        named = [id for id in example.gold_passages if id in corpus and step.title in ("", corpus[id].title)]
        held = [triple for id in named for triple in found.get(id, ()) if step.holds(triple.text)]
        return sorted(held, key=lambda triple: len(words(triple.text)))

    return [stating(step) for step in chain.steps]


def rows(walks: Sequence[Walk], *, negatives: int, most: int, seed: int) -> list[Row]:
    """The rows of questions: one for each gold triple that may come next, and each incomplete chain before it.

    Args:
        walks: The questions.
        negatives: Wrong triples a row, drawn at random; where fewer are offered, they come again.
        most: Rows a question, drawn at random, so that comparisons, with their many orders, do not outweigh the rest.
        seed: Of both draws.
    """
    made: list[Row] = []
    for one in walks:
        draw = random.Random(f"{seed}/{one.question}")
        links = [(look, triples[0]) for look in one.looks for triples in look.following]
        for look, triple in draw.sample(links, min(most, len(links))):
            wrong = list(dict.fromkeys(map(fact, look.wrong)))
            wrong = [text for text in wrong if text != fact(triple)]
            if wrong:
                drawn = islice(cycle(draw.sample(wrong, min(negatives, len(wrong)))), negatives)
                made.append(Row(one.question, look.query, fact(triple), tuple(drawn)))
    return made


def split(walks: Sequence[Walk], share: float, seed: int) -> tuple[list[Walk], list[Walk]]:
    """Questions to train on, and a share of all, at least one, drawn at random, to choose the checkpoint by.

    Raises:
        RunError: There are fewer than two.
    """
    if len(walks) < 2:
        raise RunError(f"{len(walks)} question(s) are too few: it takes one to train on and one to choose by")
    kept = min(len(walks) - 1, max(1, round(share * len(walks))))
    apart = set(random.Random(seed).sample(range(len(walks)), kept))
    return (
        [one for number, one in enumerate(walks) if number not in apart],
        [one for number, one in enumerate(walks) if number in apart],
    )


def triple_recall(walks: Sequence[Walk], rank: Rank, n: int) -> float:
    """Share of the gold triples that are among the ``n`` best of those offered, each given the gold chain before it.

    A step counts once, as found if any triple that states it, or the same words from another passage, is among them.
    """
    found = []
    for one in walks:
        for look in one.path:
            best = {triple.text for triple, _ in rank(look.query, look.offered)[:n]}
            found += [any(triple.text in best for triple in triples) for triples in look.following]
    return sum(found) / len(found) if found else 0.0


def passage_recall(walks: Sequence[Walk], rank: Rank, k: int, n: int) -> float:
    """Recall of the gold passages among the ``k`` that have the best triples (section 3.3), along the gold chain.

    At each look the ``n`` best triples are scored. What the corpus lacks counts as not found; questions without gold
    passages do not count.
    """
    recalls = []
    for one in walks:
        best: dict[str, float] = {}
        for look in one.path:
            for triple, score in rank(look.query, look.offered)[:n]:
                best[triple.passage_id] = max(score, best.get(triple.passage_id, score))
        if total := len(set(one.gold)) + one.missing:
            recalls.append(len(set(one.gold).intersection(sorted(best, key=lambda id: -best[id])[:k])) / total)
    return sum(recalls) / len(recalls) if recalls else 0.0
