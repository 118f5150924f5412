"""Answer, supporting-fact, evidence and joint scores, each by the rule of its data set's official script.

Every function scores one question and returns ``em``, ``f1``, ``precision``, ``recall``; a run's score is the mean over
all gold questions, a failed one counting as an empty answer without support. ``RULES`` says each rule in one line.
"""

from __future__ import annotations

import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from cirag_dspy.errors import DataError
from cirag_dspy.text import normalize_answer

Scores = dict[str, float]

RULES = {
    "hotpotqa": "hotpot_evaluate_v1.py: one gold answer; F1, P, R 0 if one side is yes/no/noanswer and they differ",
    "2wikimultihopqa": "2wikimultihop_evaluate_v1.1.py: as hotpotqa, over answer and aliases, maxima independent",
    "musique": "evaluate_v1.0.py: maxima over answer and aliases, no yes/no rule; two empty answers agree",
    "open": "DPR and FiD: EM maximal over the answers; F1 (not in their scripts) likewise; no yes/no rule",
    "sp": "sets of (title, sentence), exact; 2wikimultihopqa lower-cases titles after that; musique: paragraph idx",
    "evi": "2wikimultihop_evaluate_v1.1.py: triples lower-cased, no punctuation, articles kept; any alias of a gold",
    "joint": "precision and recall are the products of the parts', F1 from those, EM the product",
    "str_acc": "LogicRAG: 1 if an accepted answer, normalised, is a substring of the normalised prediction "
    "(so no is in Norway); no yes/no rule",
    "llm_acc": "LogicRAG: 1 if an LM says that prediction and accepted answers mean the same; not asked where EM is 1 "
    "(then 1) or nothing was answered (then 0); a reply that can't be read counts 0",
    "em_hipporag": "HippoRAG 2: EM maximal over all accepted answers, no yes/no rule",
    "f1_hipporag": "HippoRAG 2: F1 maximal over all accepted answers, no yes/no rule",
    "f1_kirag": "KiRAG: F1 against the first answer only, no yes/no rule",
    "em_dspy": "dspy.evaluate.EM: as em_hipporag after Unicode NFD",
    "f1_dspy": "dspy.evaluate.F1: as f1_hipporag after Unicode NFD",
}
_RULE_OF = {
    "hotpotqa": "hotpotqa",
    "demo": "hotpotqa",
    "2wikimultihopqa": "2wikimultihopqa",
    "musique": "musique",
    "nq": "open",
    "webquestions": "open",
    "bamboogle": "open",
}
_CLOSED = frozenset({"yes", "no", "noanswer"})
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ZERO = (0.0, 0.0, 0.0)


def answer_rule(dataset: str) -> str:
    """Key in ``RULES`` of the rule that scores this data set's answers."""
    if dataset not in _RULE_OF:
        raise DataError(f"no answer metric for data set {dataset!r}; known are {', '.join(_RULE_OF)}")
    return _RULE_OF[dataset]


def answer_scores(dataset: str, prediction: str | None, golds: Any) -> Scores:
    """Official answer scores of one question.

    Args:
        dataset: Name of the data set; ``demo`` scores as HotpotQA does.
        prediction: The answer; ``None`` counts as empty.
        golds: The accepted answers, the main one first; a lone string; or the ``dspy.Example`` that has them.
    """
    rule = answer_rule(dataset)
    answers = gold_answers(golds)
    if rule == "hotpotqa":
        answers = answers[:1]
    return _best(prediction, answers, closed=rule in ("hotpotqa", "2wikimultihopqa"), empty_agree=rule == "musique")


def variant_scores(prediction: str | None, golds: Any) -> Scores:
    """What other code bases would report for the same answer; keys and rules as in ``RULES``. Not official."""
    answers = gold_answers(golds)
    hipporag = _best(prediction, answers)
    dspy = _best(_nfd(prediction or ""), [_nfd(answer) for answer in answers])
    return {
        "em_hipporag": hipporag["em"],
        "f1_hipporag": hipporag["f1"],
        "f1_kirag": _best(prediction, answers[:1])["f1"],
        "em_dspy": dspy["em"],
        "f1_dspy": dspy["f1"],
    }


