from __future__ import annotations

import pytest
from dspy.lm15 import Message, Request

from cirag_dspy.distill.encode import encode_rows
from cirag_dspy.errors import DataError, ModelError
from cirag_dspy.lms.chat import ChatFormat
from tests.tiny import CHATML, LLAMA2, LLAMA3, PLAIN, QWEN, QWEN_THINKING, SPECIAL, tiny_tokenizer


def row(*turns, **names):
    """Turns from the user and the assistant in turn."""
    roles = ("user", "assistant") * len(turns)
    return {"messages": [{"role": r, "content": t} for r, t in zip(roles, turns, strict=False)]} | names


def encode(rows, template=CHATML, max_length=10_000, tokenizer=None):
    tokenizer = tokenizer or tiny_tokenizer(template)
    encoded, report = encode_rows(rows, tokenizer, [tokenizer.eos_token_id], max_length=max_length)
    return tokenizer, encoded, report


def learnt(tokenizer, encoded):
    return tokenizer.decode([i for i, is_learnt in zip(encoded.ids, encoded.learnt, strict=True) if is_learnt])


def prompt_of(encoded):
    return encoded.ids[: encoded.learnt.index(True)]


def at_inference(tokenizer, messages):
    """What the engine makes of a request with these messages."""
    system = next((m["content"] for m in messages if m["role"] == "system"), None)
    make = {"user": Message.user, "assistant": Message.assistant}
    turns = tuple(make[m["role"]](m["content"]) for m in messages if m["role"] != "system")
    return ChatFormat(tokenizer).encode(Request(model="m", system=system, messages=turns))


@pytest.mark.parametrize("template", list(SPECIAL))
@pytest.mark.parametrize("reply", ["Paris", " né à Łódź, 北京\n", "thought: x\nanswer: [[ ## y ## ]]"])
def test_the_reply_and_its_end_are_learnt_after_the_very_prompt_of_inference(template, reply):
    given = row("Where?", reply)
    tokenizer, [encoded], report = encode([given], template)
    assert learnt(tokenizer, encoded) == reply + SPECIAL[template][0]
    assert prompt_of(encoded) == at_inference(tokenizer, given["messages"][:1])
    assert encoded.learnt == sorted(encoded.learnt)  # nothing after the end of the turn
    assert report.as_dict() == {
        "kept": 1,
        "split": 0,
        "cut": 0,
        "dropped": 0,
        "rows": 1,
        "tokens": len(encoded.ids),
        "learnt": len(reply.encode()) + 1,
    }


def test_chatml_by_hand():
    tokenizer, [encoded], _ = encode([row("Hi", "Yo", "And", "No")])
    text = tokenizer.decode(encoded.ids)
    assert text == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo<|im_end|>\n"
        "<|im_start|>user\nAnd<|im_end|>\n<|im_start|>assistant\nNo<|im_end|>"
    )
    marks = "".join("x" if is_learnt else "." for is_learnt in encoded.learnt)
    # <> user \n Hi <> \n <> assistant \n; Yo <>; \n <> user \n And <> \n <> assistant \n; No <>
    assert marks == "." * (6 + 2 + 2 + 11) + "xxx" + "." * (1 + 6 + 3 + 2 + 11) + "xxx"


def test_a_conversation_is_one_row_where_the_template_allows_it_and_one_per_reply_elsewhere():
    given = row("q1", "first", "q2", "second", "q3", "third")
    for template in (CHATML, QWEN, LLAMA3):
        tokenizer, [encoded], report = encode([given], template)
        assert learnt(tokenizer, encoded) == "".join(f"{r}{SPECIAL[template][0]}" for r in ("first", "second", "third"))
        assert (report.kept, report.split) == (1, 0)
    for template in (QWEN_THINKING, LLAMA2, PLAIN):
        tokenizer, encoded, report = encode([given], template)
        assert [learnt(tokenizer, e) for e in encoded] == [
            f"{r}{SPECIAL[template][0]}" for r in ("first", "second", "third")
        ]
        assert [prompt_of(e) for e in encoded] == [at_inference(tokenizer, given["messages"][:n]) for n in (1, 3, 5)]
        assert (report.kept, report.split, report.rows) == (0, 1, 3)


def test_a_reply_is_learnt_whole_though_the_template_strips_or_adds_to_it():
    thinking = "<think>\nhm\n</think>\n\nParis"
    for template, reply in ((QWEN_THINKING, thinking), (LLAMA3, "Paris\n\n"), (LLAMA2, "Paris")):
        tokenizer, [encoded], _ = encode([row("Where?", reply)], template)
        assert learnt(tokenizer, encoded) == reply + SPECIAL[template][0]


def test_a_prompt_that_ends_within_a_token_of_the_conversation():
    tokenizer = tiny_tokenizer(PLAIN, merges=(("Ġ", "P"),))
    _, [encoded], _ = encode([row("Where?", "Paris")], tokenizer=tokenizer)
    assert prompt_of(encoded) == at_inference(tokenizer, [{"role": "user", "content": "Where?"}])
    assert learnt(tokenizer, encoded) == "Paris<eos>"


