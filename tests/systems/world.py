"""A small invented world, its gold triples, and an LM that answers every prompt from them."""

from __future__ import annotations

from contextlib import contextmanager

from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import Document
from cirag_dspy.schema import Extraction, Passage, Triple
from tests.fakes import WordEncoder, fields_of

TEXTS = {
    "Harbor Song": ("Harbor Song is a film of 1950.", "The film Harbor Song was directed by Ada Brook."),
    "Ada Brook": ("Ada Brook was a director.", "Ada Brook was born in Velden."),
    "Velden": ("Velden is a town.", "Velden lies on the river Ree."),
    "Harbor Light": ("Harbor Light is a film of 1961.", "The film Harbor Light was directed by Tom Hale."),
    "Tom Hale": ("Tom Hale was a painter.", "Tom Hale was born in Mora."),
}
FACTS = {
    "Harbor Song": [("Harbor Song", "is a film of", "1950", 0), ("Harbor Song", "was directed by", "Ada Brook", 1)],
    "Ada Brook": [("Ada Brook", "was a", "director", 0), ("Ada Brook", "was born in", "Velden", 1)],
    "Velden": [("Velden", "is a", "town", 0), ("Velden", "lies on", "the river Ree", 1)],
    "Harbor Light": [("Harbor Light", "is a film of", "1961", 0), ("Harbor Light", "was directed by", "Tom Hale", 1)],
    "Tom Hale": [("Tom Hale", "was a", "painter", 0), ("Tom Hale", "was born in", "Mora", 1)],
}
PASSAGES = {title: Passage.create(title, sentences) for title, sentences in TEXTS.items()}
TRIPLES = {
    title: tuple(Triple(head, relation, tail, PASSAGES[title].id, sentence) for head, relation, tail, sentence in facts)
    for title, facts in FACTS.items()
}


@contextmanager
def world_index(path, passages=tuple(PASSAGES.values())):
    """An index of the passages, without triples."""
    with CorpusIndex.create(path / "index", WordEncoder()) as built:
        built.add(Document(passage.id, (passage,)) for passage in passages)
        yield built


def titles(ids):
    """The titles of passages by their ids."""
    names = {passage.id: title for title, passage in PASSAGES.items()}
    return [names[id] for id in ids]


def fill(index) -> None:
    """Put the world's triples into an index that has its passages."""
    for title, passage in PASSAGES.items():
        index.keep(passage.id, Extraction("done", TRIPLES[title]))


class GoldLM:
    """Replies from gold: keeps the wanted facts, asks the given queries in turn, and answers once the evidence has all
    the wanted words, else refuses. Extraction is answered from the world."""

    def __init__(self, wanted, queries, answer, sufficient=None):
        self.wanted = {" | ".join(fact) for fact in wanted}
        self.queries = list(queries)
        self.answer = answer
        self.sufficient = sufficient or (lambda evidence: all(fact in evidence for fact in self.wanted))
        self.calls: list[str] = []

    def __call__(self, messages):
        system, fields = messages[0]["content"], fields_of(messages[-1]["content"])
        if "triples:" in system:
            self.calls.append(f"extract {fields['title']}")
            return "entities: x\ntriples:\n" + "\n".join(" | ".join(fact[:3]) for fact in FACTS[fields["title"]])
        if "core:" in system:
            self.calls.append(f"integrate {fields['query']}")
            numbered = [line.split(". ", 1) for line in fields["facts"].splitlines()]
            core = [number for number, fact in numbered if fact in self.wanted]
            turn = sum(message["role"] == "assistant" for message in messages)
            query = self.queries[turn] if turn < len(self.queries) else "none"
            return f"thought: turn {turn}\ncore: {', '.join(core) or 'none'}\nnext_query: {query}"
        if "evidence" in fields:
            enough = self.sufficient(fields["evidence"])
            self.calls.append("answer" if enough else "refuse")
            return f"thought: t\nanswer: {self.answer if enough else 'unanswerable'}"
        self.calls.append("forced answer")
        return f"answer: {self.answer}"
