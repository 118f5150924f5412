import dspy
import pytest
from dspy.lm15 import ContextLengthError
from dspy.utils.exceptions import ContextWindowExceededError, LMError

from cirag_dspy.modules.ask import ask
from cirag_dspy.signatures import AnswerIfSufficient
from tests.fakes import fields_of, scripted_lm

INPUTS = {"question": "Q", "evidence": "one\ntwo\nthree\nfour"}


def call(replies, **options):
    lm, engine = scripted_lm(replies)
    with dspy.context(lm=lm):
        return ask(dspy.Predict(AnswerIfSufficient), dict(INPUTS), **options), engine


def test_a_good_reply_is_one_call():
    reply, engine = call(["thought: t\nanswer: Paris"])
    assert (reply["answer"], reply["thought"], reply.problem, reply.truncated) == ("Paris", "t", "", False)
    assert len(engine.prompts) == 1


def test_garbage_is_asked_for_once_more_with_what_was_wrong():
    reply, engine = call(["no idea", "answer: Paris"])
    assert reply["answer"] == "Paris"
    assert len(engine.prompts) == 2
    assert fields_of(engine.prompts[1][-1]["content"])["problem"] == "the reply has no answer:"


@pytest.mark.parametrize("garbage", ["", "chat chat", "thought: half", '{"thought": "x"'])
def test_garbage_twice_is_two_calls_and_no_exception(garbage):
    reply, engine = call([garbage, garbage, "answer: never asked"])
    assert reply.problem and reply["answer"] == ""
    assert len(engine.prompts) == 2


def test_a_check_counts_as_garbage():
    reply, engine = call(["answer: x", "answer: y"], check=lambda reply: "wrong" if reply["answer"] == "x" else "")
    assert reply["answer"] == "y"
    assert fields_of(engine.prompts[1][-1]["content"])["problem"] == "wrong"


def test_a_reply_cut_off_is_known_to_be():
    reply, _ = call([("answer: Par", "length")])
    assert reply.truncated and reply["answer"] == "Par"


def test_too_long_a_prompt_is_shortened_and_not_counted_as_a_try():
    def reply(messages):
        long = "four" in messages[-1]["content"]
        return ContextLengthError("too long") if long else "answer: ok"

    def halve(inputs):
        lines = inputs["evidence"].splitlines()
        return {**inputs, "evidence": "\n".join(lines[: len(lines) // 2])}

    answered, engine = call(reply, shrink=halve, tries=1)
    assert answered["answer"] == "ok"
    assert fields_of(engine.prompts[-1][-1]["content"])["evidence"] == "one\ntwo"
    with pytest.raises(ContextWindowExceededError):
        call(lambda messages: ContextLengthError("too long"))


def test_lm_errors_are_not_swallowed():
    with pytest.raises(LMError):
        call(lambda messages: RuntimeError("boom"))


def test_the_callers_adapter_is_respected():
    lm, engine = scripted_lm(["[[ ## answer ## ]]\nParis\n\n[[ ## completed ## ]]"])
    with dspy.context(lm=lm, adapter=dspy.ChatAdapter()):
        assert ask(dspy.Predict(AnswerIfSufficient), dict(INPUTS))["answer"] == "Paris"
    assert "[[ ## evidence ## ]]" in engine.prompts[0][-1]["content"]
