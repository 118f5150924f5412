"""The annotations teacher's replies to the prompts of IRCoT, ReAct and D2F-ReAG.

What is known is read from the prompt: a thought, a finding or a passage that states a step of the gold chain. What is
not known is searched for by names that the question or a known fact tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cirag_dspy.lms.gold import GoldChain
from cirag_dspy.signatures import REFUSAL
from cirag_dspy.text import match_key, split_sentences

Fields = Mapping[str, str]
Guess = Callable[[str], str]
MISSING = "What is missing is "
NO_MORE = "The passages say no more."
RELIABLE, UNRELIABLE = "0.9", "0.2"


def next_thought(chain: GoldChain, asked: Fields, guess: Guess) -> dict[str, str]:
    """The next fact that the passages state; else what to search for; else the end (IRCoT)."""
    question = asked["question"]
    said = split_sentences(asked["thoughts"])
    known = _stated(said)
    if chain.is_complete(known):
        answer = chain.answer_in(known, question) or guess(question)
        return {"thought": f"So the answer is: {answer or REFUSAL}."}
    if found := chain.follow(question, _lines(asked["passages"]), known):
        return {"thought": f"{found[0]}."}
    queries = {match_key(sentence.removeprefix(MISSING)) for sentence in said}
    if query := chain.next_query(question, known, asked=queries):
        return {"thought": f"{MISSING}{query.rstrip('? ')}."}
    likely = guess(question)
    return {"thought": f"So the answer is: {likely}." if likely else NO_MORE}


def next_action(chain: GoldChain, turns: Sequence[Fields], guess: Guess) -> dict[str, str]:
    """Finish once the observations hold the answer; else search for the next step (ReAct)."""
    question = turns[-1]["question"]
    seen = [line for turn in turns for line in _lines(turn.get("observation", ""))]
    queries = {match_key(turn.get("action", "").removeprefix("search[").removesuffix("]")) for turn in turns}
    known = chain.follow(question, seen)
    answer = chain.answer_in(seen, question)
    query = "" if answer else chain.next_query(question, known, asked=queries)
    if not answer and not query and len(turns) == 1:
        query = question  # nothing that the question names: look before giving up
    finish = f"finish[{answer or guess(question) or REFUSAL}]"
    return {"thought": "; ".join(known) or "nothing known yet", "action": f"search[{query}]" if query else finish}


def reason(chain: GoldChain, asked: Fields, guess: Guess) -> dict[str, str]:
    """The facts that passages state, and what is missing (D2F-ReAG section 3.1)."""
    return _reasoning(chain, asked["question"], _lines(asked["passages"]), guess)


def judge(chain: GoldChain, asked: Fields) -> dict[str, str]:
    """Whether a reasoning states every fact that is needed (section 3.2)."""
    known = _stated(split_sentences(asked["reasoning"]))
    missing = _missing(chain, asked["question"], known)
    return {
        "thought": missing or "every fact is stated",
        "score": RELIABLE if chain.is_complete(known) else UNRELIABLE,
    }


def decompose(chain: GoldChain, asked: Fields) -> dict[str, str]:
    """The sub-questions of a question, in the order of its chain (section 3.3)."""
    return _questions(chain, asked["question"], ())


def rewrite(chain: GoldChain, asked: Fields) -> dict[str, str]:
    """The sub-questions still open, with the names that are known (section 3.3)."""
    return _questions(chain, asked["question"], _stated(split_sentences(asked["reasoning"])), least=1)


def check(chain: GoldChain, asked: Fields) -> dict[str, str]:
    """Whether a finding states a step of the main question (section 3.4)."""
    found = _stated(split_sentences(asked["finding"]))
    return {"relevant": "yes" if any(step.holds(line) for step in chain.steps for line in found) else "no"}


def update(chain: GoldChain, asked: Fields, guess: Guess) -> dict[str, str]:
    """The reasoning so far with what was found (section 3.4)."""
    lines = _stated([*split_sentences(asked["previous"]), *split_sentences(asked["finding"])])
    return _reasoning(chain, asked["question"], lines, guess)


def _reasoning(chain: GoldChain, question: str, lines: Sequence[str], guess: Guess) -> dict[str, str]:
    known = chain.follow(question, lines)
    missing = _missing(chain, question, known)
    sentences = [f"{fact}." for fact in known] + [missing] * bool(missing)
    # Where it is not known, what is nearest to it: a side of a choice, or what the last fact tells.
    answer = chain.answer_in(lines, question) or guess(question) or chain.last_answer(known) or REFUSAL
    return {"reasoning": " ".join(sentences) or NO_MORE, "answer": answer}


def _missing(chain: GoldChain, question: str, known: Sequence[str]) -> str:
    query = "" if chain.is_complete(known) else chain.next_query(question, known, asked=())
    return f"{MISSING}{query.rstrip('? ')}." if query else ""


def _questions(chain: GoldChain, question: str, known: Sequence[str], least: int = 2) -> dict[str, str]:
    questions = [f"- {text.rstrip('? ')}?" for text in chain.subquestions(question, known)]
    return {"questions": "\n".join(questions) if len(questions) >= least else "none"}


def _lines(passages: str) -> list[str]:
    """Passages, and each of their sentences behind the title."""
    lines = []
    for line in passages.splitlines():
        title, _, text = line.partition(": ")
        lines += [line, *(f"{title}: {sentence}" for sentence in split_sentences(text))]
    return lines


def _stated(sentences: Sequence[str]) -> list[str]:
    """The sentences that may state a fact: not those that say what is missing."""
    return [sentence for sentence in sentences if not sentence.startswith(MISSING)]
