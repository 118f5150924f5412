"""What GEPA is told about a call: in words, from the gold of the question, for the predictor that made it.

The kind of a predictor is read off its fields, so that it works for every system made of this package's modules. Where
a question has no gold passages or sentences, what is left is how its answer fared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dspy

from cirag_dspy.distill.trajectories import Metric
from cirag_dspy.distill.watch import UNREADABLE
from cirag_dspy.modules.parse import parse_core, parse_triples, says_nothing
from cirag_dspy.modules.reader import read_answer
from cirag_dspy.schema import Hop, Passage, Triple
from cirag_dspy.text import best_sentence, holds_run, is_empty_query, is_refusal, match_key, one_line, words

Fields = Mapping[str, Any]
Lookup = Callable[[Sequence[str]], Mapping[str, Passage]]

SHOWN = 5


def feedback_metric(
    metric: Metric, *, threshold: float = 1.0, lookup: Lookup | None = None
) -> Callable[..., dspy.Prediction]:
    """A metric for ``dspy.GEPA``: ``(gold, pred, trace, pred_name, pred_trace)`` -> ``score`` and ``feedback``.

    Args:
        metric: ``metric(example, prediction)``, a number or a boolean; the score is its value.
        threshold: An answer that scores at least this is right.
        lookup: Passages by id, so that gold passages can be named; without it their ids stand for them.
    """
    find: Lookup = lookup or (lambda ids: {})

    def judge(gold: Any, pred: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None) -> Any:
        def right(answer: str) -> bool:
            return float(metric(gold, dspy.Prediction(**{**dict(pred.items()), "answer": answer}))) >= threshold

        score = float(metric(gold, pred))
        told = _Told(gold, pred, right, find)
        lines = told.call(*pred_trace[0]) if pred_trace else []
        return dspy.Prediction(score=score, feedback="\n".join([*lines, told.outcome(score, score >= threshold)]))

    return judge


class _Told:
    """What can be said about one run of a question."""

    def __init__(self, gold: Any, pred: Any, right: Callable[[str], bool], lookup: Lookup) -> None:
        self.pred = pred
        self.right = right
        self.lookup = lookup
        self.answers = list(gold.get("answers") or filter(None, [gold.get("answer")]))
        self.sentences = {tuple(pair) for pair in gold.get("gold_sentences") or ()}
        self.passages = list(gold.get("gold_passages") or dict.fromkeys(id for id, _ in self.sentences))

    def call(self, predictor: Any, inputs: Fields, outputs: Fields) -> list[str]:
        """About one call of a predictor."""
        if UNREADABLE in outputs:
            wanted = [f"{name}:" for name in predictor.signature.output_fields]
            return [f"The reply could not be read. It must have lines that start with {', '.join(wanted)}"]
        given, asked = predictor.signature.input_fields, predictor.signature.output_fields
        if "facts" in given and "core" in asked:
            return self._integration(inputs, outputs)
        if "passage" in given and "triples" in asked:
            return self._extraction(inputs, outputs)
        if "answer" in asked and ("evidence" in given or "passages" in given):
            return self._answer(
                outputs, str(inputs.get("evidence") or inputs.get("passages") or ""), "evidence" in given
            )
        return []

    def outcome(self, score: float, right: bool) -> str:
        """About the final answer."""
        answer = one_line(str(self.pred.get("answer") or ""))
        said = f'The final answer was "{answer}"' if answer else "There was no final answer"
        gold = f'; the gold answer is "{self.answers[0]}"' if self.answers and not right else ""
        return f"{said}{gold}; it scored {score:.2g}."

    def _integration(self, inputs: Fields, outputs: Fields) -> list[str]:
        hops: list[Hop] = list(self.pred.get("hops") or ())
        number = next((i for i, hop in enumerate(hops) if one_line(hop.query) == inputs.get("query")), None)
        if number is None:
            return []
        shown = hops[number].candidates[: len(str(inputs["facts"]).splitlines())]
        core, rejected = parse_core(str(outputs.get("core") or ""), shown)
        lines = []
        if rejected or (not core and not says_nothing(str(outputs.get("core") or ""))):
            lines.append(f"core must name facts of the list of {len(shown)}, or say none.")
        if not self.passages:
            return lines
        before = [triple for hop in hops[:number] for triple in hop.core]
        lines += self._kept(shown, core, before)
        return lines + self._asked(str(outputs.get("next_query") or ""), [*before, *core], hops[number + 1 :])

    def _kept(self, shown: Sequence[Triple], core: Sequence[Triple], before: Sequence[Triple]) -> list[str]:
        """About the choice of facts. One fact of a gold sentence (or passage) is enough to have it."""
        had = {self._gold(triple) for triple in [*before, *core]}
        left = [triple for triple in shown if self._gold(triple) and self._gold(triple) not in had]
        off = [triple for triple in core if not self._gold(triple)]
        if not left and not off:
            return ["It kept what the gold evidence holds." if core else "It was right to keep none of these facts."]
        lines = [f"It left out facts of the gold evidence: {_facts(left)}."] if left else []
        return [*lines, f"It kept facts that are off the gold evidence: {_facts(off)}."] if off else lines

    def _asked(self, reply: str, evidence: Sequence[Triple], after: Sequence[Hop]) -> list[str]:
        """About the next query, by the gold passages that it led to."""
        found = {triple.passage_id for triple in evidence if self._gold(triple)}
        missing = [id for id in self.passages if id not in found]
        query = one_line(next(filter(None, map(str.strip, reply.splitlines())), "").strip('"“”`'))
        if is_empty_query(query):
            if not missing:
                return ["It was right to ask for nothing more."]
            return [f"It asked for nothing more, but facts of {self._titles(missing)} were still missing."]
        if not missing:
            return [f'It asked "{query}", but nothing was missing any more: the next query should be none.']
        if not after or match_key(after[0].query) != match_key(query):
            return []
        led = [id for id in missing if id in after[0].passage_ids]
        if led:
            return [f'Its next query "{query}" led to the gold passage {self._titles(led)}.']
        return [f'Its next query "{query}" led to no gold passage; missing were {self._titles(missing)}.']

    def _answer(self, outputs: Fields, context: str, may_refuse: bool) -> list[str]:
        answer = read_answer(str(outputs.get("answer") or ""))
        held = next((gold for gold in self.answers if _holds(context, gold)), None)
        closed = {match_key(gold) for gold in self.answers} <= {"yes", "no"}
        if is_refusal(answer):
            if not may_refuse:
                return ["It refused, where the most likely answer must be given."]
            if held is not None:
                return [f'It refused to answer, although the text it was given holds the answer "{held}".']
            return [] if closed else ["It was right to refuse: the text it was given does not hold the answer."]
        if not self.answers:
            return []
        if self.right(answer):
            return [f'Its answer "{answer}" is right.']
        wrong = f'It answered "{answer}" where the gold answer is "{self.answers[0]}"'
        if held is not None:
            return [f"{wrong}, which the text it was given holds."]
        return [f"{wrong}." if closed else f"{wrong}; the text it was given does not hold it."]

    def _extraction(self, inputs: Fields, outputs: Fields) -> list[str]:
        text = str(outputs.get("triples") or "")
        triples, dropped = parse_triples(text)
        lines = []
        if dropped:
            examples = "; ".join(f'"{line}"' for line in _dropped(text)[:SHOWN])
            lines.append(
                f"{dropped} of its lines were no triple of the form head | relation | tail, and were dropped"
                + (f": {examples}." if examples else ".")
            )
        if not triples and not says_nothing(text):
            lines.append("No triple could be read.")
        stated: list[str] = []
        for id, passage in self.lookup(self.passages).items():
            if one_line(passage.title) == inputs.get("title") and passage.sentences:
                covered = {best_sentence(" ".join(triple), passage.sentences) for triple in triples}
                missed = [n for n in range(len(passage.sentences)) if (id, n) in self.sentences and n not in covered]
                stated += [f'"{passage.sentences[n]}"' for n in missed]
        if stated:
            lines.append(f"No triple states what the question needs: {'; '.join(stated[:SHOWN])}.")
        return lines

    def _gold(self, triple: Triple) -> Any:
        """The gold sentence that a triple is from; the gold passage where no sentences are known; else ``None``."""
        place = (triple.passage_id, triple.sentence) if self.sentences else triple.passage_id
        return place if place in (self.sentences or self.passages) else None

    def _titles(self, ids: Sequence[str]) -> str:
        found = self.lookup(ids)
        return ", ".join(f'"{found[id].title or found[id].text[:60]}"' if id in found else id for id in ids)


def _facts(triples: Sequence[Triple]) -> str:
    more = f" and {len(triples) - SHOWN} more" if len(triples) > SHOWN else ""
    return "; ".join(one_line(triple.text) for triple in triples[:SHOWN]) + more


def _holds(text: str, answer: str) -> bool:
    """Whether a text has the words of an answer in a row; never so for yes and no."""
    return words(answer) not in (["yes"], ["no"]) and holds_run(text, answer)


def _dropped(text: str) -> list[str]:
    """The lines of a table of triples that are none."""
    lines, found, before = text.splitlines(), [], 0
    for number, line in enumerate(lines, 1):
        now = parse_triples("\n".join(lines[:number]))[1]
        if now > before:
            found.append(one_line(line))
        before = now
    return found if before == parse_triples(text)[1] and len(found) == before else []
