"""Triples from passages (CIRAG section 3.3 and appendix A.1), offline and online alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal

import dspy
from dspy.utils.exceptions import (
    LMAuthError,
    LMBillingError,
    LMConfigurationError,
    LMError,
    LMUnsupportedModelError,
    is_retryable_lm_error,
)

from cirag_dspy.advice import lm_advice
from cirag_dspy.errors import ModelError
from cirag_dspy.modules.ask import Inputs, Reply, ask
from cirag_dspy.modules.base import Module
from cirag_dspy.modules.parse import parse_triples, says_nothing
from cirag_dspy.modules.refused import is_refused
from cirag_dspy.modules.search import SearchIndex
from cirag_dspy.modules.threads import each_in_threads
from cirag_dspy.schema import Extraction, ExtractionState, Passage, Triple
from cirag_dspy.signatures import REFUSAL, ExtractTriples, FindEntities, RelateEntities
from cirag_dspy.text import best_sentence, match_key, one_line, words

# Errors that every further call would meet as well: they end the work instead of failing passage after passage.
FATAL = (LMAuthError, LMBillingError, LMConfigurationError, LMUnsupportedModelError, ModelError)

# Runs in which an LM may reply with text that lists no triple, before that counts as its result: nothing there.
USELESS_RUNS = 2
# Times the room of a run that a passage whose reply was cut may be given.
MOST_ROOM = 4

_ENTITIES = re.compile(r"^\W*entities\W*:[^|\n]*$", re.I | re.M)
_LABELS = re.compile(r"^\W*(?:entities|triples)\W*$", re.I | re.M)
# "The passage does not contain any facts.", "I could not find any triples", "No named entities or facts are present"
_NOTHING_THERE = re.compile(
    r"(?:\b(?:no|zero|neither|nothing|without)\b|(?:\bnot|n['’]t)\b[^.|]*\b(?:contain|have|has|include|hold|"
    r"provide|state|mention|give|offer|find|identify|present|any|enough|possible|able)\b)"
    r"[^.|]*\b(?:facts?|triples?|triplets?|entit(?:y|ies)|relations?(?:hips?)?|extract(?:ed|able)?|information|"
    r"statements?)\b",
    re.I,
)
_NOTHING_ELSEWHERE = re.compile(
    r"^\W*(?:(?:keine?|nichts|aucune?|rien|ningun[oa]|ning[uú]n|nada|nessun[oa]?|niente|nenhuma?|geen|niets|нет|ничего|"
    r"brak|なし|ありません|없음|لا يوجد|कोई नहीं)(?:\W*$|\s[^|;]{0,40}$)"
    r"|(?:无|無|没有|沒有)(?:\W*$|(?:任何|相关|可|法|事实|事實|实体|實體|三元|信息|資訊|内容)[^|;]{0,20}$))",
    re.I,
)
# An LM that will not: told apart from one that finds nothing, since another one may well find something.
_WILL_NOT = re.compile(
    r"^\W*(?:(?:i['’]?\s?a?m\s+|we['’]?\s?a?re\s+)?(?:so |very )?sorry\b|i apologi[sz]e|i (?:cannot|can['’]?t|can not|"
    r"am unable|am not able|will not|won['’]t|must decline)|as an ai\b)",
    re.I,
)


class Extract(Module):
    """Extracts the triples of a passage, each with the sentence that it came from.

    A passage that exceeds the LM's context is read in pieces, one after the other, so that none of it is left out.

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

    def forward(self, passage: Passage, fresh: bool = False, room: int = 0) -> dspy.Prediction:
        """Extract the triples of ``passage``; the prediction holds an ``Extraction`` as ``extraction``.

        Args:
            passage: The passage.
            fresh: Pass over DSPy's response cache, so that a passage that failed before isn't answered with the same
                useless reply.
            room: Tokens that a reply may have; 0 for the LM's own limit.

        Raises:
            dspy.utils.exceptions.LMError: The LM could not be called.
        """
        config: Inputs = {"cache": False} if fresh else {}
        if room:
            config[_room_key(self.lm)] = room
        return dspy.Prediction(extraction=self._extract(passage, config, room or self.room))

    @property
    def lm(self) -> dspy.BaseLM | None:
        """The LM that is asked: the module's own, else the one of this context."""
        return self.triples.lm or dspy.settings.lm

    @property
    def room(self) -> int:
        """Tokens that a reply of the LM may have; 1 where that is for its provider to say."""
        given = getattr(self.lm, "kwargs", {})
        return int(given.get("max_tokens") or given.get("max_completion_tokens") or 1)

    def _extract(self, passage: Passage, config: Inputs, room: int) -> Extraction:
        rest, found, dropped, cut = one_line(passage.text), dict[tuple[str, str, str], None](), 0, ""
        reply = Reply()
        while True:
            reply, shown, piece_cut = self._ask({"title": one_line(passage.title), "passage": rest}, config)
            fields, malformed = _facts(reply)
            found |= dict.fromkeys(fields)
            dropped, cut, rest = dropped + malformed, cut or piece_cut, rest[len(shown) :].strip()
            if not rest:
                break
        triples = tuple(
            Triple(*fields, passage.id, best_sentence(" ".join(fields), passage.sentences)) for fields in found
        )
        if cut:
            why = (
                f"the reply was cut off at {_tokens(room)}"
                if cut == "length"
                else f"the provider withheld the rest ({cut})"
            )
            return Extraction("cut", triples, dropped, why, room)
        if triples:
            return Extraction("done", triples, dropped)
        if reply.problem:
            useless = _is_useless(reply)
            state: ExtractionState = "empty" if useless and _says_little(passage) else "failed"
            return Extraction(state, (), dropped, reply.problem, useless=useless)
        return Extraction("empty")

    def _ask(self, inputs: Inputs, config: Inputs) -> tuple[Reply, str, str]:
        """The reply on a passage, as much of it as the LM's context holds, and why a reply was cut: ``length``, or why
        its provider withheld the rest; empty if none was.
        """
        shown = str(inputs["passage"])

        def shorter(inputs: Inputs) -> Inputs | None:
            nonlocal shown
            smaller = _shorter(inputs)
            shown = str(smaller["passage"]) if smaller else shown
            return smaller

        cut = ""
        if self.calls == "two":
            reply = ask(self.entities, inputs, shrink=shorter, config=config)
            inputs, cut = {**inputs, "passage": shown, "entities": one_line(reply["entities"])}, _cut(reply)
        reply = ask(self.triples, inputs, check=_no_triples, shrink=shorter, config=config)
        return reply, shown, cut or _cut(reply)


