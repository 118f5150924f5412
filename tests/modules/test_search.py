from cirag_dspy.modules.search import interleave


def test_ids_by_their_best_rank_earlier_rankings_first():
    assert interleave([["a", "b", "c"], [], ["d", "a", "c", "e"]]) == ["a", "d", "b", "c", "e"]
    assert interleave([]) == []
