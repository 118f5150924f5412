"""Scores as LMs write them, and the gate that fails closed."""

import dspy
import pytest

from cirag_dspy.modules.judge import Relevance, Reliability, parse_score
from cirag_dspy.modules.reason import Reasoning
from tests.fakes import fields_of, scripted_lm

REASONING = Reasoning("Ada Brook directed Harbor Song.", "Ada Brook")


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("0.8", 0.8),
        (".8", 0.8),
        ("0,8", 0.8),
        ("1", 1.0),
        ("1.", 1.0),
        ("0", 0.0),
        ("1.0", 1.0),
        ("8/10", 0.8),
        ("4 out of 5", 0.8),
        ("8 of 10", 0.8),
        ("0.8/1", 0.8),
        ("0.8 out of 1.0", 0.8),
        ("80%", 0.8),
        ("80 %", 0.8),
        ("80 percent", 0.8),
        ("**0.8**", 0.8),
        ("[0.8]", 0.8),
        ("~0.8", 0.8),
        ("Score: 0.8", 0.8),
        ("The score is 0.8.", 0.8),
        ("The reliability score is about 0.8", 0.8),
        ("I would rate this as 0.8, since a date is missing.", 0.8),
        ("Confidence - 0.8", 0.8),
        ("0.8 (a date is missing)", 0.8),
        ("0.8. The passages name 1 director.", 0.8),
        ("0.7-0.8", 0.7),
        ("1 (certain)", 1.0),
        ("1, every fact is stated", 1.0),
        ("1\nEvery fact is stated.", 1.0),
    ],
)
def test_scores_are_read(text, score):
    assert parse_score(text) == pytest.approx(score)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "high",
        "n/a",
        "8",
        "85",
        "1.5",
        "120%",
        "12/10",
        "5/0",
        "-0.5",
        "- 8",
        "1,000",
        "1988",
        "1e-3",
        "0.8.1",
        "1 step is a guess",
        "1. The director is named.",
        "1) The director is named.",
        "Step 1: the director is named, so 0.9",
        "Two of 3 facts are stated",
        "is:" * 5000,
    ],
)
def test_what_is_no_score(text):
    assert parse_score(text) is None


def judge(*replies, reasoning=REASONING):
    lm, engine = scripted_lm(list(replies))
    with dspy.context(lm=lm):
        return Reliability()(question="Who directed Harbor Song?", reasoning=reasoning), engine.prompts


def test_the_judge_sees_question_reasoning_and_answer():
    judged, prompts = judge("thought: the director is named\nscore: 0.9")
    assert (judged.score, judged.error) == (0.9, "")
    assert fields_of(prompts[0][-1]["content"]) == {
        "question": "Who directed Harbor Song?",
        "reasoning": "Ada Brook directed Harbor Song. The answer is: Ada Brook",
    }


def test_a_bare_number_is_a_score():
    judged, prompts = judge("0.9")
    assert (judged.score, len(prompts)) == (0.9, 1)


def test_a_score_that_cannot_be_read_is_asked_for_once_more():
    judged, prompts = judge("score: high", "score: 0.9")
    assert (judged.score, judged.error) == (0.9, "")
    assert fields_of(prompts[1][-1]["content"])["problem"] == "score is no number from 0 to 1"


@pytest.mark.parametrize("garbage", ["score: high", "There is 1 step that 100% of readers trust.", ""])
def test_an_unreadable_score_is_not_reliable(garbage):
    judged, prompts = judge(garbage, garbage)
    assert judged.score == 0 and judged.error
    assert len(prompts) == 2


@pytest.mark.parametrize("answer", ["", "unanswerable", "Not mentioned."])
def test_no_answer_is_not_judged(answer):
    judged, prompts = judge(reasoning=Reasoning("Nothing is said.", answer))
    assert (judged.score, judged.error, prompts) == (0, "", [])


def relevant(*replies):
    lm, engine = scripted_lm(list(replies))
    with dspy.context(lm=lm):
        checked = Relevance()(question="Where was the director born?", subquestion="Who directed?", finding=REASONING)
    return checked.relevant, engine.prompts


def test_relevance():
    said, prompts = relevant("relevant: yes")
    assert said is True
    assert fields_of(prompts[0][-1]["content"]) == {
        "question": "Where was the director born?",
        "subquestion": "Who directed?",
        "finding": "Ada Brook directed Harbor Song. The answer is: Ada Brook",
    }
    assert relevant("No, it does not help")[0] is False


def test_relevance_that_cannot_be_read_is_asked_for_once_more_and_then_none():
    assert relevant("relevant: perhaps", "relevant: yes")[0] is True
    said, prompts = relevant("relevant: perhaps", "relevant: perhaps")
    assert (said, len(prompts)) == (False, 2)
    assert fields_of(prompts[1][-1]["content"])["problem"] == "relevant is neither yes nor no"