def test_text_can_neither_open_nor_close_a_turn():
    tokenizer, [encoded], _ = encode([row("x<|im_end|>", "y<|im_end|><|im_start|>z")])
    assert learnt(tokenizer, encoded) == "y< |im_end|>< |im_start|>z<|im_end|>"
    assert prompt_of(encoded) == at_inference(tokenizer, [{"role": "user", "content": "x<|im_end|>"}])


def test_a_system_message_and_the_turns_after_the_last_reply():
    given = {"messages": [{"role": "system", "content": "Be brief."}, *row("Hi", "Yo", "Bye")["messages"]]}
    tokenizer, [encoded], _ = encode([given], QWEN)
    assert prompt_of(encoded) == at_inference(tokenizer, given["messages"][:2])
    assert tokenizer.decode(encoded.ids).endswith("\nYo<|im_end|>") and "helpful" not in tokenizer.decode(encoded.ids)


def test_a_long_prompt_is_cut_from_the_left_and_the_reply_never():
    tokenizer, [encoded], report = encode([row("q" * 100, "Paris")], max_length=20)
    assert len(encoded.ids) == 20 and learnt(tokenizer, encoded) == "Paris<|im_end|>"
    assert tokenizer.decode(encoded.ids) == "q<|im_end|>\n<|im_start|>assistant\nParis<|im_end|>"
    assert (report.kept, report.cut, report.dropped) == (0, 1, 0)


def test_a_long_conversation_is_one_row_per_reply_each_with_its_own_context():
    given = row("q1", "first", "q2" * 30, "second", "q3", "third")
    tokenizer, encoded, report = encode([given], max_length=90)
    assert [learnt(tokenizer, e) for e in encoded] == ["first<|im_end|>", "second<|im_end|>", "third<|im_end|>"]
    whole = [at_inference(tokenizer, given["messages"][:n]) for n in (1, 3, 5)]
    assert prompt_of(encoded[0]) == whole[0]
    assert [prompt_of(e) for e in encoded[1:]] == [whole[1][-(90 - 7) :], whole[2][-(90 - 6) :]]
    assert (report.kept, report.split, report.cut, report.dropped, report.rows) == (0, 1, 2, 0, 3)
    assert report.learnt == 6 + 7 + 6 and report.tokens == len(whole[0]) + 6 + 90 + 90


def test_a_reply_longer_than_a_row_is_dropped_and_counted():
    tokenizer, encoded, report = encode([row("q", "x" * 30), row("q", "Oslo"), row("q", "y" * 18)], max_length=20)
    assert [learnt(tokenizer, e) for e in encoded] == ["Oslo<|im_end|>", "y" * 18 + "<|im_end|>"]
    assert (report.dropped, report.cut, report.rows) == (1, 2, 2)  # of the last, one token of the prompt is left
    assert encoded[1].learnt == [False] + [True] * 19
    with pytest.raises(DataError, match="nothing to train on: all 1 replies have max_length=20 tokens or more"):
        encode([row("q", "x" * 19)], max_length=20)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row("q", id="7", predictor="answer"), r"row 2 \(id 7, predictor answer\): no assistant turn"),
        (row("q", "", id="7"), r"row 2 \(id 7\): messages\[1\] is an empty assistant turn"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, r"row 2: messages\[0\] .* answers nothing"),
        (
            {"messages": [*row("q", "a")["messages"], *row("q", "b")["messages"][1:]]},
            r"messages\[2\] .* answers nothing",
        ),
        ({"messages": []}, "row 2: no assistant turn"),
        ({"messages": [{"role": "tool", "content": "q"}]}, r"messages\[0\] must have"),
        ({"messages": [{"role": "user", "content": None}]}, r"messages\[0\] must have"),
        ({"messages": ["q"]}, r"messages\[0\] must have"),
        ({"prompt": "q", "completion": "a"}, "row 2: no assistant turn"),
    ],
)
def test_a_row_that_would_teach_nothing_is_named(bad, message):
    with pytest.raises(DataError, match=message):
        encode([row("q", "a"), bad])


def test_a_conversation_that_the_template_refuses_is_named():
    given = {"messages": [{"role": "system", "content": "s"}, *row("q", "a")["messages"]]}
    with pytest.raises(DataError, match="row 1: the chat template refuses this conversation: no system messages"):
        encode([given], LLAMA2)


def test_a_tokenizer_without_what_it_takes_is_refused():
    tokenizer = tiny_tokenizer()
    with pytest.raises(ModelError, match="no token that ends a turn"):
        encode_rows([row("q", "a")], tokenizer, [], max_length=99)
    tokenizer.chat_template = None
    with pytest.raises(ModelError, match="no chat template"):
        encode([row("q", "a")], tokenizer=tokenizer)
    with pytest.raises(DataError, match="no rows"):
        encode([])
