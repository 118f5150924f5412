import dspy
import pytest

from cirag_dspy.modules.knowledge import Knowledge
from cirag_dspy.modules.think import Think
from tests.fakes import fields_of, scripted_lm


def think(*replies):
    lm, engine = scripted_lm(list(replies))
    with dspy.context(lm=lm):
        return Think()(question="Where was Ada Brook born?", knowledge=Knowledge(), thoughts=[]), engine.prompts


@pytest.mark.parametrize(
    ("text", "retrieve"),
    [
        ("yes", True),
        ("**Yes**, her birthplace", True),
        ("true", True),
        ("no", False),
        ("The answer is no.", False),
        ("No, the knowledge is enough", False),
        ("\n\nno\nyes", False),
        ("**no** - enough is known", False),
        ("No birthplace is known yet, so yes", True),
    ],
)
def test_whether_knowledge_is_missing(text, retrieve):
    step, prompts = think(f"thought: t\nretrieve: {text}")
    assert (step.thought, step.retrieve, len(prompts)) == ("t", retrieve, 1)


@pytest.mark.parametrize(
    "text",
    [
        "Not enough is known yet",
        "It cannot be answered yet",
        "None of it is known",
        "I know",
        "There is no information about the birthplace.",
        "The birthplace is missing; no passage states it.",
        "No information on it",
    ],
)
def test_what_says_neither_is_asked_once_more_and_then_means_that_it_is_missing(text):
    assert think(f"thought: t\nretrieve: {text}", "thought: t\nretrieve: no")[0].retrieve is False
    step, prompts = think(*[f"thought: t\nretrieve: {text}"] * 2)
    assert step.retrieve is True
    assert fields_of(prompts[1][-1]["content"])["problem"] == "retrieve is neither yes nor no"
