"""A question's gold as a chain of steps: which fact each needs, and how one would search for it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from cirag_dspy.schema import Passage
from cirag_dspy.text import FUNCTION_WORDS, best_sentence, content_words, match_key, words

_BRACKETS = re.compile(r"\s*\([^()]*\)?")
_REFERENCE = re.compile(r"#(\d+)")
_CLOSED = ("yes", "no")


@dataclass(frozen=True)
class Step:
    """One fact of the chain.

    Args:
        query: What one searches for to find it; ``#1`` stands for the answer of the first step.
        about: What it is about, in words, as far as the gold says so.
        answer: What it contributes; empty where the gold names a sentence only (HotpotQA).
        support: Title and sentences of the gold that state it.
        title: Title of the passage that states it.
    """

    query: str
    about: str
    answer: str
    support: str
    title: str

    def holds(self, line: str) -> bool:
        """Whether a triple, a sentence or a passage states this step's fact."""
        found = set(words(line))
        named = content_words(f"{self.about} {_BRACKETS.sub('', self.title)}")
        if self.answer:
            contributed = set(words(self.answer))
            named -= contributed
            return contributed <= found and (bool(named & found) if named else self._covers(found))
        return bool(named) and len(named & found) >= min(2, len(named)) and self._covers(found - named)

    def is_about(self, line: str, seen: Collection[str]) -> bool:
        """Whether a fact is about what this step's passage is about, and that is named in the words ``seen``."""
        named = content_words(_BRACKETS.sub("", self.title))
        return bool(named) and named <= set(words(line)) and named <= set(seen)

    def statement(self, query: str) -> str:
        """The step's fact in words that state it, without a full stop; ``query`` has all names filled in."""
        told = f"{query.rstrip('? ')}: {self.answer}" if self.answer else self.support
        return next(filter(self.holds, (told, f"{self.title}, {told}", self.support)), told).rstrip(".")

    def leads(self, line: str) -> bool:
        """Whether a fact comes from the sentence that states this step."""
        return self._covers(set(words(line)) - content_words(_BRACKETS.sub("", self.title)))

    def _covers(self, found: set[str]) -> bool:
        """Whether the gold says most of the content of a line, or the line, being long, most of the gold's."""
        told, support = found - FUNCTION_WORDS, content_words(self.support)
        if not told or not support:
            return False
        shared = len(told & support)
        return shared >= 0.75 * len(told) or shared >= 0.75 * len(support)


