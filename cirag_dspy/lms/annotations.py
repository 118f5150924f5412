"""A teacher without a model: an lm15 engine that answers our signatures from a benchmark's gold annotations.

As KiRAG builds its silver data (arXiv 2502.18397, section 3.4): the gold says which facts matter, in which order, and
what is still missing. What it replies depends on the prompt alone: a fact it keeps is one of those shown, a name it
asks for stands in the question or in a fact it kept, an answer it gives is held by the context it was given.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from dspy.lm15 import InvalidRequestError, Message, Request, Response, Usage, response_to_events

from cirag_dspy.lms.gold import GoldChain
from cirag_dspy.lms.gold_replies import reply_to
from cirag_dspy.lms.patterns import pattern_triples
from cirag_dspy.schema import Passage, Triple
from cirag_dspy.text import match_key, words

_INPUTS = (
    "title|passage|entities|question|query|chain|facts|evidence|passages|thoughts|observation|reasoning|open_questions"
    "|previous|subquestion|finding|problem"
)
_OUTPUTS = "thought|core|next_query|action"
_LABEL = re.compile(rf"^(?:({_INPUTS}|{_OUTPUTS}):[ ]?|\[\[ ## (\w+) ## \]\]\n?)", re.M)
_REMINDER = "\n\nRespond with the corresponding output fields"  # DSPy's own, behind the last field
_OPENINGS = ("Reply with exactly:\n", "Your output fields are:\n")  # of LineAdapter, of dspy.ChatAdapter
_OUTPUT = re.compile(r"(\w+):|\d+\. `(\w+)`")
# Of the rules below, in `gold`, `gold_replies` and `patterns`: another version is another teacher, whose replies must
# not be mixed with those of the last.
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
        reply = self._reply(_text(request.system), _turns(request.messages))
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

    def _reply(self, system: str, turns: list[dict[str, str]]) -> dict[str, str]:
        asked, outputs = (turns[-1] if turns else {}), _outputs(system)
        if "passage" in asked and outputs and outputs <= {"entities", "triples"}:
            return self._extract(asked, outputs)
        reply = reply_to(outputs, asked.keys())
        if reply is None or "question" not in asked:
            systems = "cirag, kirag, d2f_reag, ircot, react and native_rag"
            raise _unknown(f"it knows the prompts of {systems}; give a real LM for anything else")
        key = match_key(asked["question"])
        chain = self._chains.get(key) or self._parts.get(key)
        if chain is None:
            raise _unknown(f"it has no annotations for the question {asked['question'][:80]!r}")
        # Turns about something else are demonstrations.
        told = reply(chain, [turn for turn in turns if match_key(turn.get("question", "")) == key])
        return {name: text for name, text in told.items() if name in outputs}

    def _extract(self, asked: Mapping[str, str], outputs: set[str]) -> dict[str, str]:
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
        told = {
            "entities": "; ".join(names) or "none",
            "triples": "\n".join(" | ".join(fact) for fact in facts) or "none",
        }
        return {name: text for name, text in told.items() if name in outputs}


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


def _turns(messages: Sequence[Message]) -> list[dict[str, str]]:
    """The fields of each prompt of a conversation, with those of the reply to it."""
    turns: list[dict[str, str]] = []
    for message in messages:
        fields = _fields(message.text or "")
        if message.role == "assistant" and turns:
            turns[-1] = fields | turns[-1]
        else:
            turns.append(fields)
    return turns


def _fields(text: str) -> dict[str, str]:
    """The fields of a turn, written as labelled lines or with DSPy's markers."""
    pieces = _LABEL.split(text.partition(_REMINDER)[0])
    names = (line or marked for line, marked in zip(pieces[1::3], pieces[2::3], strict=True))
    found: dict[str, str] = {}
    for name, value in zip(names, pieces[3::3], strict=True):
        found.setdefault(name, value.strip())
    return found


def _outputs(system: str) -> set[str]:
    """The fields that a system message asks for, in our adapter's form or in DSPy's."""
    for opening in _OPENINGS:
        _, found, rest = system.rpartition(opening)
        if found:
            described = takewhile(bool, map(_OUTPUT.match, rest.splitlines()))
            return {match[1] or match[2] for match in described if match}
    return set()


def _gap(value: str) -> str:
    return "\n" if "\n" in value else " "


def _text(system: Any) -> str:
    return system if isinstance(system, str) else "".join(part.text for part in system or ())


def _unknown(why: str) -> InvalidRequestError:
    return InvalidRequestError(f"the annotations teacher can't answer: {why}", provider="annotations")
