import itertools
import json
import warnings

import numpy as np
import pytest

from cirag_dspy.errors import RunError
from cirag_dspy.evaluate.compare import compare, interval, p_value


def row(id, em=0.0, f1=0.0, recall=(), level="triples", error="", calls=1, cached=0, tokens=(100, 10), seconds=1.0):
    return {
        "id": id,
        "em": em,
        "f1": f1,
        "recall": dict(zip(("2", "3", "5", "10"), recall, strict=False)),
        "answer_recall": {},
        "level": None if error else level,
        "error": error,
        "lm": {"calls": calls, "cached": cached, "prompt_tokens": tokens[0], "completion_tokens": tokens[1]},
        "seconds": seconds,
    }


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def flips(differences):
    """The exact two-sided p: the share of all 2^n choices of signs whose mean is as far from 0."""
    seen = abs(sum(differences))
    sums = [abs(sum(s * d for s, d in zip(signs, differences, strict=True))) for signs in SIGNS(len(differences))]
    return sum(value >= seen - 1e-12 for value in sums) / len(sums)


def SIGNS(n):
    return itertools.product((1, -1), repeat=n)


@pytest.mark.parametrize(
    "differences",
    [
        [1, 1, 1, 1, 1],
        [1, 0, 0, -1, 1, 0],
        [0.5, -0.25, 0.75, 0.1, -0.6, 0.3, 0.3, -0.2],
        [0.2, 0.2, -0.2],
        [1, -1],
    ],
)
def test_p_is_that_of_all_flips_of_signs(differences):
    assert p_value(differences) == pytest.approx(flips(differences))


def test_p_by_hand():
    # Five wins and no loss: of 32 choices of signs, all plus and all minus are as far out.
    assert p_value([1.0] * 5 + [0.0] * 95) == pytest.approx(2 / 32)


def test_p_of_many_questions_is_drawn_and_near_the_exact_one():
    # 25 wins and 10 losses: the sign test's two-sided p, by the binomial distribution, is 0.0167.
    differences = [1.0] * 25 + [-1.0] * 10 + [0.0] * 300
    assert p_value(differences) == pytest.approx(0.0167, abs=0.004)
    assert p_value(differences, seed=3) == p_value(differences, seed=3)


def test_the_interval_is_the_bootstrap_s():
    values = [0.0, 0.0, 1.0, 0.5, 1.0, 0.25, 0.0, 1.0, 1.0, 0.75]
    draws = np.random.default_rng(7).choice(values, (20000, len(values))).mean(axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    assert interval(values) == pytest.approx((low, high), abs=0.03)
    assert interval(values, seed=5) == interval(values, seed=5)


def test_the_interval_of_two_values_is_exact():
    assert interval([0.0, 1.0]) == (0.0, 1.0)  # a quarter of the resamples is (0, 0), a quarter (1, 1)


def test_values_without_spread():
    assert interval([1.0]) is None
    assert interval([0.4, 0.4, 0.4]) == (0.4, 0.4)
    assert p_value([]) == p_value([0.0, 0.0]) == p_value([0.3]) == 1.0


def test_a_comparison():
    first = [row("1", 1, 1, (0, 0.5, 1, 1)), row("2", 0, 0.5, (0, 0.5, 0.5, 1)), row("3", error="boom", seconds=9.0)]
    second = [
        row("3", 1, 1, level="passages", calls=3),
        row("1", 1, 1, level="passages", cached=1),
        row("4", 1, 1, level="default", tokens=(400, 40)),
    ]
    found = compare({"cirag": first, "native_rag": second}, seed=4)
    assert (found["against"], found["seed"]) == ("cirag", 4)
    cirag, native = found["runs"]["cirag"], found["runs"]["native_rag"]
    assert (cirag["n"], cirag["errors"], cirag["levels"]) == (3, 1, {"triples": 2})
    assert cirag["scores"]["em"]["mean"] == 0.3333 and cirag["scores"]["f1"]["mean"] == 0.5
    # Only the two questions with gold passages have a recall.
    assert [name for name in cirag["scores"] if "@" in name] == ["recall@3", "recall@5"]
    assert cirag["scores"]["recall@3"] == {"mean": 0.5, "low": 0.5, "high": 0.5}
    assert cirag["scores"]["recall@5"]["mean"] == 0.75
    assert native["cost"] == {"calls": 1.67, "cached": 0.33, "prompt_tokens": 200.0, "completion_tokens": 20.0}
    assert native["levels"] == {"default": 1, "passages": 2}
    # Questions 1 and 3 are those that both have: equal, and won from a failed one.
    assert native["difference"]["n"] == 2
    assert native["difference"]["em"] == {"mean": 0.5, "low": 0.0, "high": 1.0, "p": 1.0}
    assert "difference" not in cirag
    assert "NaN" not in json.dumps(found)


def test_seconds_are_those_of_runs_that_were_timed():
    timed = [row(str(n), seconds=n) | {"latency": True} for n in (1, 2, 4, 9)]
    found = compare({"timed": timed, "partly": [*timed, row("5")], "not": [row("1", seconds=7.0)]})["runs"]
    assert found["timed"]["cost"]["seconds"] == 3.0  # the median
    assert "seconds" not in found["partly"]["cost"] and "seconds" not in found["not"]["cost"]


def test_the_passages_that_each_run_sees():
    settings = {"a": {"k": 10, "n": 3}, "b": {"k": 10, "read": 3}, "c": {"k": 6, "keep": 15}}
    runs = compare({name: [row("1")] for name in "abcd"}, settings=settings)["runs"]
    assert [runs[name]["passages"] for name in "abcd"] == [{"k": 10}, {"k": 10, "read": 3}, {"k": 6, "read": 15}, {}]


def test_another_reference():
    rows = {name: [row("1", em, em), row("2", 0, 0)] for name, em in (("a", 0), ("b", 1), ("c", 0))}
    found = compare(rows, against="b")
    assert [name for name, run in found["runs"].items() if "difference" in run] == ["a", "c"]
    assert found["runs"]["a"]["difference"]["f1"]["mean"] == -0.5
    with pytest.raises(RunError, match="--against must be one of a, b, c, not 'd'"):
        compare(rows, against="d")


def test_one_question_and_none_in_common():
    found = compare({"a": [row("1", 1, 1)], "b": [row("1", 0, 0)], "c": [row("2", 1, 1)]})
    assert found["runs"]["a"]["scores"]["em"] == {"mean": 1, "low": None, "high": None}
    assert found["runs"]["b"]["difference"]["em"] == {"mean": -1, "low": None, "high": None, "p": 1.0}
    assert found["runs"]["c"]["difference"] == {"n": 0}
    with pytest.raises(RunError, match="nothing to compare: b has no questions"):
        compare({"a": [row("1")], "b": []})


def test_rows_of_an_older_version_have_no_recall_at_3():
    old = row("1", 1, 1) | {"recall": {"2": 0.5, "5": 1.0, "10": 1.0}}
    found = compare({"a": [old], "b": [row("1", 1, 1, (0.5, 1, 1, 1))]})
    assert [name for name in found["runs"]["a"]["scores"] if "@" in name] == ["recall@5"]
    assert [name for name in found["runs"]["b"]["scores"] if "@" in name] == ["recall@3", "recall@5"]
