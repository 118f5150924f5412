"""What the annotations teacher replies to each prompt that it knows, from the gold chain of its question.

What is known is read from the prompt: a fact, a thought or a passage that states a step of the chain. What is not known
is searched for by names that the question or a known fact tells. A reply takes the chain and the turns of the
conversation, each with the fields of its prompt and of its reply.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence, Set

from cirag_dspy.lms.gold import GoldChain
from cirag_dspy.signatures import NO_QUERY, REFUSAL
from cirag_dspy.text import fact_lines, match_key, split_sentences

Turns = Sequence[Mapping[str, str]]
Reply = Callable[[GoldChain, Turns], dict[str, str]]
MOST_PER_STEP = 2
MISSING = "What is missing is "
NO_MORE = "The passages say no more."
RELIABLE, UNRELIABLE = "0.9", "0.2"
_CLOSED_QUESTION = re.compile(r"^(?:are|is|was|were|do|does|did|has|have|can)\b(?!.*\bor\b)", re.I)
_CHOICE = re.compile(r"(?:,|:|\bbetween)\s+(?P<one>[^,]+(?:, [^,]+)*?),? (?:or|and) (?P<other>[^,?]+?)\s*\?*$")


def reply_to(outputs: Set[str], inputs: Set[str]) -> Reply | None:
    """What replies to a prompt that has these inputs and asks for these outputs; ``None`` if nothing does."""
    return next((reply for asked, given, reply in _REPLIES if asked == outputs and given <= inputs), None)


def integrate(chain: GoldChain, turns: Turns) -> dict[str, str]:
    """Keep the facts that state a step, and ask for the next one (CIRAG section 3.3)."""
    *before, now = turns
    known: list[str] = []
    queries = {match_key(now["question"]), match_key(now.get("query", ""))}
    for turn in before:
        facts = _facts(turn.get("facts", ""))
        core = turn.get("core", "")
        copied = [fact for fact in facts.values() if fact in core.splitlines()]
        known += copied or [facts[n] for n in re.findall(r"\d+", core) if n in facts]
        queries.add(match_key(turn.get("query", "")))
    facts = _facts(now["facts"])
    kept = chain.supporting(now["question"], facts, known, most=MOST_PER_STEP)
    known += [facts[number] for number in kept]
    missing = chain.next_query(now["question"], known, asked=queries)
    return {
        "thought": "; ".join(facts[number].replace(" | ", " ") for number in kept) or "nothing new",
        "core": ", ".join(kept) or "none",
        "next_query": missing or NO_QUERY,
    }


def answer_if_sufficient(chain: GoldChain, turns: Turns) -> dict[str, str]:
    """The answer if the evidence holds it (section 3.4)."""
    # No thought: a 135M student taught to write the chain before its answer made chains up.
    asked = turns[-1]
    return {"answer": chain.answer_in(asked["evidence"].splitlines(), asked["question"]) or REFUSAL}


def answer_anyway(chain: GoldChain, turns: Turns) -> dict[str, str]:
    """The answer if the passages hold it, else a guess."""
    asked = turns[-1]
    told = chain.answer_in(asked["passages"].splitlines(), asked["question"])
    return {"answer": told or _guess(asked["question"]) or REFUSAL}


def complete_chain(chain: GoldChain, turns: Turns) -> dict[str, str]:
    """The facts that state what may come next in a chain of facts (KiRAG section 3.4)."""
    asked = turns[-1]
    facts = _facts(asked["facts"])
    steps = [chain.steps[number] for number in chain.open_steps(asked["question"], asked["chain"].splitlines())]
    stating = [next((number for number, fact in facts.items() if step.holds(fact)), "") for step in steps]
    return {"next": ", ".join(dict.fromkeys(filter(None, stating))) or "none"}


def next_thought(chain: GoldChain, turns: Turns) -> dict[str, str]:
    """The next fact that the passages state; else what to search for; else the end (IRCoT)."""
    question, passages = turns[-1]["question"], _lines(turns[-1]["passages"])
    said = _sentences(turns[-1]["thoughts"])
    known = _stated(said)
    if chain.is_complete(known):
        answer = chain.answer_in([*known, *passages], question) or _guess(question)
        return {"thought": f"So the answer is: {answer or REFUSAL}."}
    if found := chain.follow(question, passages, known):
        return {"thought": f"{found[0]}."}
    queries = {match_key(sentence.removeprefix(MISSING)) for sentence in said}
    if missing := _missing(chain, question, known, queries):
        return {"thought": missing}
    likely = _guess(question)
    return {"thought": f"So the answer is: {likely}." if likely else NO_MORE}


def next_action(chain: GoldChain, turns: Turns) -> dict[str, str]:
    """Search for the next step while one is missing and can be named; then finish with what was observed (ReAct)."""
    question = turns[-1]["question"]
    seen = [line for turn in turns for line in _lines(turn.get("observation", ""))]
    queries = {match_key(turn.get("action", "").removeprefix("search[").removesuffix("]")) for turn in turns}
    known = chain.follow(question, seen)
    query = "" if chain.is_complete(known) else chain.next_query(question, known, asked=queries)
    if not known and not query and len(turns) == 1:
        query = question  # nothing that the question names: look before giving up
    finish = f"finish[{chain.answer_in(seen, question) or _guess(question) or REFUSAL}]"
    return {"thought": "; ".join(known) or "nothing known yet", "action": f"search[{query}]" if query else finish}


def reason(chain: GoldChain, turns: Turns) -> dict[str, str]:
    """The facts that passages state, and what is missing (D2F-ReAG section 3.1)."""
    return _reasoning(chain, turns[-1]["question"], _lines(turns[-1]["passages"]))


def judge(chain: GoldChain, turns: Turns) -> dict[str, str]:
    """Whether a reasoning states what answers the question: all that is compared, else the last step (section 3.2)."""
    known = _stated(_sentences(turns[-1]["reasoning"]))
    missing = _missing(chain, turns[-1]["question"], known)
    return {
        "thought": missing or "every fact is stated",
        "score": RELIABLE if chain.is_complete(known) else UNRELIABLE,
    }


def decompose(chain: GoldChain, turns: Turns) -> dict[str, str]:
    """The sub-questions of a question, in the order of its chain (section 3.3)."""
    return _questions(chain, turns[-1]["question"], ())


def rewrite(chain: GoldChain, turns: Turns) -> dict[str, str]:
    """The sub-questions still open, with the names that are known (section 3.3)."""
    return _questions(chain, turns[-1]["question"], _stated(_sentences(turns[-1]["reasoning"])), least=1)


def check(chain: GoldChain, turns: Turns) -> dict[str, str]:
    """Whether a finding states a step of the main question (section 3.4)."""
    found = _stated(_sentences(turns[-1]["finding"]))
    return {"relevant": "yes" if any(step.holds(line) for step in chain.steps for line in found) else "no"}


def update(chain: GoldChain, turns: Turns) -> dict[str, str]:
    """The reasoning so far with what was found (section 3.4)."""
    lines = _stated([*_sentences(turns[-1]["previous"]), *_sentences(turns[-1]["finding"])])
    return _reasoning(chain, turns[-1]["question"], lines)


def _reasoning(chain: GoldChain, question: str, lines: Sequence[str]) -> dict[str, str]:
    known = chain.follow(question, lines)
    missing = _missing(chain, question, known)
    sentences = [f"{fact}." for fact in known] + [missing] * bool(missing)
    # Where it is not known, what is nearest to it: a side of a choice, or what the last fact tells.
    answer = chain.answer_in(lines, question) or _guess(question) or chain.last_answer(known) or REFUSAL
    return {"reasoning": " ".join(sentences) or NO_MORE, "answer": answer}


def _missing(chain: GoldChain, question: str, known: Sequence[str], asked: Set[str] = frozenset()) -> str:
    """What to search for next, as a sentence; empty if nothing is missing or can be named."""
    query = "" if chain.is_complete(known) else chain.next_query(question, known, asked)
    return f"{MISSING}{query.rstrip('? ')}." if query else ""


def _questions(chain: GoldChain, question: str, known: Sequence[str], least: int = 2) -> dict[str, str]:
    questions = [f"- {text.rstrip('? ')}?" for text in chain.subquestions(question, known)]
    return {"questions": "\n".join(questions) if len(questions) >= least else "none"}


def _sentences(text: str) -> list[str]:
    """The sentences of a reasoning; what says that something is missing begins one, also behind "Jr."."""
    pieces = re.split(rf"(?={re.escape(MISSING)})", text)
    return [sentence for piece in pieces for sentence in split_sentences(piece)]


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


_REPLIES: Sequence[tuple[set[str], set[str], Reply]] = (
    ({"thought", "core", "next_query"}, {"facts"}, integrate),
    ({"core", "next_query"}, {"facts"}, integrate),
    ({"thought", "answer"}, {"evidence"}, answer_if_sufficient),
    ({"answer"}, {"passages"}, answer_anyway),
    ({"next"}, {"chain", "facts"}, complete_chain),
    ({"thought"}, {"passages", "thoughts"}, next_thought),
    ({"thought", "action"}, {"observation"}, next_action),
    ({"reasoning", "answer"}, {"passages"}, reason),
    ({"thought", "score"}, {"reasoning"}, judge),
    ({"questions"}, {"reasoning", "open_questions"}, rewrite),
    ({"questions"}, set(), decompose),
    ({"relevant"}, {"finding"}, check),
    ({"reasoning", "answer"}, {"previous", "finding"}, update),
)