def extract_missing(
    index: SearchIndex,
    extract: Extract,
    passages: Iterable[Passage],
    *,
    threads: int = 8,
    retry_failed: bool = False,
    more_room: bool = False,
    on_done: Callable[[Passage, Extraction], None] | None = None,
) -> None:
    """Extract and keep the triples of those passages that have none yet, each as soon as it is there.

    The one way triples come into an index: for a whole corpus before any question, and for what a question retrieved.
    Two threads that want the same passage pay for it once. A passage that the LM or its content filter refuses is kept
    as failed, with the reason; one whose call could not be made (time limit, rate limit, server) stays as it was. The
    others go on.

    Args:
        index: Where passages have their state and triples are kept.
        extract: The extractor.
        passages: Passages of the index; those that are done or empty are passed over.
        threads: LM calls at a time.
        retry_failed: Whether to try again failed ones, and cut ones where the LM's replies may now be longer. One whose
            replies list no triple in ``USELESS_RUNS`` runs is empty from then on, with the reason.
        more_room: Whether to try cut ones again with twice the room that did not suffice, up to ``MOST_ROOM`` times the
            LM's own limit.
        on_done: Called in this thread with each passage tried now; also with one whose call could not be made.

    Raises:
        dspy.utils.exceptions.LMError: No call can be made (key, billing, configuration); what was extracted is kept.
    """
    states: set[str] = {"pending", "failed", "cut"} if retry_failed else {"pending"}

    def work(passage: Passage) -> Extraction | None:
        with index.extraction_lock(passage.id):
            state = index.states([passage.id]).get(passage.id)
            if state is None or state not in states:
                return None
            extraction = _extract_again(index, extract, passage, state, more_room)
            # Another process may have removed the passage meanwhile, or put another text under its id.
            now = index.passages([passage.id]).get(passage.id)
            if now is None or now.text != passage.text:
                return None
            # Of a call that could not be made nothing was learnt about the passage.
            if extraction is not None and extraction.state != "pending":
                index.keep(passage.id, extraction)
            return extraction

    by_id = {passage.id: passage for passage in passages}
    known = index.states(list(by_id))
    todo = [passage for passage in by_id.values() if known.get(passage.id) in states]
    for passage, extraction in each_in_threads(work, todo, threads):
        if extraction is not None and on_done is not None:
            on_done(passage, extraction)


def worth_trying(
    index: SearchIndex, passages: Iterable[Passage], room: int, *, more_room: bool = False
) -> list[Passage]:
    """Those of passages that are not done that another try may bring further: cut ones if a reply may be longer.

    Args:
        index: Where they are kept.
        passages: Passages of the index that are pending, failed or cut.
        room: Tokens that a reply of the LM may have.
        more_room: As of ``extract_missing``.
    """
    passages = list(passages)
    ids = [passage.id for passage in passages]
    states, tries = index.states(ids), index.tries(ids)
    return [
        passage
        for passage in passages
        if states.get(passage.id) != "cut" or _next_room(tries[passage.id].room, room, more_room)
    ]


