import pytest

from cirag_dspy.modules.subproblems import in_order, parse_dependencies


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("2 depends on 1", [(2, 1)]),
        ("2 depends on 1\n3 depends on 2.", [(2, 1), (3, 2)]),
        ("2 depends on 1, 3 depends on 2", [(2, 1), (3, 2)]),
        ("2 depends on 1; 3 needs 2", [(2, 1), (3, 2)]),
        ("3 depends on 1 and 2", [(3, 1), (3, 2)]),
        ("3: 1, 2", [(3, 1), (3, 2)]),
        ("[[2, 1], [3, 2]]", [(2, 1), (3, 2)]),
        ("(2, 1), (3, 2)", [(2, 1), (3, 2)]),
        ("1. 2 depends on 1\n2. 3 depends on 2", [(2, 1), (3, 2)]),
        ("2. depends on 1", [(2, 1)]),
        ("- Sub-problem 2 depends on sub-problem 1", [(2, 1)]),
        ("1 does not depend on 2", []),
        ("1 doesn’t depend on 2", []),
        ("2 cannot be answered without 1", [(2, 1)]),
        ("2 depends on 1, a different person", [(2, 1)]),
        ("1 is independent", []),
        ("none", []),
        ("", []),
    ],
)
def test_dependencies(text, pairs):
    assert parse_dependencies(text) == pairs


@pytest.mark.parametrize(
    ("dependencies", "ordered"),
    [
        ([], [1, 2, 3]),
        ([(2, 1), (3, 2)], [1, 2, 3]),
        ([(1, 2), (2, 3)], [3, 2, 1]),
        ([(1, 3)], [3, 2, 1]),
        ([(1, 2), (2, 3), (3, 1)], [3, 2, 1]),  # the one that closes the circle is left out
        ([(3, 1), (1, 3)], [1, 2, 3]),
        ([(1, 1), (1, 9), (0, 1)], [1, 2, 3]),
    ],
)
def test_each_comes_after_those_it_depends_on(dependencies, ordered):
    assert in_order(3, dependencies) == ordered


def test_a_reply_that_repeats_itself_takes_no_time():
    chain = [(number + 1, number) for number in range(1, 8)]
    assert in_order(8, chain * 100) == [1, 2, 3, 4, 5, 6, 7, 8]
