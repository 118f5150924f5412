"""How much of the gold a ranking holds: recall by passage id (multi-hop) and by answer string (open domain)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from cirag_dspy.text import letter_runs

RULES = {
    "recall@k": "HippoRAG: share of the gold passages (ids) in the top k; 0 for an empty ranking; mean over questions; "
    "gold that the corpus lacks counts as not found",
    "all_recall@k": "1 if every gold passage (by id) is in the corpus and among the top k, else 0; mean over questions",
    "answer_recall@k": "DPR has_answer: 1 if a top-k passage's text holds an answer's tokens in a row (NFD, lower; of "
    "scripts without blanks each letter is a token)",
}
KS = (2, 5, 10)


def recall_at(
    ranked_ids: Sequence[str], gold_ids: Iterable[str], ks: Sequence[int] = KS, *, missing: int = 0
) -> dict[int, float]:
    """Recall of one question at each ``k``; 0 when the ranking or the gold is empty.

    ``missing`` gold passages are not in the corpus at all: they count as not found.
    """
    gold = set(gold_ids)
    total = len(gold) + missing
    return {k: len(gold.intersection(ranked_ids[:k])) / total if total else 0.0 for k in ks}


def all_recall_at(
    ranked_ids: Sequence[str], gold_ids: Iterable[str], ks: Sequence[int] = KS, *, missing: int = 0
) -> dict[int, float]:
    """Whether all gold passages of one question are in the top ``k``, as 1 or 0; 0 when there is none or one is missing
    from the corpus.
    """
    gold = set(gold_ids)
    return {k: float(bool(gold) and not missing and gold.issubset(ranked_ids[:k])) for k in ks}


def answer_recall_at(texts: Sequence[str], answers: Sequence[str], ks: Sequence[int] = KS) -> dict[int, float]:
    """Whether one of the top ``k`` texts holds an answer, as 1 or 0.

    DPR looks at a passage's text alone; put its title in front of it to get KiRAG's number.
    """
    first = next((rank for rank, text in enumerate(texts[: max(ks, default=0)]) if has_answer(answers, text)), None)
    return {k: float(first is not None and first < k) for k in ks}


def has_answer(answers: Iterable[str], text: str) -> bool:
    """DPR's ``has_answer``: an answer's tokens stand next to each other in the text.

    An answer without any token matches nothing here (in DPR it matches everything).
    """
    haystack = _line(text)
    return any(needle.strip() and needle in haystack for needle in map(_line, answers))


def answer_tokens(text: str) -> list[str]:
    """Tokens of DPR's ``SimpleTokenizer`` over NFD text, lower-cased, and of scripts without blanks each letter.

    A token is a run of letters, numbers and marks, or any other character that is no separator or control character.
    DPR takes a whole run of Chinese or Thai for one token, so that no answer is ever found inside it.
    """
    return [run.lower() for run in letter_runs(unicodedata.normalize("NFD", text))]


def _line(text: str) -> str:
    """The tokens with a line break around each, which no token holds: a run of tokens is then a substring."""
    return "\n" + "".join(f"{token}\n" for token in answer_tokens(text))
