"""Triples from passages (CIRAG section 3.3 and appendix A.1), offline and online alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import dspy
from dspy.utils.exceptions import (
    LMAuthError,
    LMBillingError,
    LMConfigurationError,
    LMError,
    LMUnsupportedModelError,
)

from cirag_dspy.errors import ModelError
from cirag_dspy.modules.ask import Inputs, Reply, ask
from cirag_dspy.modules.parse import parse_triples, says_nothing
from cirag_dspy.modules.search import SearchIndex
from cirag_dspy.modules.threads import each_in_threads
from cirag_dspy.schema import Extraction, Passage, Triple
from cirag_dspy.signatures import ExtractTriples, FindEntities, RelateEntities
from cirag_dspy.text import best_sentence, one_line

# Errors that every further call would meet as well: they end the work instead of failing passage after passage.
FATAL = (LMAuthError, LMBillingError, LMConfigurationError, LMUnsupportedModelError, ModelError)


class Extract(dspy.Module):
    """Extracts the triples of a passage, each with the sentence that it came from.

    Args:
        calls: ``"one"`` asks for entities and triples in one reply, the entities first, so that they condition the
            triples; ``"two"`` asks for the entities, then for the triples with them (the paper's prompts).
    """

    def __init__(self, calls: Literal["one", "two"] = "one") -> None:
        super().__init__()
        if calls not in ("one", "two"):
            raise ValueError(f"calls must be 'one' or 'two', not {calls!r}")
        self.calls = calls
        if calls == "one":
            self.triples = dspy.Predict(ExtractTriples)
        else:
            self.entities = dspy.Predict(FindEntities)
            self.triples = dspy.Predict(RelateEntities)

    def forward(self, passage: Passage, fresh: bool = False) -> dspy.Prediction:
        """Extract the triples of ``passage``; the prediction holds an ``Extraction`` as ``extraction``.

        A reply that stays useless gives a ``failed`` extraction. ``fresh`` passes over DSPy's response cache, so that a
        passage that failed before isn't answered with the same useless reply.

        Raises:
            dspy.utils.exceptions.LMError: The LM could not be called.
        """
        return dspy.Prediction(extraction=self._extract(passage, {"cache": False} if fresh else {}))

    def _extract(self, passage: Passage, config: Inputs) -> Extraction:
        inputs: Inputs = {"title": one_line(passage.title), "passage": one_line(passage.text)}
        if self.calls == "two":
            reply = ask(self.entities, inputs, shrink=_shorter, config=config)
            inputs = {**inputs, "entities": one_line(reply["entities"])}
        reply = ask(self.triples, inputs, check=_no_triples, shrink=_shorter, config=config)
        text = _triples_text(reply)
        found, dropped = parse_triples(text)
        if reply.truncated and len(found) > 1 and "|" in text.splitlines()[-1]:
            found, dropped = found[:-1], dropped + 1  # the line that was cut off may lack half of its tail
        triples = tuple(
            Triple(*fields, passage.id, best_sentence(" ".join(fields), passage.sentences)) for fields in found
        )
        if triples:
            return Extraction("done", triples, dropped, reply.truncated)
        if reply.problem:
            return Extraction("failed", (), dropped, reply.truncated, reply.problem)
        return Extraction("empty")


def extract_missing(
    index: SearchIndex,
    extract: Extract,
    passages: Iterable[Passage],
    *,
    threads: int = 8,
    retry_failed: bool = False,
    on_done: Callable[[Passage, Extraction], None] | None = None,
) -> None:
    """Extract and keep the triples of those passages that have none yet, each as soon as it is there.

    The one way triples come into an index: for a whole corpus before any question, and for what a question retrieved.
    Two threads that want the same passage pay for it once. A passage whose call could not be made stays as it was.

    Args:
        index: Where passages have their state and triples are kept.
        extract: The extractor.
        passages: Passages of the index; those that are done or empty are passed over.
        threads: LM calls at a time.
        retry_failed: Whether to try failed ones again.
        on_done: Called in this thread with each passage tried now; also with one whose call could not be made, which is
            then no error. Without it the first such call ends the work.

    Raises:
        dspy.utils.exceptions.LMError: A call could not be made, or none can be (key, billing, configuration); what was
            extracted is kept.
    """
    open_states = {"pending", "failed"} if retry_failed else {"pending"}

    def work(passage: Passage) -> Extraction | None:
        with index.extraction_lock(passage.id):
            state = index.states([passage.id])[passage.id]
            if state not in open_states:
                return None
            try:
                extraction: Extraction = extract(passage=passage, fresh=state == "failed").extraction
            except FATAL:
                raise
            except LMError as error:
                if on_done is None:
                    raise
                return Extraction("failed", error=one_line(str(error))[:500])
            index.keep(passage.id, extraction)
            return extraction

    by_id = {passage.id: passage for passage in passages}
    states = index.states(list(by_id))
    todo = [passage for passage in by_id.values() if states.get(passage.id) in open_states]
    for passage, extraction in each_in_threads(work, todo, threads):
        if extraction is not None and on_done is not None:
            on_done(passage, extraction)


def _triples_text(reply: Reply) -> str:
    """The field, or the whole reply of an LM that wrote its triples without the label."""
    return reply["triples"] or reply.raw


def _no_triples(reply: Reply) -> str:
    text = _triples_text(reply)
    if parse_triples(text)[0] or says_nothing(text):
        return ""
    return reply.problem or "no line of triples has the form head | relation | tail"


def _shorter(inputs: Inputs) -> Inputs | None:
    text = str(inputs["passage"])
    return {**inputs, "passage": text[: len(text) // 2]} if len(text) > 200 else None
