"""Every value can be written as JSON, and what JSON holds stays as it is."""

import collections
import enum
import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import dspy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirag_dspy.plain import dump, plain, shown
from cirag_dspy.schema import Triple


class Level(enum.Enum):
    TRIPLES = "triples"


class Mute:
    def __str__(self):
        raise RuntimeError("no")

    __repr__ = __str__


class MuteIterator(Mute):
    def __iter__(self):
        raise ValueError("broken")


@dataclass
class Odd:
    level: set
    score: float


ITSELF: list = [1]
ITSELF.append(ITSELF)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"b", "a"}, ["a", "b"]),
        ({2, "a", None}, [None, 2, "a"]),
        (frozenset(), []),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.str_("x"), "x"),
        (np.array([[1.0, np.nan]]), [[1.0, None]]),
        (float("nan"), None),
        ([float("inf"), -float("inf")], [None, None]),
        (Odd({"a"}, float("nan")), {"level": ["a"], "score": None}),
        (Triple("a", "b", "c", "p", 0), {"head": "a", "relation": "b", "tail": "c", "passage_id": "p", "sentence": 0}),
        (dspy.Prediction(answer="x", level={"y"}), {"answer": "x", "level": ["y"]}),
        (Level.TRIPLES, "triples"),
        (b"caf\xc3\xa9", "café"),
        (b"caf\xe9", "caf\\xe9"),
        (Path("a/b"), "a/b"),
        (date(2026, 1, 2), "2026-01-02"),
        ((1, (2,)), [1, [2]]),
        (range(3), [0, 1, 2]),
        ((n for n in "ab"), ["a", "b"]),
        (collections.deque([1]), [1]),
        (collections.Counter("aa"), {"a": 2}),
        ({1: "a", None: "b", ("x", 1): "c"}, {"1": "a", "null": "b", '["x", 1]': "c"}),
        ("half \ud83d", "half \\ud83d"),
        (Mute(), "<Mute without a text>"),
        ([MuteIterator()], ["<MuteIterator without a text>"]),
        (ITSELF, [1, "[1, [...]]"]),
        (10**5000, "<int without a text>"),
        (int, "<class 'int'>"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_plain(value, expected):
    assert plain(value) == expected
    assert json.loads(dump({"value": value})) in ({"value": expected}, {"value": plain(value)}, {"value": []})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_what_json_holds_stays_as_it_is(value):
    assert plain(value) == value
    assert json.loads(dump(value)) == value


def test_deep_nesting_ends():
    value: list = []
    for _ in range(5000):
        value = [value]
    json.loads(dump(value))


def test_an_error_without_a_text():
    class Silent(Exception):
        def __str__(self):
            raise RuntimeError

    assert shown(Silent()) == "<Silent without a text>"


def test_keys_that_are_written_alike_are_both_kept():
    assert plain({1: "a", "1": "b"}) == {"1": "a", "1 (str)": "b"}
