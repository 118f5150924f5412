"""A teacher without a model: an lm15 engine that answers our signatures from a benchmark's gold annotations.

As KiRAG builds its silver data (arXiv 2502.18397, section 3.4): the gold says which facts matter, in which order, and
what is still missing. What it replies depends on the prompt alone: a fact it keeps is one of those shown, a name it
asks for stands in the question or in a fact it kept, an answer it gives is held by the context it was given; where it
must answer and can't, it makes a guess that gold has no part in.
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

_REMINDER = "\n\nRespond with the corresponding output fields"  # DSPy's own, behind the last field
# A field in the system message, of LineAdapter and of dspy.ChatAdapter.
_DESCRIBED = re.compile(r"(\w+):|\d+\. `(\w+)`")
# Of the rules below, in `gold`, `gold_replies` and `patterns`: another version is another teacher, whose replies must
# not be mixed with those of the last.
VERSION = 5


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
        told = f"{VERSION}\n" + "\n".join(sorted(f"{key} {chain}" for key, chain in self._chains.items()))
        told += "\n".join(sorted(f"{t.text} {id}" for id, facts in self._triples.items() for t in facts))
        self.content = hashlib.sha256(told.encode()).hexdigest()[:12]

    def complete(self, request: Request) -> Response:
        """Answer one request.

        Raises:
            InvalidRequestError: The prompt is of none of these systems, or its question has no annotations.
        """
        system = _text(request.system)
        marked, inputs, outputs = _fields_of(system)
        reply = self._reply(_turns(request.messages, [*inputs, *outputs], marked), inputs, outputs)
        asked = {name: text for name, text in reply.items() if name in outputs}
        lines = [f"[[ ## {k} ## ]]\n{v}" if marked else f"{k}:{_gap(v)}{v}" for k, v in asked.items()]
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

    def _reply(self, turns: list[dict[str, str]], inputs: set[str], outputs: set[str]) -> dict[str, str]:
        asked = turns[-1] if turns else {}
        if "passage" in asked and outputs and outputs <= {"entities", "triples"}:
            return self._extract(asked)
        reply = reply_to(outputs, inputs & asked.keys())
        if reply is None or "question" not in asked:
            systems = "cirag, kirag, d2f_reag, ircot, react and native_rag"
            raise _unknown(f"it knows the prompts of {systems}; give a real LM for anything else")
        key = match_key(asked["question"])
        chain = self._chains.get(key) or self._parts.get(key)
        if chain is None:
            raise _unknown(f"it has no annotations for the question {asked['question'][:80]!r}")
        # Turns about something else are demonstrations.
        return reply(chain, [turn for turn in turns if match_key(turn.get("question", "")) == key])

    def _extract(self, asked: Mapping[str, str]) -> dict[str, str]:
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
        return {
            "entities": "; ".join(names) or "none",
            "triples": "\n".join(" | ".join(fact) for fact in facts) or "none",
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


def _turns(messages: Sequence[Message], names: Sequence[str], marked: bool) -> list[dict[str, str]]:
    """The fields of each prompt of a conversation, with those of the reply to it."""
    label = re.compile(r"^\[\[ ## (\w+) ## \]\]\n?" if marked else rf"^({'|'.join(names)}):[ ]?", re.M)
    turns: list[dict[str, str]] = []
    for message in messages:
        pieces = label.split((message.text or "").partition(_REMINDER)[0])
        fields: dict[str, str] = {}
        for name, value in zip(pieces[1::2], pieces[2::2], strict=True):
            fields.setdefault(name, value.strip())
        if message.role == "assistant" and turns:
            turns[-1] = fields | turns[-1]
        else:
            turns.append(fields)
    return turns


def _fields_of(system: str) -> tuple[bool, set[str], set[str]]:
    """Whether a system message is in the form of ``dspy.ChatAdapter``, and the input and output fields it describes."""
    if marked := system.startswith("Your input fields are:"):
        given, _, asked = system.partition("Your output fields are:\n")
    else:
        given, _, asked = system.rpartition("Reply with exactly:\n")
        given = given.rpartition("Given:\n")[2]
    return marked, _described(given.removeprefix("Your input fields are:\n")), _described(asked)


def _described(lines: str) -> set[str]:
    """The names of the fields that lines describe, up to the first that describes none."""
    return {match[1] or match[2] for match in takewhile(bool, map(_DESCRIBED.match, lines.splitlines())) if match}


def _gap(value: str) -> str:
    return "\n" if "\n" in value else " "


def _text(system: Any) -> str:
    return system if isinstance(system, str) else "".join(part.text for part in system or ())


def _unknown(why: str) -> InvalidRequestError:
    return InvalidRequestError(f"the annotations teacher can't answer: {why}", provider="annotations")
