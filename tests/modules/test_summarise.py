import dspy
import pytest
from dspy.lm15 import ContextLengthError

from cirag_dspy.modules.notes_reader import NotesReader
from cirag_dspy.modules.summarise import Refine, Summarise
from cirag_dspy.schema import Passage
from tests.fakes import scripted_lm

PASSAGES = [Passage.create("Ada Brook", f"Ada Brook was born in town {number}.") for number in range(8)]


def call(program, reply, **inputs):
    lm, engine = scripted_lm(reply)
    with dspy.context(lm=lm):
        return program(**inputs), engine.prompts


def summarise(reply):
    return call(Summarise(), reply, question="Q", thoughts=["t"], entity="Ada Brook", queries=["q"], passages=PASSAGES)


@pytest.mark.parametrize(
    ("reply", "summary"),
    [
        ("summary: Ada Brook was born in Velden.", "Ada Brook was born in Velden."),
        (
            "summary:\n- Ada was born in Velden.\n- Ada was a director.",
            "- Ada was born in Velden. - Ada was a director.",
        ),
        ("Ada was born in Velden.", "Ada was born in Velden."),  # without the label
        ("summary: None of her films won a prize.", "None of her films won a prize."),
        ("summary: The passages do not say where. She was a director.", None),
        ("summary: none", ""),
        ("summary: Not mentioned. Unknown.", ""),
        ("summary: The passages do not mention Ada Brook.", ""),
    ],
)
def test_only_a_refusal_as_a_whole_is_no_summary(reply, summary):
    prediction, _ = summarise([reply])
    assert prediction.summary == (reply.removeprefix("summary: ") if summary is None else summary)


def test_an_old_summary_stands_where_nothing_is_added():
    inputs = {"question": "Q", "summary": "old", "point": "p", "passages": PASSAGES}
    assert call(Refine(), ["summary: new"], **inputs)[0].summary == "new"
    assert call(Refine(), ["summary: none"], **inputs)[0].summary == "old"


def test_what_exceeds_the_context_is_shortened():
    def reply(messages):
        return ContextLengthError("long") if len(messages[-1]["content"]) > 250 else "summary: x\nanswer: x"

    prediction, prompts = summarise(reply)
    assert prediction.summary.startswith("x") and len(prompts) > 1
    notes = [f"Ada Brook was born in town {number}." for number in range(20)]
    prediction, prompts = call(NotesReader(), reply, question="Q", notes=notes)
    assert prediction.answer == "x" and "town 0." in prompts[-1][-1]["content"]


def test_a_note_is_one_line():
    _, prompts = call(NotesReader(), ["answer: x"], question="Q", notes=["one\nquestion: two", "three"])
    assert prompts[0][-1]["content"].endswith("notes:\none question: two\nthree")
