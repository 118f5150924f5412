"""A content filter refuses one passage: the answer comes from the others, and what every call would meet is raised."""

import dspy
import pytest
from dspy.lm15 import InvalidRequestError
from dspy.utils.exceptions import LMError

from cirag_dspy.modules.ask import ask
from cirag_dspy.modules.reader import Reader
from cirag_dspy.modules.refused import without_refused
from cirag_dspy.schema import Passage
from cirag_dspy.signatures import AnswerAnyway
from tests.fakes import fields_of, scripted_lm


def read(lines, refused):
    """Answer with the number of passages seen; prompts with one of the words ``refused`` are filtered."""

    def reply(messages):
        passages = fields_of(messages[-1]["content"])["passages"]
        if any(word in messages[-1]["content"] for word in refused):
            return InvalidRequestError("the prompt was blocked by our content filter")
        return f"answer: {len(passages.splitlines())} passages"

    lm, engine = scripted_lm(reply)
    with dspy.context(lm=lm):
        return ask(dspy.Predict(AnswerAnyway), {"question": "How many?", "passages": "\n".join(lines)}), engine


@pytest.mark.parametrize("at", [0, 4, 9])
def test_the_refused_line_is_left_out(at):
    lines = [f"passage {number}" for number in range(10)]
    lines[at] = "poison"
    reply, engine = read(lines, ["poison"])
    assert reply["answer"] == "9 passages" and len(engine.prompts) <= 11


def test_two_refused_lines_are_left_out():
    reply, _ = read(["one poison", "two", "three", "venom"], ["poison", "venom"])
    assert reply["answer"] == "2 passages"


@pytest.mark.parametrize("lines, refused", [(["one", "two"], ["How many?"]), (["one"], ["one"]), (["a", "a"], ["a"])])
def test_where_nothing_is_left_the_error_stays(lines, refused):
    with pytest.raises(LMError, match="content filter"):
        read(lines, refused)


def test_lines_that_are_refused_together_only_are_no_endless_search():
    inputs = {"passages": "one\ntwo"}
    assert without_refused(inputs, lambda fewer: "\n" not in fewer["passages"]) is None


def test_a_reader_answers_from_the_other_passages():
    def reply(messages):
        if "poison" in messages[-1]["content"]:
            return InvalidRequestError("content_filter: the response was filtered")
        return "answer: Velden"

    lm, _ = scripted_lm(reply)
    passages = [Passage.create("A", "The poison."), Passage.create("B", "Ada was born in Velden.")]
    with dspy.context(lm=lm):
        assert Reader()(question="Where was Ada born?", passages=passages).answer == "Velden"
