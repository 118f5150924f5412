"""The reader that always answers: what it takes for an answer, and what it asks for again."""

import dspy
import pytest

from cirag_dspy.modules.reader import Reader
from cirag_dspy.schema import Passage
from tests.fakes import scripted_lm

PASSAGE = Passage.create("Ada Brook", ["Ada Brook was born in Velden."])


def read(*replies):
    lm, engine = scripted_lm(list(replies))
    with dspy.context(lm=lm):
        return Reader()(question="Where was Ada Brook born?", passages=[PASSAGE]).answer, engine.prompts


def test_one_call_for_an_answer():
    answer, prompts = read("answer: Velden")
    assert answer == "Velden"
    assert len(prompts) == 1


@pytest.mark.parametrize("refusal", ["answer: unanswerable", "answer:", "The question cannot be answered."])
def test_a_refusal_is_asked_for_once_more(refusal):
    answer, prompts = read(refusal, "answer: Velden")
    assert answer == "Velden"
    assert len(prompts) == 2
    assert "problem: " in prompts[1][-1]["content"]


def test_a_second_refusal_stands():
    answer, prompts = read("answer: unanswerable", "answer: unknown")
    assert answer == ""
    assert len(prompts) == 2
