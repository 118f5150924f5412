from cirag_dspy.modules.trail import Trail, round_robin
from cirag_dspy.schema import Hit, Passage

A, B, C, D = (Passage.create(name, f"{name} is a passage.") for name in "ABCD")


class Found:
    def __init__(self, **rankings):
        self.rankings = rankings

    def search(self, query, k):
        return [Hit(passage, 0.5) for passage in self.rankings[query][:k]]


def test_rankings_take_turns_and_each_passage_comes_once():
    assert round_robin([[A, B, C], [B, D]]) == [A, B, D, C]
    assert round_robin([[A], [], [B, C]]) == [A, B, C]
    assert round_robin([]) == []


def test_a_trail_remembers_what_was_asked_and_found():
    trail = Trail(Found(one=[A, B, C], two=[D, A]), 2)
    assert trail.search("one") == [A, B]
    assert trail.search("two", "why") == [D, A]
    assert trail.passages() == [A, D, B]
    assert [(hop.query, hop.passage_ids, hop.thought) for hop in trail.hops] == [
        ("one", (A.id, B.id), ""),
        ("two", (D.id, A.id), "why"),
    ]
    assert trail.asked("One?") and not trail.asked("three")
