"""A scripted LM that plays every role of the package's prompts for MuSiQue questions, truthfully.

It knows which sub-questions a question is made of, but no fact: the answer of one is known once a line of the prompt
says it, and those before it are known. What is not known it asks for, in the same words until it is found; only where
it is told to guess, it guesses. The corpus is nobody's knowledge: from memory it answers nothing (MetaRAG), and a
sentence drafted without passages has a guess in the answer's place, with a low probability (FLARE). Passages' triples
are those of the corpus, gpt-3.5's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.chains import Chain, Link
from cirag_dspy.signatures import NO_QUERY, REFUSAL
from cirag_dspy.text import fact_lines, match_key, one_line, words
from tests.fakes import Messages, scored
from tests.systems.roles import read_prompt

Reply = str | list[tuple[str, float]]
GUESS = "Somewhere"
CORE_FACTS = 3


@dataclass(frozen=True)
class Asked:
    """A prompt: the chain of its question, and the fields of its turns, replies to the earlier ones among them."""

    chain: Chain
    turns: Sequence[dict[str, str]]

    def __getitem__(self, name: str) -> str:
        return self.turns[-1][name]

    def held(self, *names: str) -> int:
        """How many links are known from fields of the present turn."""
        return self.chain.held(*(self[name] for name in names))


class Script:
    """The scripted LM: a reply to the messages of a prompt.

    Args:
        openie: Rows of passages with their triples.
        questions: Rows of MuSiQue.
    """

    def __init__(self, openie: Sequence[dict], questions: Sequence[dict]) -> None:
        self.extractions = {one_line(row["text"]): row for row in openie}
        triples = {text: _triples(row) for text, row in self.extractions.items()}
        roots = [Chain.read(row, triples) for row in questions]
        parts = [part for root in roots for held in range(len(root.links)) for part in root.parts(held)]
        self.chains = {match_key(chain.question): chain for chain in [*parts, *roots]}

    def __call__(self, messages: Messages) -> Reply:
        """The reply; the one of a draft as its tokens with their probabilities."""
        role, turns = read_prompt(messages)
        if role == "ExtractTriples":
            return _written(_extraction(self.extractions[turns[-1]["passage"]]))
        reply = _written(REPLIES[role](Asked(self.chains[match_key(turns[-1]["question"])], turns)))
        return scored(reply, unsure=GUESS) if role == "DraftThought" else reply


def _written(fields: dict[str, str]) -> str:
    return "\n".join(f"{name}:\n{text}" if "\n" in text else f"{name}: {text}" for name, text in fields.items())


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) or "none"


def _yes(true: bool) -> str:
    return "yes" if true else "no"


def _title(asked: Asked) -> str:
    """A guess from passages that don't help: what the first is about."""
    return asked["passages"].partition(": ")[0]


def _triples(row: dict) -> list[str]:
    return [" | ".join(triple) for triple in row["triples"] if len(triple) == 3]


def _extraction(row: dict) -> dict[str, str]:
    return {"entities": "; ".join(row["entities"]), "triples": "\n".join(_triples(row)) or "none"}


def _holding(facts: str, link: Link) -> list[str]:
    """Numbers of the facts that say a link's answer."""
    return [str(number) for number, fact in enumerate(fact_lines(facts), 1) if link.stands_in(fact)]


def _integrate(asked: Asked) -> dict[str, str]:
    kept = [
        fact_lines(turn["facts"])[int(n) - 1] for turn in asked.turns[:-1] for n in re.findall(r"\d+", turn["core"])
    ]
    before, now = asked.chain.held(*kept), asked.chain.held(*kept, asked["facts"])
    core = [
        number for link in asked.chain.filled()[before:now] for number in _holding(asked["facts"], link)[:CORE_FACTS]
    ]
    query = (asked.chain.open(now) or [NO_QUERY])[0]
    return {"thought": asked.chain.told(now), "core": ", ".join(dict.fromkeys(core)) or "none", "next_query": query}


def _complete(asked: Asked) -> dict[str, str]:
    """The facts that come next; where none does, the one nearest to what is missing: a chain without it is not done."""
    before, now = asked.held("chain"), asked.held("chain", "facts")
    if asked.chain.complete(before):
        return {"next": "none"}
    missing = set(words(asked.chain.open(before)[0]))
    found = [_holding(asked["facts"], link)[0] for link in asked.chain.filled()[before:now]]
    nearest = max(asked["facts"].splitlines(), key=lambda fact: len(missing.intersection(words(fact))))
    return {"next": ", ".join(found) or nearest.partition(".")[0]}


def _gate(asked: Asked) -> dict[str, str]:
    held = asked.held("evidence")
    return {"thought": asked.chain.told(held), "answer": _or_refuse(asked.chain, held)}


def _or_refuse(chain: Chain, held: int) -> str:
    return chain.likely(held) if chain.complete(held) else REFUSAL


