"""Batches of an aligner's training: every row, once, and none that another contradicts."""

from collections import Counter

from cirag_dspy.distill.batches import QuestionBatchSampler
from cirag_dspy.distill.links import Row


def drawn(rows, batches, *, epoch=0, seed=0):
    sampler = QuestionBatchSampler([None] * len(rows), 64, rows=rows, batches=batches, drop_last=False, seed=seed)
    sampler.set_epoch(epoch)
    assert len(sampler) == batches
    return list(sampler)


def test_each_row_comes_once_and_a_question_once_a_batch():
    rows = [Row(f"q{n}", f"q{n} {step}", f"{n} {step}", (f"not {n}",)) for n in range(30) for step in range(1 + n % 7)]
    found = drawn(rows, 7)
    assert sorted(number for batch in found for number in batch) == list(range(len(rows)))
    assert all(max(Counter(rows[number].question for number in batch).values()) == 1 for batch in found)
    sizes = [len(batch) for batch in found]
    assert len(sizes) == 7 and max(sizes) - min(sizes) <= 1


def test_what_is_right_in_one_row_is_not_wrong_in_another():
    rows = [
        Row("a", "a", "x", ("y",)),
        Row("b", "b", "y", ("z",)),
        Row("c", "c", "x", ("w",)),  # right in two: each would count as wrong for the other
        Row("d", "d", "v", ("z", "w")),  # what is wrong in two contradicts nothing
    ]
    for seed in range(20):
        together = [set(batch) for batch in drawn(rows, 3, seed=seed)]
        assert sum(map(len, together)) == 4
        assert not any(pair <= batch for batch in together for pair in ({0, 1}, {0, 2}))
    assert any({1, 3} <= set(batch) for seed in range(20) for batch in drawn(rows, 3, seed=seed))


def test_a_row_that_fits_nowhere_waits_for_the_next_epoch():
    rows = [Row("a", "a", "x", ("y",)), Row("b", "b", "y", ("z",))]
    left = {tuple(batch) for epoch in range(20) for batch in drawn(rows, 1, epoch=epoch)}
    assert left == {(0,), (1,)}


def test_the_order_is_of_seed_and_epoch():
    rows = [Row(f"q{n}", "", str(n), ()) for n in range(50)]
    assert drawn(rows, 5) == drawn(rows, 5)
    assert drawn(rows, 5) != drawn(rows, 5, epoch=1) != drawn(rows, 5, seed=1)