def string_accuracy(prediction: str | None, golds: Any) -> float:
    """Str-Acc: whether an accepted answer is contained in the prediction, both normalised, as 1 or 0.

    LogicRAG's rule. D2F-ReAG (section 4.1) says "exactly matches" but follows it: its table 1 has models whose Str-Acc
    is far above their LLM-Acc, as no exact match can be. An answer of which normalisation leaves nothing must be equal.
    """
    answer = normalize_answer(prediction or "")
    normalized = map(normalize_answer, gold_answers(golds))
    return float(any(gold in answer if gold else not answer for gold in normalized))


def gold_answers(golds: Any) -> list[str]:
    """The accepted answers of a string, a sequence of strings, or an example (``answers``, else ``answer``)."""
    if isinstance(golds, str):
        return [golds]
    if not isinstance(golds, Sequence):
        golds = golds.get("answers") or [golds["answer"]]
    if not golds:
        raise DataError("a question without gold answers cannot be scored")
    return list(golds)


def support_scores(dataset: str, predicted: Iterable[Any], gold: Iterable[Any]) -> Scores:
    """Scores of the supporting facts: ``(title, sentence)`` pairs, or paragraph indices (MuSiQue).

    2Wiki lower-cases titles after removing duplicates, so ``("a", 0)`` and ``("A", 0)`` stay two predictions.
    """
    if dataset == "musique":
        found, wanted = {int(index) for index in predicted}, {int(index) for index in gold}
        return _set_scores(list(found), list(wanted), empty_f1=1.0)
    pairs, facts = (list({tuple(fact) for fact in side}) for side in (predicted, gold))
    if dataset == "2wikimultihopqa":
        pairs, facts = ([(title.lower(), *rest) for title, *rest in side] for side in (pairs, facts))
    return _set_scores(pairs, facts)


def evidence_scores(predicted: Iterable[Sequence[str]], gold: Iterable[Sequence[Any]]) -> Scores:
    """Scores of 2Wiki evidence triples.

    Args:
        predicted: ``(head, relation, tail)`` triples.
        gold: For each fact its triple, or the list of its accepted forms (``evidence_golds`` of an example). As in the
            official script two predictions may match one fact, so EM can be 1 with a fact missing.
    """
    found = {_evidence_key(triple) for triple in predicted}
    facts = [[fact] if fact and isinstance(fact[0], str) else fact for fact in gold]
    wanted = [{_evidence_key(form) for form in forms} for forms in facts]
    matches = sum(any(triple in forms for forms in wanted) for triple in found)
    precision = matches / len(found) if found else 0.0
    recall = matches / len(wanted) if wanted else 0.0
    return _scores(float(matches == len(found) == len(wanted)), precision, recall)


def joint_scores(*parts: Mapping[str, float]) -> Scores:
    """Joint scores: products of exact matches, precisions and recalls, F1 from the products (not of the F1s)."""
    em = precision = recall = 1.0
    for part in parts:
        em, precision, recall = em * part["em"], precision * part["precision"], recall * part["recall"]
    return _scores(em, precision, recall)


