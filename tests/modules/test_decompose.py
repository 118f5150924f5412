"""Lists of questions as LMs write them; decomposing and rewriting."""

import dspy
import pytest

from cirag_dspy.modules.decompose import Decompose, Rewrite, parse_questions
from cirag_dspy.modules.reason import Reasoning
from tests.fakes import fields_of, scripted_lm

TWO = ["Who directed Harbor Song?", "When did Ada Brook die?"]
QUESTION = "When did the director of Harbor Song die?"
KNOWN = Reasoning("Harbor Song was directed by Ada Brook.", "unknown")


@pytest.mark.parametrize(
    "text",
    [
        "Who directed Harbor Song?\nWhen did Ada Brook die?",
        "1. Who directed Harbor Song?\n2. When did Ada Brook die?",
        "(1) Who directed Harbor Song?\n\n(2) When did Ada Brook die?",
        "- Who directed Harbor Song?\n* When did Ada Brook die?",
        "- 1. Who directed Harbor Song?\n- 2. When did Ada Brook die?",
        "**1.** Who directed Harbor Song?\n**2.** When did Ada Brook die?",
        "Q1: Who directed Harbor Song?\nQ2: When did Ada Brook die?",
        "Sub-question 1: Who directed Harbor Song?\nSubquestion 2: When did Ada Brook die?",
        "Step 1: Who directed Harbor Song?\nStep 2: When did Ada Brook die?",
        '["Who directed Harbor Song?", "When did Ada Brook die?"]',
        '[\n "Who directed Harbor Song?",\n "When did Ada Brook die?"\n]',
        '[\n "Who directed Harbor Song?",\n "When did Ada Brook die?",\n "Whe',
        '"Who directed Harbor Song?",\n"When did Ada Brook die?"',
        "Who directed Harbor Song? When did Ada Brook die?",
        "1. Who directed Harbor Song? 2. When did Ada Brook die?",
        "Who directed Harbor Song?; When did Ada Brook die?",
        "Here are the sub-questions:\n1. Who directed Harbor Song?\n2. When did Ada Brook die?\nThat is all.",
    ],
)
def test_shapes_of_a_list(text):
    assert parse_questions(text) == TWO


@pytest.mark.parametrize(
    ("text", "questions"),
    [
        ("1. Death date of Ada Brook", ["Death date of Ada Brook"]),  # in a list, so it is meant to be asked
        ("1. 1988 or 1990, which is later?", ["1988 or 1990, which is later?"]),
        ("1988 or 1990, which is later?", ["1988 or 1990, which is later?"]),
        ("3.5 million people live where?", ["3.5 million people live where?"]),
        ("谁导演了这部电影？", ["谁导演了这部电影？"]),
        ("I cannot help with that.", []),
        ("none", []),
        ("", []),
        ("[]", []),
        ("[1, 2]", []),
        ("?", []),
        ("[" * 5000, []),
    ],
)
def test_what_is_a_question(text, questions):
    assert parse_questions(text) == questions


def decompose(*replies):
    lm, engine = scripted_lm(list(replies))
    with dspy.context(lm=lm):
        return Decompose()(question=QUESTION).questions, engine.prompts


def test_decompose_sees_the_question_alone():
    questions, prompts = decompose("questions:\n1. Who directed Harbor Song?\n2. When did Ada Brook die?")
    assert questions == TWO
    assert fields_of(prompts[0][-1]["content"]) == {"question": QUESTION}


def test_none_is_an_answer():
    questions, prompts = decompose("questions: none")
    assert (questions, len(prompts)) == ([], 1)


def test_no_questions_are_asked_for_once_more():
    questions, prompts = decompose("questions: I would look it up.", "questions: Who directed Harbor Song?")
    assert questions == TWO[:1]
    assert fields_of(prompts[1][-1]["content"])["problem"] == "questions has no question; write one a line, or none"
    questions, prompts = decompose("sorry", "sorry")
    assert (questions, len(prompts)) == ([], 2)


def test_a_question_that_was_cut_off_is_left_out():
    assert decompose(("questions:\n1. Who directed Harbor Song?\n2. When did A", "length"))[0] == TWO[:1]


def rewrite(*replies):
    lm, engine = scripted_lm(list(replies))
    with dspy.context(lm=lm):
        asked = Rewrite()(question=QUESTION, reasoning=KNOWN, questions=["When did that person die?", "Which year?"])
    return asked.questions, engine.prompts


def test_rewrite_sees_what_is_known_and_what_is_open():
    questions, prompts = rewrite("questions: When did Ada Brook die?")
    assert questions == TWO[1:]  # the other one is answered already
    assert fields_of(prompts[0][-1]["content"]) == {
        "question": QUESTION,
        "reasoning": "Harbor Song was directed by Ada Brook. The answer is: unknown",
        "open_questions": "When did that person die?\nWhich year?",
    }


def test_rewriting_to_nothing_leaves_nothing_open():
    assert rewrite("questions: none")[0] == []


def test_an_unreadable_rewriting_leaves_the_questions_as_they_were():
    questions, prompts = rewrite("hmm", "hmm")
    assert (questions, len(prompts)) == (["When did that person die?", "Which year?"], 2)
