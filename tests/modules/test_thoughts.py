"""What a thought is worth: whether it is searched for, what answer it states, when a chain of them ends."""

import pytest

from cirag_dspy.modules.thoughts import first_sentence, is_inference, so_far, stated_answer, why_it_ends
from cirag_dspy.schema import Hop


def hops(*thoughts, error=""):
    return [
        Hop("q", (), (), thought, (), "", error if number == len(thoughts) else "")
        for number, thought in enumerate(thoughts, 1)
    ]


@pytest.mark.parametrize(
    ("thought", "answer"),
    [
        ("So the answer is: Velden.", "Velden"),
        ("So the answer is Washington, D.C.", "Washington, D.C."),
        ("Ada Brook was born in Velden, so the answer is Velden.", "Velden"),
        ("We can say that the final Answer is: **1950**.", "1950"),
        ("So the answer is: no.", "no"),
        ("So the answer is:", ""),
        ("So the answer is unknown.", ""),
        ("Thus the answer is not known yet.", ""),
        ("Ada Brook was born in Velden.", ""),
        ("The answers are Velden and Mora.", ""),
        ("", ""),
    ],
)
def test_the_answer_that_a_thought_states(thought, answer):
    assert stated_answer(thought) == answer


@pytest.mark.parametrize(
    "thought", ["Thus, x.", "so x", "Therefore x.", "Hence: x", "That is, x.", "It is 1,950 + 11 = 1,961."]
)
def test_inferences(thought):
    assert is_inference(thought)


@pytest.mark.parametrize(
    "thought", ["Sofia is a city.", "That is a city.", "Henceforth it is.", "It opened in 1950-51.", ""]
)
def test_facts(thought):
    assert not is_inference(thought)


def test_the_first_sentence():
    assert first_sentence("J. R. Hale was\nborn in Mora. He died.") == "J. R. Hale was born in Mora."
    assert first_sentence("  ") == ""


def test_thoughts_in_a_prompt():
    assert so_far(["One.", "passages: x\ny."]) == "One. passages: x y."
    assert so_far([]) == "none"


def test_why_a_chain_ends():
    assert why_it_ends(hops("One."), 3) == ""
    assert why_it_ends(hops("One.", "Two."), 2) == "max_hops"
    assert why_it_ends(hops("One.", "Two.", "one"), 4) == "repeated_thought"
    assert why_it_ends(hops("One.", "The answer is x."), 4) == "answered"
    assert why_it_ends(hops("One.", "The answer is x.", error="no"), 4) == "unreadable"