def question_scores(dataset: str, prediction: Mapping[str, Any], example: Any) -> Scores:
    """All official scores of one question.

    Args:
        dataset: Name of the data set.
        prediction: ``answer``, and as far as the system gives them ``supporting``, ``evidences``, ``support_idxs``.
        example: The question as ``load_benchmark`` makes it.

    Returns:
        ``em``, ``f1``, ``precision``, ``recall``; with gold and predicted support also ``sp_*``, for 2Wiki ``evi_*``,
        and, where every part that the official script joins is there, ``joint_*`` (MuSiQue has none).
    """
    parts = {"": answer_scores(dataset, prediction.get("answer"), example)}
    key = "support_idxs" if dataset == "musique" else "supporting"
    if example.get(key) and prediction.get(key) is not None:
        parts["sp_"] = support_scores(dataset, prediction[key], example[key])
    evidences = example.get("evidence_golds") or example.get("evidences")
    if dataset == "2wikimultihopqa" and evidences and prediction.get("evidences") is not None:
        parts["evi_"] = evidence_scores(prediction["evidences"], evidences)
    joined = {"hotpotqa": 2, "demo": 2, "2wikimultihopqa": 3}.get(dataset)
    if joined == len(parts):
        parts["joint_"] = joint_scores(*parts.values())
    return {prefix + name: value for prefix, scores in parts.items() for name, value in scores.items()}


def answer_metric(dataset: str) -> Callable[..., float | bool]:
    """Make a DSPy metric for a data set: ``answer_metric("demo")`` is a function of ``(example, pred, trace=None)``.

    It gives the official EM, as a bool while an optimizer traces.
    """
    return _metric(dataset, "em", 1.0)


def f1_metric(dataset: str, threshold: float = 1.0) -> Callable[..., float | bool]:
    """Make a DSPy metric of a data set's official F1; while an optimizer traces, whether it reaches ``threshold``.

    A bool then, since DSPy's optimizers take any positive number for success.
    """
    return _metric(dataset, "f1", threshold)


def _metric(dataset: str, score: str, threshold: float) -> Callable[..., float | bool]:
    answer_rule(dataset)

    def metric(example: Any, pred: Any, trace: Any = None, *_: Any, **__: Any) -> float | bool:
        value = answer_scores(dataset, getattr(pred, "answer", None), example)[score]
        return value if trace is None else value >= threshold

    return metric


def _best(prediction: str | None, golds: Iterable[str], *, closed: bool = False, empty_agree: bool = False) -> Scores:
    """The maximum of each score over the golds, taken independently."""
    answer = normalize_answer(prediction or "")
    normalized = [normalize_answer(gold) for gold in golds]
    overlaps = [_overlap(answer, gold, closed, empty_agree) for gold in normalized]
    f1, precision, recall = (max(column) for column in zip(*overlaps, strict=True))
    return {"em": float(answer in normalized), "f1": f1, "precision": precision, "recall": recall}


def _overlap(answer: str, gold: str, closed: bool, empty_agree: bool) -> tuple[float, float, float]:
    """F1, precision and recall of two normalised answers as bags of tokens."""
    if closed and answer != gold and not _CLOSED.isdisjoint((answer, gold)):
        return _ZERO
    words, wanted = answer.split(), gold.split()
    if empty_agree and not words and not wanted:
        return 1.0, 1.0, 1.0
    same = sum((Counter(words) & Counter(wanted)).values())
    if not same:
        return _ZERO
    precision, recall = same / len(words), same / len(wanted)
    return 2 * precision * recall / (precision + recall), precision, recall


def _set_scores(found: Collection[Any], wanted: Collection[Any], empty_f1: float = 0.0) -> Scores:
    """Scores of two collections that are sets but for the lower-casing of their members."""
    if not found and not wanted:
        return {"em": 1.0, "f1": empty_f1, "precision": empty_f1, "recall": empty_f1}
    hits = sum(item in wanted for item in found)
    missed = sum(item not in found for item in wanted)
    precision = hits / len(found) if found else 0.0
    recall = hits / (hits + missed) if hits + missed else 0.0
    return _scores(float(hits == len(found) and not missed), precision, recall)


def _scores(em: float, precision: float, recall: float) -> Scores:
    total = precision + recall
    return {"em": em, "f1": 2 * precision * recall / total if total else 0.0, "precision": precision, "recall": recall}


def _evidence_key(triple: Sequence[str]) -> tuple[str, ...]:
    return tuple(" ".join(part.lower().translate(_PUNCTUATION).split()) for part in triple)


def _nfd(text: str) -> str:
    return unicodedata.normalize("NFD", text)
