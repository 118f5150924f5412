import pytest

from cirag_dspy.modules.grounding import connected, holds_answer
from cirag_dspy.schema import Triple

QUESTION = "Where was the director of the film Harbor Song born?"


def facts(*texts):
    return [Triple(*text.split(" | "), "p", 0) for text in texts]


@pytest.mark.parametrize(
    ("known", "offered", "kept"),
    [
        ((), ("Harbor Song | directed by | Ada Brook", "Tom Hale | born in | Mora"), [0]),
        # By way of one another, in the order in which they connect.
        ((), ("Ada Brook | born in | Velden", "Harbor Song | directed by | Ada Brook"), [1, 0]),
        (("Harbor Song | directed by | Ada Brook",), ("Ada M. Brook | born in | Velden", "Ada Lee | is | x"), [0, 1]),
        ((), ("Ada Brook | directed | Harbor Song (1950 film)",), [0]),  # the tail names it, half of its words do
        ((), ("The Who | are | a band", "Brook | born in | 1950"), []),
        ((), (), []),
    ],
)
def test_facts_connect_with_the_question_or_with_one_another(known, offered, kept):
    triples = facts(*offered)
    assert connected(QUESTION, facts(*known), triples) == [triples[number] for number in kept]


@pytest.mark.parametrize(
    ("answer", "held"),
    [
        ("Velden", True),
        ("the Velden", True),
        ("VELDEN.", True),
        ("born 3 May 1901", False),  # the words of two lines
        ("May 1901", True),
        ("Mora", False),
        ("Vel", False),
        ("yes", True),
        ("No", True),
        ("Harbor Song", True),  # the question names it
        ("It", False),
    ],
)
def test_an_answer_stands_in_one_line_of_its_evidence(answer, held):
    lines = ["Ada Brook | born in | Velden", "Ada Brook | date of birth | 3 May 1901"]
    assert holds_answer(lines, answer, QUESTION) is held


def test_grounding_where_there_are_no_blanks():
    question = "谁导演了《港口之歌》？"
    song = Triple("港口之歌", "导演", "王安", "p", 0)
    other = Triple("上海", "位于", "华东", "p", 1)
    assert connected(question, [], [other, song]) == [song]
    assert holds_answer(["港口之歌由王安导演。"], "王安", question)
    assert not holds_answer(["港口之歌由王安导演。"], "安王", question)
    assert not holds_answer(["安先生见了王先生。"], "王安", question)