@dataclass(frozen=True)
class GoldChain:
    """The steps of one question, its accepted answers, and whether it takes every step to answer it.

    ``facts`` are gold triples with the id of the passage that states them.
    """

    steps: tuple[Step, ...]
    answers: tuple[str, ...]
    takes_all: bool
    facts: tuple[tuple[str, tuple[str, str, str]], ...] = ()

    @classmethod
    def of(cls, example: Any, corpus: Mapping[str, Passage]) -> GoldChain:
        """The chain of an example: MuSiQue's decomposition, 2Wiki's evidences, or the supporting sentences."""
        gold: list[tuple[Passage, int | None]] = [
            (corpus[id], number) for id, number in example.get("gold_sentences") or () if id in corpus
        ]
        told = {passage.id for passage, _ in gold}
        gold += [(corpus[id], None) for id in example.get("gold_passages") or () if id in corpus and id not in told]
        answers = tuple(example.get("answers") or [example.answer])
        comparing = "comparison" in (example.get("type") or "") or match_key(answers[0]) in _CLOSED
        facts: list[tuple[str, tuple[str, str, str]]] = []
        if example.get("decomposition"):
            steps = [_decomposed(step, corpus) for step in example.decomposition]
        elif example.get("evidences"):
            steps = []
            for head, relation, tail in dict.fromkeys(map(tuple, example.evidences)):
                passage, sentence = _stating(head, tail, gold)
                text = passage.sentences[sentence] if passage and sentence is not None else ""
                title = passage.title if passage else ""
                steps.append(Step(f"{head} {relation}", head, tail, f"{title} {text}", title))
                if passage:
                    facts.append((passage.id, (head, relation, tail)))
        elif comparing and example.get("gold_missing"):
            steps = []  # one side of what is compared must not pass for both
        else:
            steps = _sentences(example.question, gold)
            if not comparing:  # the data set says which sentences lead to the answer, not which one tells it
                steps.sort(
                    key=lambda step: any(words(a) and set(words(a)) <= set(words(step.support)) for a in answers)
                )
        return cls(tuple(steps), answers, comparing, tuple(facts))

    def supporting(self, question: str, facts: Mapping[str, str], known: Sequence[str], most: int) -> list[str]:
        """Numbers of the facts to keep: those that state a step, at most ``most`` a step, those kept before counted in.

        Where none states a step, one that comes from the sentence that does leads to it: the cascade's next level reads
        that sentence. It is kept only if it is about something that the question or a kept fact names.
        """
        kept: list[str] = []
        for step in self.steps:
            room = most - sum(map(step.holds, known))
            for number, fact in facts.items():
                if room > 0 and step.holds(fact):
                    room -= 1
                    if number not in kept:
                        kept.append(number)
        pool = [*known, *(facts[number] for number in kept)]
        seen = _all_words([question, *pool])
        for step in self.steps:
            if not any(step.holds(fact) or step.is_about(fact, seen) for fact in pool):
                found = [number for number, fact in facts.items() if step.leads(fact) and step.is_about(fact, seen)]
                kept += found[:1]
                pool += [facts[number] for number in found[:1]]
        return sorted(set(kept), key=int)

    def next_query(self, question: str, known: Sequence[str], asked: Collection[str]) -> str:
        """What to search for next: the first step not found yet whose names are known and that was not asked for.

        Empty when all is found, or when what is missing could only be named by one who has seen the gold.
        """
        for number in self.open_steps(question, known):
            query = self._filled(number)
            if match_key(query) not in asked:
                return query
        return ""

    def is_complete(self, known: Sequence[str]) -> bool:
        """Whether facts answer the question: they state the last step, or, if it takes them, all."""
        found = self._found(known)
        return bool(found) and (all(found) if self.takes_all else found[-1])

    def follow(self, question: str, lines: Sequence[str], known: Sequence[str] = ()) -> list[str]:
        """What ``lines`` add to the known facts, a statement a step; each is named by the question or those before."""
        added: dict[int, str] = {}
        for _ in self.steps:
            for number in self.open_steps(question, [*known, *added.values()]):
                if number not in added and any(map(self.steps[number].holds, lines)):
                    added[number] = self.steps[number].statement(self._filled(number))
                    break
        return list(added.values())

    def last_answer(self, known: Sequence[str]) -> str:
        """What the last step that is known contributes; empty if none is."""
        return next((step.answer for step in reversed(self.steps) if any(map(step.holds, known))), "")

    def subquestions(self, question: str, known: Sequence[str]) -> list[str]:
        """A question a step that no known fact states: names that are not known are described by their own questions.

        Left out is what only the gold could name.
        """
        found = self._found(known)
        seen = _all_words([question, *known])
        return [
            self._described(number, found)
            for number, is_found in enumerate(found)
            if not is_found and self._can_be_described(number, found, seen)
        ]

    def parts(self) -> dict[str, GoldChain]:
        """The chains of all sub-questions: of those that name all they need, and of those that describe it."""
        parts: dict[str, GoldChain] = {}
        for number in range(len(self.steps)):
            behind = sorted(self._behind(number))
            for known in product((True, False), repeat=len(behind)):
                left = [place for place, is_known in zip(behind, known, strict=True) if not is_known]
                question = self._described(number, [place not in left for place in range(len(self.steps))])
                parts.setdefault(question, self._part([*left, number]))
        return parts

    def open_steps(self, question: str, known: Sequence[str]) -> list[int]:
        """Numbers of the steps that no known fact states, and whose names the question or these facts tell.

        None once the last step is found, unless it takes all of them.
        """
        found = self._found(known)
        if not self.takes_all and self.steps and found[-1]:
            return []
        seen = _all_words([question, *known])
        return [n for n, is_found in enumerate(found) if not is_found and self._is_named(n, found, seen)]

    def answer_in(self, lines: Sequence[str], question: str) -> str:
        """The first accepted answer that a context holds, or, where things are compared, that the question names.

        Empty where there is none, and where not all that is compared is in the context.
        """
        found = self._found(lines)
        if self.takes_all:
            if not found or not all(found):
                return ""
            if match_key(self.answers[0]) in _CLOSED:
                return self.answers[0]
            lines = [" ".join([question, *lines])]
        elif self.steps and self.steps[-1].answer:
            lines = lines if found[-1] else ()
        else:
            lines = [line for line in lines if any(step.holds(line) for step in self.steps)]
        held = [set(words(line)) for line in lines]
        return next((a for a in self.answers if words(a) and any(set(words(a)) <= line for line in held)), "")

    def _found(self, lines: Sequence[str]) -> list[bool]:
        """Which steps lines state."""
        return [any(map(step.holds, lines)) for step in self.steps]

    def _is_named(self, number: int, found: Sequence[bool], seen: Collection[str]) -> bool:
        step = self.steps[number]
        needed = [int(place) - 1 for place in _REFERENCE.findall(step.query)]
        if needed:
            return all(place < len(found) and found[place] for place in needed)
        sources = [i for i, other in enumerate(self.steps) if i != number and _same(other.answer, step.about)]
        if sources:
            return any(found[place] for place in sources)
        if step.answer:  # the start of a chain: the question names it, if in another spelling
            return bool(content_words(step.about or step.query) & set(seen))
        return content_words(_BRACKETS.sub("", step.title)) <= set(seen)

    def _can_be_described(self, number: int, found: Sequence[bool], seen: Collection[str]) -> bool:
        """Whether a step can be asked for without a name that only the gold knows."""
        needed = self._needs(number)
        if not needed:
            return self._is_named(number, found, seen)
        return all(found[place] or self._can_be_described(place, found, seen) for place in needed)

    def _filled(self, number: int) -> str:
        """The query of a step with the answers of those before it."""
        return self._described(number, [True] * len(self.steps))

    def _described(self, number: int, found: Sequence[bool]) -> str:
        """The query of a step; in the place of a name that is not found, the query that finds it."""
        step, needed = self.steps[number], self._needs(number)
        names = {
            place: self.steps[place].answer if found[place] else f"({self._described(place, found)})"
            for place in needed
        }
        if _REFERENCE.search(step.query):
            return _REFERENCE.sub(lambda match: names.get(int(match[1]) - 1, ""), step.query)
        if needed and not any(found[place] for place in needed):
            return step.query.replace(step.about, names[needed[0]], 1)
        return step.query

    def _needs(self, number: int) -> list[int]:
        """The earlier steps whose answers a step names."""
        step = self.steps[number]
        if references := {int(place) - 1 for place in _REFERENCE.findall(step.query)}:
            return sorted(place for place in references if 0 <= place < number)
        return [place for place in range(number) if _same(self.steps[place].answer, step.about)]

    def _behind(self, number: int) -> set[int]:
        """All steps that a step rests on."""
        return {place for needed in self._needs(number) for place in (needed, *self._behind(needed))}

    def _part(self, places: Sequence[int]) -> GoldChain:
        """The chain of the last of some steps, all others being known."""

        def rename(reference: re.Match[str]) -> str:
            place = int(reference[1]) - 1
            if place in places:
                return f"#{places.index(place) + 1}"
            return self.steps[place].answer if 0 <= place < len(self.steps) else ""

        steps = [replace(self.steps[place], query=_REFERENCE.sub(rename, self.steps[place].query)) for place in places]
        return GoldChain(tuple(steps), (steps[-1].answer or steps[-1].support,), takes_all=False)