def _next_room(before: int, own: int, more_room: bool) -> int:
    """The room of another try of a passage whose reply was cut at ``before`` tokens; 0 if that would be no more."""
    room = max(own, min(2 * before, MOST_ROOM * own) if more_room else own)
    return room if room > before else 0


def _extract_again(
    index: SearchIndex, extract: Extract, passage: Passage, state: ExtractionState, more_room: bool
) -> Extraction | None:
    """What is to be kept of a passage; ``None`` if another try would give what there is. ``pending``: no reply came."""
    before = index.tries([passage.id]).get(passage.id) if state in ("failed", "cut") else None
    room = 0
    if before is not None and state == "cut":
        room = _next_room(before.room, extract.room, more_room)
        if not room:
            return None
    found = _try(extract, passage, state == "failed", room)
    if state == "cut" and found.state not in ("done", "pending"):
        kept = index.triples([passage.id])[passage.id]
        return replace(found, state="cut", triples=max(kept, found.triples, key=len), room=room)
    if found.state == "failed" and found.useless and before is not None and before.useless + 1 >= USELESS_RUNS:
        why = f"no triple in the replies of {USELESS_RUNS} runs: {found.error}"
        return Extraction("empty", (), found.dropped, why, useless=True)
    return found


def _try(extract: Extract, passage: Passage, fresh: bool, room: int) -> Extraction:
    try:
        extraction: Extraction = extract(passage=passage, fresh=fresh, room=room).extraction
        return extraction
    except LMError as error:
        refused = is_refused(error)
        if isinstance(error, FATAL) and not refused:
            raise
        why = lm_advice(error)[:500]
        unheard = is_retryable_lm_error(error) or error.code == "timeout"
        return Extraction("pending" if unheard and not refused else "failed", error=why)


def _cut(reply: Reply) -> str:
    """Why a reply is not whole; empty if it is."""
    return "length" if reply.truncated else reply.withheld


def _triples_text(reply: Reply) -> str:
    """The field, or the whole reply of an LM that wrote its triples without the label; a list of entities is none."""
    return reply["triples"] or _ENTITIES.sub("", reply.raw)


def _facts(reply: Reply) -> tuple[list[tuple[str, str, str]], int]:
    """The facts of a reply, and how many of its lines are none."""
    text = _triples_text(reply)
    found, dropped = parse_triples(text)
    *lines, last = text.splitlines() or [""]
    in_json = last.lstrip().startswith(("[", "{"))
    if _cut(reply) and not in_json and ("|" in last or parse_triples(last)[0]):
        # The line that was cut off may lack half of its tail; of JSON, only what was closed is read anyway.
        found, dropped = parse_triples("\n".join(lines))
        dropped += 1
    # A small model that has nothing to say takes the prompts' own word for that as a name.
    facts = [fields for fields in found if REFUSAL not in map(match_key, fields)]
    return facts, dropped + len(found) - len(facts)


def _no_triples(reply: Reply) -> str:
    text = _triples_text(reply)
    if parse_triples(text)[0] or _says_nothing(text):
        return ""
    return reply.problem or "no line of triples has the form head | relation | tail"


def _says_nothing(text: str) -> bool:
    """Whether a reply says, in whatever words, that the passage states no fact."""
    if says_nothing(text):
        return True
    if "|" in text or _WILL_NOT.match(text):
        return False
    return len(words(text)) <= 40 and bool(_NOTHING_THERE.search(text) or _NOTHING_ELSEWHERE.match(text))


def _is_useless(reply: Reply) -> bool:
    """Whether the LM did reply, with text that is neither a triple nor a refusal to reply."""
    text = _LABELS.sub("", _triples_text(reply) or reply["entities"])
    return bool(words(text)) and not _WILL_NOT.match(text)


def _says_little(passage: Passage) -> bool:
    """Whether a passage is too short to state a fact: a heading, a name."""
    return len(words(passage.text)) < 4


def _shorter(inputs: Inputs) -> Inputs | None:
    """The first half of the passage, up to a blank where there is one near."""
    text = str(inputs["passage"])
    if len(text) <= 200:
        return None
    half = text[: len(text) // 2]
    return {**inputs, "passage": half.rpartition(" ")[0] or half}


def _room_key(lm: Any) -> str:
    given = getattr(lm, "kwargs", {})
    return "max_completion_tokens" if "max_completion_tokens" in given else "max_tokens"


def _tokens(room: int) -> str:
    return f"{room} tokens" if room > 1 else "the provider's limit of tokens"
