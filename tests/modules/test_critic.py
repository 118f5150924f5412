import dspy
import pytest

from cirag_dspy.modules.critic import Recall, agreement
from tests.fakes import scripted_lm


@pytest.mark.parametrize(
    ("one", "other", "f1"),
    [
        ("Ada Brook", "ada brook.", 1.0),
        ("Ada Brook", "Brook", 2 / 3),
        ("the river Ree", "Ree", 2 / 3),
        ("yes", "no", 0.0),
        ("Velden", "Mora", 0.0),
        ("1950", "1950", 1.0),
        ("Velden Velden", "Velden", 2 / 3),
        ("unknown", "unknown", 0.0),
        ("", "", 0.0),
        ("the", "a", 0.0),
    ],
)
def test_agreement_is_the_f1_of_words(one, other, f1):
    assert agreement(one, other) == pytest.approx(f1)
    assert agreement(other, one) == pytest.approx(f1)


@pytest.mark.parametrize(
    ("answer", "known", "knows"),
    [("Velden", "yes", True), ("Velden", "no", False), ("Velden", "I know it", False), ("unanswerable", "yes", False)],
)
def test_only_an_answer_is_knowledge(answer, known, knows):
    lm, _ = scripted_lm([f"answer: {answer}\nknown: {known}"] * 2)
    with dspy.context(lm=lm):
        recalled = Recall()(question="Where was Ada Brook born?")
    assert (recalled.answer, recalled.known) == (answer, knows)