def _all_words(texts: Sequence[str]) -> set[str]:
    return {word for text in texts for word in words(text)}


def _same(one: str, other: str) -> bool:
    return bool(one) and match_key(one) == match_key(other)


def _stating(head: str, tail: str, gold: Sequence[tuple[Passage, int | None]]) -> tuple[Passage | None, int | None]:
    """The gold passage about ``head`` whose sentence says most of head and tail."""
    best, place, most = None, None, 0.0
    for passage, sentence in gold:
        number = best_sentence(f"{head} {tail}", passage.sentences) if sentence is None else sentence
        if number >= len(passage.sentences):
            continue
        title = content_words(_BRACKETS.sub("", passage.title))
        about = len(title & content_words(head)) / max(1, len(title | content_words(head)))
        wanted = content_words(tail)
        said = len(wanted & set(words(passage.sentences[number]))) / max(1, len(wanted))
        if about + said > most:
            best, place, most = passage, number, about + said
    return best, place


def _decomposed(step: Mapping[str, Any], corpus: Mapping[str, Passage]) -> Step:
    question, answer = step["question"], step["answer"]
    passage = corpus.get(step.get("passage_id", ""))
    about, _, relation = question.partition(" >> ")
    query = f"{about} {relation}" if relation else question
    about = "" if relation and "#" in about else about
    support = passage.sentences[best_sentence(f"{question} {answer}", passage.sentences)] if passage else ""
    title = passage.title if passage else ""
    return Step(query.strip(), _REFERENCE.sub("", about), answer, f"{title} {support}", title)


def _sentences(question: str, gold: Sequence[tuple[Passage, int | None]]) -> list[Step]:
    """One step a gold passage, searched for by its title and the words that its sentences share with the question."""
    by_passage: dict[str, list[int]] = {}
    passages = {passage.id: passage for passage, _ in gold}
    for passage, sentence in gold:
        numbers = range(len(passage.sentences)) if sentence is None else [sentence]
        by_passage.setdefault(passage.id, []).extend(n for n in numbers if n < len(passage.sentences))
    steps = []
    for id, numbers in by_passage.items():
        passage = passages[id]
        said = " ".join(passage.sentences[number] for number in numbers)
        name = _BRACKETS.sub("", passage.title)
        shared = [w for w in dict.fromkeys(words(question)) if w in content_words(said) - content_words(name)]
        steps.append(Step(" ".join([name, *shared[:4]]), name, "", f"{passage.title} {said}", passage.title))
    return steps
