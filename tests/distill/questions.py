"""Questions of the world in tests/systems, a plan for each, and an LM that follows it.

K = 2 and N = 4, as in tests/systems. WHICH takes three hops, WHERE two, WHO and OLDER one.
"""

from __future__ import annotations

from dataclasses import dataclass

import dspy

from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import Document
from cirag_dspy.systems.cirag import CIRAGModule
from tests.fakes import WordEncoder, fields_of
from tests.systems.world import FACTS, PASSAGES, fill


@dataclass(frozen=True)
class Plan:
    """What is kept, what is asked after each query, what is answered, and the evidence that is enough for it."""

    question: str
    facts: tuple[str, ...]
    queries: dict[str, str]
    answer: str
    gold: tuple[tuple[str, int], ...]


DIRECTED = "Harbor Song | was directed by | Ada Brook"
BORN = "Ada Brook | was born in | Velden"
RIVER = "Velden | lies on | the river Ree"
LIGHT = "Harbor Light | was directed by | Tom Hale"
MORA = "Tom Hale | was born in | Mora"
SONG_YEAR = "Harbor Song | is a film of | 1950"
LIGHT_YEAR = "Harbor Light | is a film of | 1961"

WHICH = "Which river flows by the birthplace of the director of Harbor Song?"
WHERE = "Where was the director of the film Harbor Light born?"
WHO = "Who directed the film Harbor Song?"
OLDER = "Which film is older, Harbor Song or Harbor Light?"

PLANS = {
    plan.question: plan
    for plan in (
        Plan(
            WHICH,
            (DIRECTED, BORN, RIVER),
            {WHICH: "Ada Brook was born in", "Ada Brook was born in": "Velden lies on the river"},
            "the river Ree",
            (("Harbor Song", 1), ("Ada Brook", 1), ("Velden", 1)),
        ),
        Plan(
            WHERE,
            (LIGHT, MORA),
            {WHERE: "Tom Hale was born in"},
            "Mora",
            (("Harbor Light", 1), ("Tom Hale", 1)),
        ),
        Plan(WHO, (DIRECTED,), {}, "Ada Brook", (("Harbor Song", 1),)),
        Plan(OLDER, (SONG_YEAR, LIGHT_YEAR), {}, "Harbor Song", (("Harbor Song", 0), ("Harbor Light", 0))),
    )
}


def example(question: str) -> dspy.Example:
    plan = PLANS[question]
    gold = [(PASSAGES[title].id, sentence) for title, sentence in plan.gold]
    return dspy.Example(
        id=question,
        question=question,
        answer=plan.answer,
        answers=[plan.answer],
        gold_sentences=gold,
        gold_passages=list(dict.fromkeys(id for id, _ in gold)),
        dataset="demo",
    ).with_inputs("question")


EXAMPLES = [example(question) for question in PLANS]


class PlannedLM:
    """Follows the plan of the question it is asked; where ``able(messages)`` is false, it keeps nothing and asks nothing.

    ``wrong`` questions get another answer.
    """

    def __init__(self, able=lambda messages: True, wrong=()):
        self.able = able
        self.wrong = set(wrong)
        self.calls = []

    def __call__(self, messages):
        system, fields = messages[0]["content"], fields_of(messages[-1]["content"])
        if "triples:" in system:
            self.calls.append(("extract", fields["title"]))
            return "entities: x\ntriples:\n" + "\n".join(" | ".join(fact[:3]) for fact in FACTS[fields["title"]])
        plan = PLANS[fields["question"]]
        if "core:" in system:
            self.calls.append(("integrate", fields["query"]))
            if not self.able(messages):
                return "thought: no idea\ncore: none\nnext_query: none"
            numbered = [line.split(". ", 1) for line in fields["facts"].splitlines()]
            core = ", ".join(number for number, fact in numbered if fact in plan.facts) or "none"
            return f"thought: about {fields['query']}\ncore: {core}\nnext_query: {plan.queries.get(fields['query'], 'none')}"
        if "evidence" in fields:
            enough = all(fact in fields["evidence"] for fact in plan.facts)
            answer = ("something else" if plan.question in self.wrong else plan.answer) if enough else "unanswerable"
            self.calls.append(("answer", fields["question"]))
            return f"thought: t\nanswer: {answer}"
        self.calls.append(("forced", fields["question"]))
        return "answer: no answer known"


def exact(gold, pred, trace=None):
    return float(pred.answer == gold.answer)


def build(folder, extracted=True):
    """The system over the world, its triples in the index unless they are to be extracted."""
    index = CorpusIndex.create(folder / "index", WordEncoder())
    index.add(Document(passage.id, (passage,)) for passage in PASSAGES.values())
    if extracted:
        fill(index)
    return CIRAGModule(index, k=2, n=4, threads=1)
