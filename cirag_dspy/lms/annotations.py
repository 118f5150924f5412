"""A teacher without a model: an lm15 engine that answers our signatures from a benchmark's gold annotations.

As KiRAG builds its silver data (arXiv 2502.18397, section 3.4): the gold says which facts matter, in which order, and
what is still missing. What it replies depends on the prompt alone: a fact it keeps is one of those shown, a name it
asks for stands in the question or in a fact it kept, an answer it gives is held by the context it was given.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from dspy.lm15 import InvalidRequestError, Message, Request, Response, Usage, response_to_events

from cirag_dspy.lms import reasoner
from cirag_dspy.lms.gold import GoldChain
from cirag_dspy.lms.patterns import pattern_triples
from cirag_dspy.schema import Passage, Triple
from cirag_dspy.signatures import NO_QUERY, REFUSAL
from cirag_dspy.text import fact_lines, match_key, words

_INPUTS = (
    "title|passage|entities|question|query|chain|facts|evidence|passages|thoughts|observation|reasoning|open_questions"
    "|previous|subquestion|finding|problem"
)
_OUTPUTS = "thought|core|next_query|action"
_LABEL = re.compile(rf"^(?:({_INPUTS}|{_OUTPUTS}):[ ]?|\[\[ ## (\w+) ## \]\]\n?)", re.M)
_REMINDER = "\n\nRespond with the corresponding output fields"  # DSPy's own, behind the last field
_CLOSED_QUESTION = re.compile(r"^(?:are|is|was|were|do|does|did|has|have|can)\b(?!.*\bor\b)", re.I)
_CHOICE = re.compile(r"(?:,|:|\bbetween)\s+(?P<one>[^,]+(?:, [^,]+)*?),? (?:or|and) (?P<other>[^,?]+?)\s*\?*$")
_REASONS = re.compile(r"^reasoning:|\[\[ ## reasoning ## \]\]", re.M)  # an output that tells two signatures apart
_SPLITS = re.compile(r"^questions:|\[\[ ## questions ## \]\]", re.M)
MOST_PER_STEP = 2
# Of the rules below, in `gold` and in `patterns`: another version is another teacher, whose replies must not be mixed
# with those of the last.
VERSION = 4


class AnnotationsEngine:
    """Answers the prompts of CIRAG, KiRAG, D2F-ReAG, IRCoT, ReAct and plain RAG from gold annotations.

    Args:
        examples: Questions with their gold, as ``load_benchmark`` makes them.
        passages: The corpus that ids in the gold mean.
        triples: Silver triples by passage id, where there are any; passages without get those that patterns find, and
            the gold triples that are about them.
    """

    def __init__(
        self,
        examples: Sequence[Any],
        passages: Sequence[Passage] = (),
        triples: Mapping[str, Sequence[Triple]] | None = None,
    ) -> None:
        corpus = {passage.id: passage for passage in passages}
        # By the content that a prompt shows: a corpus may have ids of its own.
        self._ids = {Passage.create(passage.title, passage.text).id: passage.id for passage in passages}
        self._chains = {match_key(example.question): GoldChain.of(example, corpus) for example in examples}
        parts = (part for chain in self._chains.values() for part in chain.parts().items())
        self._parts = {match_key(question): part for question, part in parts}
        self._triples = dict(triples or {})
        self._gold: dict[str, list[tuple[str, str, str]]] = {}
        for chain in self._chains.values():
            for passage_id, fact in chain.facts:
                if fact not in self._gold.setdefault(passage_id, []):
                    self._gold[passage_id].append(fact)
        told = f"{VERSION}\n" + "\n".join(sorted(f"{key} {chain.answers}" for key, chain in self._chains.items()))
        told += "\n".join(sorted(f"{t.text} {id}" for id, facts in self._triples.items() for t in facts))
        self.content = hashlib.sha256(told.encode()).hexdigest()[:12]

    def complete(self, request: Request) -> Response:
        """Answer one request.

        Raises:
            InvalidRequestError: The prompt is of none of these systems, or its question has no annotations.
        """
        marked = bool(request.messages) and "[[ ## " in (request.messages[-1].text or "")
        turns = [(message.role, _fields(message.text or "")) for message in request.messages]
        reply = self._reply(_text(request.system), turns)
        lines = [f"[[ ## {k} ## ]]\n{v}" if marked else f"{k}:{_gap(v)}{v}" for k, v in reply.items()]
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant("\n".join(lines)),
            finish_reason="stop",
            usage=Usage(input_tokens=0, output_tokens=0),
        )

    def stream(self, request: Request) -> Iterator[Any]:
        """The whole answer as a stream of one delta."""
        return iter(response_to_events(self.complete(request)))

    def __deepcopy__(self, memo: dict[int, Any]) -> AnnotationsEngine:
        return self

    def _reply(self, system: str, turns: list[tuple[str, dict[str, str]]]) -> dict[str, str]:
        asked = turns[-1][1] if turns else {}
        if "question" in asked:
            key = match_key(asked["question"])
            chain = self._chains.get(key) or self._parts.get(key)
            if chain is None:
                raise _unknown(f"it has no annotations for the question {asked['question'][:80]!r}")
            # Facts come last: a passage with the title "facts" may open a line of the others.
            if "evidence" in asked:
                # No thought: a 135M student taught to write the chain before its answer made chains up.
                return {"answer": chain.answer_in(asked["evidence"].splitlines(), asked["question"]) or REFUSAL}
            if (reply := _reasoned(chain, turns, system)) is not None:
                return reply
            if "passages" in asked:
                told = chain.answer_in(asked["passages"].splitlines(), asked["question"])
                return {"answer": told or _guess(asked["question"]) or REFUSAL}
            if "chain" in asked:
                return _complete(chain, asked)
            if "facts" in asked:
                return self._integrate(chain, turns)
        elif "passage" in asked:
            return self._extract(system, asked)
        systems = "cirag, kirag, d2f_reag, ircot, react and native_rag"
        raise _unknown(f"it knows the prompts of {systems}; give a real LM for anything else")

    def _extract(self, system: str, asked: Mapping[str, str]) -> dict[str, str]:
        passage = Passage.create(asked.get("title", ""), asked["passage"])
        id = self._ids.get(passage.id, passage.id)
        given = self._triples.get(id)
        if given is not None:
            facts = [(t.head, t.relation, t.tail) for t in given]
        else:
            facts = pattern_triples(passage.title, passage.sentences)
            for fact in self._gold.get(id, []):
                if not any(set(words(fact[2])) <= set(words(known[2])) for known in facts):
                    facts.append(fact)
        names = dict.fromkeys(name for head, _, tail in facts for name in (head, tail))
        entities = {"entities": "; ".join(names) or "none"}
        triples = {"triples": "\n".join(" | ".join(fact) for fact in facts) or "none"}
        return entities | triples if "triples" in system else entities

    def _integrate(self, chain: GoldChain, turns: list[tuple[str, dict[str, str]]]) -> dict[str, str]:
        now = turns[-1][1]
        known: list[str] = []
        queries = {match_key(now["question"]), match_key(now.get("query", ""))}
        for (role, shown), (_, decided) in pairwise(turns):
            if role == "user" and match_key(shown.get("question", "")) == match_key(now["question"]):
                facts = _facts(shown.get("facts", ""))
                core = decided.get("core", "")
                copied = [fact for fact in facts.values() if fact in core.splitlines()]
                known += copied or [facts[n] for n in re.findall(r"\d+", core) if n in facts]
                queries.add(match_key(shown.get("query", "")))
        facts = _facts(now["facts"])
        kept = chain.supporting(now["question"], facts, known, most=MOST_PER_STEP)
        known += [facts[number] for number in kept]
        missing = chain.next_query(now["question"], known, asked=queries)
        return {
            "thought": "; ".join(facts[number].replace(" | ", " ") for number in kept) or "nothing new",
            "core": ", ".join(kept) or "none",
            "next_query": missing or NO_QUERY,
        }


class AsyncAnnotationsEngine:
    """The same teacher for ``acall``."""

    def __init__(self, engine: AnnotationsEngine) -> None:
        self.engine = engine

    async def complete(self, request: Request) -> Response:
        """Answer one request."""
        return self.engine.complete(request)

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        """The whole answer as a stream of one delta."""
        for event in response_to_events(self.engine.complete(request)):
            yield event

    async def aclose(self) -> None:
        """Nothing to do."""

    def __deepcopy__(self, memo: dict[int, Any]) -> AsyncAnnotationsEngine:
        return self


def _reasoned(chain: GoldChain, turns: list[tuple[str, dict[str, str]]], system: str) -> dict[str, str] | None:
    """The reply to a prompt of IRCoT, ReAct or D2F-ReAG, told by its inputs; ``None`` to another one."""
    asked = turns[-1][1]
    if "observation" in asked:
        return reasoner.next_action(chain, [fields for _, fields in turns], _guess)
    if {"thoughts", "passages"} <= asked.keys():
        return reasoner.next_thought(chain, asked, _guess)
    if "previous" in asked:
        return reasoner.update(chain, asked, _guess)
    if "finding" in asked:
        return reasoner.check(chain, asked)
    if "open_questions" in asked:
        return reasoner.rewrite(chain, asked)
    if "reasoning" in asked:
        return reasoner.judge(chain, asked)
    if "passages" in asked and _REASONS.search(system):
        return reasoner.reason(chain, asked, _guess)
    return reasoner.decompose(chain, asked) if asked.keys() == {"question"} and _SPLITS.search(system) else None


def _complete(chain: GoldChain, asked: Mapping[str, str]) -> dict[str, str]:
    """The facts that state what may come next in a chain of facts."""
    facts = _facts(asked.get("facts", ""))
    steps = [chain.steps[number] for number in chain.open_steps(asked["question"], asked["chain"].splitlines())]
    stating = [next((number for number, fact in facts.items() if step.holds(fact)), "") for step in steps]
    return {"next": ", ".join(dict.fromkeys(filter(None, stating))) or "none"}


def _fields(text: str) -> dict[str, str]:
    """The fields of a turn, written as labelled lines or with DSPy's markers."""
    pieces = _LABEL.split(text.partition(_REMINDER)[0])
    names = (line or marked for line, marked in zip(pieces[1::3], pieces[2::3], strict=True))
    found: dict[str, str] = {}
    for name, value in zip(names, pieces[3::3], strict=True):
        found.setdefault(name, value.strip())
    return found


def _facts(text: str) -> dict[str, str]:
    """The facts of a prompt by their numbers, shown or not."""
    return {str(number): fact for number, fact in enumerate(fact_lines(text), 1)}


def _guess(question: str) -> str:
    """What one says who must answer and does not know: one side of a choice, drawn by the question's hash, not by gold.

    Empty where the question leaves no choice.
    """
    if _CLOSED_QUESTION.match(question):
        sides = ["yes", "no"]
    elif choice := _CHOICE.search(question):
        sides = [choice["one"].strip(), choice["other"].strip()]
    else:
        return ""
    return sides[hashlib.sha256(match_key(question).encode()).digest()[0] % 2]


def _gap(value: str) -> str:
    return "\n" if "\n" in value else " "


def _text(system: Any) -> str:
    return system if isinstance(system, str) else "".join(part.text for part in system or ())


def _unknown(why: str) -> InvalidRequestError:
    return InvalidRequestError(f"the annotations teacher can't answer: {why}", provider="annotations")