def _next_thought(asked: Asked) -> dict[str, str]:
    chain, before = asked.chain, asked.held("thoughts")
    if chain.complete(before):
        return {"thought": f"So the answer is: {chain.likely(before)}."}
    if asked.held("thoughts", "passages") > before:
        return {"thought": chain.known(before + 1, since=before)}
    return {"thought": f"What is missing is {chain.open(before)[0]}."}


def _draft(asked: Asked) -> dict[str, str]:
    chain, held = asked.chain, asked.held("thoughts")
    if chain.complete(held):
        return {"thought": f"So the answer is: {chain.likely(held)}."}
    return {"thought": f"{chain.open(held)[0]}: {GUESS}."}


def _act(asked: Asked) -> dict[str, str]:
    chain = asked.chain
    held = chain.held(*(turn["observation"] for turn in asked.turns))
    action = f"finish[{chain.likely(held)}]" if chain.complete(held) else f"search[{chain.open(held)[0]}]"
    return {"thought": chain.told(held), "action": action}


def _reason(asked: Asked) -> dict[str, str]:
    held = asked.held("passages")
    return {"reasoning": asked.chain.told(held), "answer": asked.chain.likely(held, _title(asked))}


def _judge(asked: Asked) -> dict[str, str]:
    held = asked.held("reasoning")
    return {"thought": asked.chain.told(held), "score": "0.9" if asked.chain.complete(held) else "0.2"}


def _update(asked: Asked) -> dict[str, str]:
    held = asked.held("previous", "finding")
    return {"reasoning": asked.chain.told(held), "answer": asked.chain.likely(held)}


def _explain(asked: Asked) -> dict[str, str]:
    held = asked.held("passages")
    return {"reason": asked.chain.told(held), "answer": _or_refuse(asked.chain, held)}


def _critique(asked: Asked) -> dict[str, str]:
    held = asked.held("passages")
    enough = asked.chain.complete(held)
    return {"feedback": "none" if enough else asked.chain.told(held), "sufficient": _yes(enough)}


def _think(asked: Asked) -> dict[str, str]:
    held = asked.held("knowledge", "thoughts")
    return {"thought": asked.chain.told(held), "retrieve": _yes(not asked.chain.complete(held))}


def _identify(asked: Asked) -> dict[str, str]:
    chain, held = asked.chain, asked.held("knowledge", "thoughts")
    return {"searches": f"{chain.likely(held, 'other')} | {(chain.open(held) or ['none'])[0]} | {chain.question}"}


def _summarise(asked: Asked) -> dict[str, str]:
    before, now = asked.held("thoughts"), asked.held("thoughts", "passages")
    return {"summary": asked.chain.known(now, since=before) or "none"}


def _check(asked: Asked) -> dict[str, str]:
    held = asked.held("summary")
    return {"sufficient": _yes(asked.chain.complete(held)), "missing": _listed(asked.chain.open(held))}


def _order(asked: Asked) -> dict[str, str]:
    problems = [line.split(". ", 1) for line in asked["problems"].splitlines()]
    pairs = [f"{n} depends on {m}" for n, text in problems for m, other in problems if f"({other})" in text]
    return {"dependencies": "\n".join(pairs) or "none"}


REPLIES: dict[str, Callable[[Asked], dict[str, str]]] = {
    "Integrate": _integrate,
    "AnswerIfSufficient": _gate,
    "AnswerAnyway": lambda asked: {"answer": asked.chain.likely(asked.held("passages"), _title(asked))},
    "CompleteChain": _complete,
    "NextThought": _next_thought,
    "DraftThought": _draft,
    "NextAction": _act,
    "ReasonFromPassages": _reason,
    "JudgeReliability": _judge,
    "DecomposeQuestion": lambda asked: {
        "questions": _listed(asked.chain.open(0) if len(asked.chain.links) > 1 else [])
    },
    "RewriteQuestions": lambda asked: {"questions": _listed(asked.chain.open(asked.held("reasoning")))},
    "CheckRelevance": lambda asked: {
        "relevant": _yes(any(link.stands_in(asked["finding"]) for link in asked.chain.filled()))
    },
    "UpdateReasoning": _update,
    "AnswerWithReason": _explain,
    "AnswerFromMemory": lambda asked: {"answer": REFUSAL, "known": "no"},
    "CritiqueAnswer": _critique,
    "SplitQuestion": lambda asked: {"queries": _listed(asked.chain.open(asked.held("feedback")))},
    "ContinueReasoning": _think,
    "IdentifyEntities": _identify,
    "SummariseEntity": _summarise,
    "RefineSummary": lambda asked: {"summary": asked.chain.known(asked.held("known", "passages")) or "none"},
    "CheckSummary": _check,
    "OrderSubproblems": _order,
    "AnswerFromNotes": lambda asked: {"answer": asked.chain.likely(asked.held("notes"))},
}
