import math

import dspy
import pytest
from dspy.lm15 import ContextLengthError, Message, Response, TokenLogprob, Usage
from dspy.utils.exceptions import ContextWindowExceededError, LMError

from cirag_dspy.modules.ask import ask
from cirag_dspy.modules.extract import Extract
from cirag_dspy.schema import Passage
from cirag_dspy.signatures import AnswerIfSufficient
from tests.fakes import answering, fields_of, scored, scripted_lm

CALLED = {"name": "search", "arguments": '{"answer": "Rome"}'}
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


def test_tokens_come_with_their_log_probabilities_where_they_were_asked_for():
    text = "thought: t\nanswer: São Paulo"
    asked, _ = call([scored(text, unsure="Paulo")], config={"logprobs": True})
    assert b"".join(token for token, _ in asked.tokens).decode() == text
    assert [(token, round(math.exp(logprob), 3)) for token, logprob in asked.tokens[-2:]] == [
        (" São".encode(), 0.9),
        (b" Paulo", 0.1),
    ]
    assert call([scored(text)])[0].tokens == ()
    assert call(["answer: Paris"], config={"logprobs": True})[0].tokens == ()


def test_tokens_that_are_no_text_do_not_end_the_question():
    asked, _ = call([scored("thought: t\nanswer: \ud800x")], config={"logprobs": True})
    assert b"".join(token for token, _ in asked.tokens) == b"thought: t\nanswer: ?x"


def test_tokens_that_are_no_whole_characters_come_as_bytes():
    halves = [
        TokenLogprob("answer: S", -0.1),
        TokenLogprob("\\xc3", -0.1, (0xC3,)),
        TokenLogprob("\\xa3o", -0.1, (0xA3, 0x6F)),
    ]

    class Engine:
        def complete(self, request):
            message = Message.assistant("answer: São")
            usage = Usage(input_tokens=1, output_tokens=3)
            return Response(None, "m", message, "stop", usage, logprobs=tuple(halves))

    lm = dspy.LM("scripted/lm", engine=Engine(), cache=False, num_retries=0)
    with dspy.context(lm=lm):
        reply = ask(dspy.Predict(AnswerIfSufficient), dict(INPUTS), config={"logprobs": True})
    assert b"".join(token for token, _ in reply.tokens).decode() == "answer: São"


@pytest.mark.parametrize(
    ("message", "finish", "reason"),
    [
        ({"content": None, "refusal": "I cannot help."}, "stop", "the LM refused (I cannot help.)"),
        ({"content": [{"type": "refusal", "refusal": "No."}]}, "stop", "the LM refused (No.)"),
        ({"content": None}, "content_filter", "the provider withheld it (content_filter)"),
        ({"content": ""}, "stop", "it is empty"),
        ({"content": []}, "stop", "it is empty"),
        ({"content": " \n"}, "stop", "it is empty"),
        ({"content": None, "reasoning_content": "answer: Rome"}, "stop", "it is thinking alone"),
        (
            {"content": None, "tool_calls": [{"id": "1", "type": "function", "function": CALLED}]},
            "tool_calls",
            "it is a tool call",
        ),
    ],
)
def test_a_reply_without_text_says_why(message, finish, reason):
    with answering({"choices": [{"index": 0, "finish_reason": finish, "message": message}]}) as lm, dspy.context(lm=lm):
        reply = ask(dspy.Predict(AnswerIfSufficient), dict(INPUTS))
        extraction = Extract()(passage=Passage.create("T", "A fact.")).extraction
    assert (reply.problem, reply.fields, reply.raw) == (f"the reply has no text: {reason}", {}, "")
    assert (extraction.state, extraction.error) == ("failed", f"the reply has no text: {reason}")


def test_a_reply_in_parts_is_its_text():
    parts = [{"type": "text", "text": "thought: t"}, {"type": "text", "text": "\nanswer: Oslo"}]
    told = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": parts}}]}
    with answering(told) as lm, dspy.context(lm=lm):
        assert ask(dspy.Predict(AnswerIfSufficient), dict(INPUTS))["answer"] == "Oslo"


def test_a_field_that_another_adapter_gives_as_data_is_no_python_repr():
    signature = dspy.Signature("question -> found: dict[str, str]")
    lm, _ = scripted_lm(['{"found": {"name": "Oslo"}}'])
    with dspy.context(lm=lm, adapter=dspy.JSONAdapter()):
        assert ask(dspy.Predict(signature), {"question": "Q"})["found"] == '{"name": "Oslo"}'


def test_a_flat_error_body_is_tried_shorter():
    words = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."
    body = {"object": "error", "message": words, "type": "BadRequestError", "param": None, "code": 400}
    asked = []

    def halve(inputs):
        asked.append(inputs)
        return {**inputs, "evidence": "one"} if len(asked) < 2 else None

    with answering(body, status=400) as lm, dspy.context(lm=lm), pytest.raises(LMError):
        ask(dspy.Predict(AnswerIfSufficient), dict(INPUTS), shrink=halve)
    assert [inputs["evidence"] for inputs in asked] == ["one\ntwo\nthree\nfour", "one"]
