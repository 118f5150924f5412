import pytest

from cirag_dspy.benchmarks.draw import Draw, permuted, told
from cirag_dspy.errors import DataError


def test_a_seed_draws_the_same_in_file_order():
    # random.Random(0).sample(range(20), 5) is 12, 13, 1, 8, 15.
    assert Draw(5).indices(20) == [1, 8, 12, 13, 15]
    assert Draw(5, seed=1).indices(20) != Draw(5).indices(20) == Draw(5, seed=0).indices(20)


def test_without_a_limit_and_with_one_too_large_all_are_taken():
    assert Draw().indices(3) == Draw(3).indices(3) == Draw(9, first=True).indices(3) == [0, 1, 2]
    assert Draw(9, seed=4).record(3) == {"kind": "all", "n": 3, "of": 3}
    assert Draw(9, first=True).warning(3) == ""


def test_the_first_are_taken_when_asked_for_and_warned_of():
    assert Draw(2, first=True).indices(5) == [0, 1]
    assert Draw(2, first=True).warning(5).startswith("the first 2 of 5 questions are no sample")
    assert Draw(2).warning(5) == ""


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (Draw(2, seed=7), "2 of 5 questions drawn at random, --seed 7 --limit 2"),
        (Draw(2, first=True), "the first 2 of 5 questions, --first --limit 2"),
        (Draw(), "all 5 questions"),
    ],
)
def test_a_record_in_words(draw, says):
    assert told(draw.record(5)) == says


@pytest.mark.parametrize("options", [{"limit": 0}, {"seed": -1}, {"seed": None}, {"seed": True}, {"seed": 1.5}])
def test_what_draws_nothing_or_anything_is_refused(options):
    with pytest.raises(DataError):
        Draw(**options)


def test_parts_of_a_permutation_share_nothing():
    order = permuted(50, 3)
    assert sorted(order) == list(range(50)) != order
    assert permuted(50, 3) == order != permuted(50, 4)
