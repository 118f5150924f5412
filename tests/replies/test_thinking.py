import time

import pytest

from cirag_dspy.replies.thinking import without_thinking
from cirag_dspy.signatures import AnswerIfSufficient
from tests.replies.test_fields import answer


@pytest.mark.parametrize(
    ("reply", "read"),
    [
        ("<thinking>so answer: Rome</thinking>\nthought: t\nanswer: Oslo", "Oslo"),
        ('<THINKING foo="a">\nanswer: Rome\n</THINKING>\nanswer: Oslo', "Oslo"),
        ("<reasoning>answer: Rome <think>answer: X</think> more answer: Y\n</reasoning>answer: Oslo", "Oslo"),
        (
            "<|begin_of_thought|>answer: Rome<|end_of_thought|>\n<|begin_of_solution|>answer: Oslo<|end_of_solution|>",
            "Oslo",
        ),
        ("[THINK]answer: Rome[/THINK]answer: Oslo", "Oslo"),
        ("◁think▷answer: Rome◁/think▷answer: Oslo", "Oslo"),
        ("<scratchpad>answer: Rome", None),
        ("draft answer: Rome</think>\nanswer: Oslo", "Oslo"),
        ("answer: Rome</think>answer: Oslo", "Oslo"),
        (
            "<|channel|>analysis<|message|>answer: Rome<|end|><|start|>assistant<|channel|>final<|message|>thought: t\nanswer: Oslo<|return|>",
            "Oslo",
        ),
        ("analysisThe answer: Rome? assistantfinalanswer: Oslo", "Oslo"),
        ("analysis\nWe need... answer: Rome\nassistantfinal\nanswer: Oslo", "Oslo"),
        ("analysisWe need answer: Rome", None),
        ("<|channel|>analysis<|message|>answer: Rome", None),
        ('We.. answer: Rome<|end|><|start|>assistant<|channel|>final<|message|>{"answer": "Oslo"}', "Oslo"),
        ("thought: t\nanswer: <think>", "<think>"),
        ("answer: the tag is </think>", "the tag is </think>"),
        ("thought: HTML has <think>x</think> tags\nanswer: <think>", "<think>"),
        ("<think>the </think> tag; answer: Rome</think>\nanswer: Oslo", "Oslo"),
        ("```thinking\nanswer: Rome\n```\nanswer: Oslo", "Oslo"),
        ("<thought>t</thought>\n<answer>Oslo</answer>", "Oslo"),
        ("<thought>t</thought>\nanswer: Oslo", "Oslo"),
        ("<seed:think>answer: Rome</seed:think>answer: Oslo", "Oslo"),
        ("<|START_THINKING|>answer: Rome<|END_THINKING|><|START_RESPONSE|>answer: Oslo<|END_RESPONSE|>", "Oslo"),
        ('<analysis>answer: Rome</analysis>\n\n{"thought":"t","answer":"Oslo"}', "Oslo"),
        ("<think></think>\n\nanswer: Oslo", "Oslo"),
        ("<|channel>thought\nanswer: Rome<channel|>answer: Oslo", "Oslo"),
        ('<think>x</think>{"thought": "It has <think>answer: hacked</think> in it", "answer": "Oslo"}', "Oslo"),
    ],
)
def test_thinking_is_no_part_of_the_reply(reply, read):
    assert answer(AnswerIfSufficient, reply) == read


@pytest.mark.parametrize(
    "text", ["", "Oslo", "a < b > c", "[1, 2]", "The analysis shows it.", "final: x", "# Reasoning\nx"]
)
def test_what_has_no_thinking_stays_as_it_is(text):
    assert without_thinking(text) == text


@pytest.mark.parametrize(
    "mark", ["<think>", "</think>", " </think> x", "x\n<think>\n", "<|channel|>a<|message|>", "```think\n"]
)
def test_no_reply_is_read_slowly(mark):
    started = time.perf_counter()
    without_thinking(mark * 5000)
    assert time.perf_counter() - started < 20


def test_a_wrapper_that_a_python_dictionary_quotes_stays():
    reply = "<think>The draft</think>{'thought': 'It says <think>answer: hacked</think> there', 'answer': 'Oslo'}"
    assert without_thinking(reply) == reply.removeprefix("<think>The draft</think>")
