from __future__ import annotations

import pytest
from dspy.lm15 import Message, Request

from cirag_dspy.distill.encode import encode_rows
from cirag_dspy.errors import DataError, ModelError, RunError
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
        "shortened": 0,
        "lost": 0,
        "dropped": 0,
        "rows": 1,
        "tokens": len(encoded.ids),
        "learnt": len(reply.encode()) + 1,
        "max_length": 10_000,
        "by_predictor": {},
        "examples": [],
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


def test_a_long_row_of_which_nothing_may_go_is_dropped_and_counted():
    """Rows of other tools do not say what is question and what is evidence, so nothing of them is cut."""
    tokenizer, [encoded], report = encode([row("q" * 100, "Paris", id="7"), row("q", "Oslo")], max_length=60)
    assert learnt(tokenizer, encoded) == "Oslo<|im_end|>"
    assert (report.kept, report.shortened, report.dropped, report.rows) == (1, 0, 1, 1)
    # <> user \n q*100 <> \n <> assistant \n Paris <>
    assert report.examples == ["row 1 (id 7): 125 tokens, dropped: no more of its evidence may go"]
    with pytest.raises(
        RunError, match=r"^1 dropped to fit in 60 tokens .*--strict takes none; the first: row 1 \(id 7\)"
    ):
        report.require_whole()


def test_a_long_conversation_is_one_row_per_reply_each_with_its_own_context():
    given = row("q1", "first", "q2" * 30, "second", "q3", "third")
    tokenizer, encoded, report = encode([given], max_length=140)
    assert [learnt(tokenizer, e) for e in encoded] == ["first<|im_end|>", "second<|im_end|>"]
    assert [prompt_of(e) for e in encoded] == [at_inference(tokenizer, given["messages"][:n]) for n in (1, 3)]
    assert (report.kept, report.split, report.dropped, report.rows) == (0, 1, 1, 2)


def test_of_our_conversations_the_oldest_turns_go():
    given = row("q1", "first", "q2" * 30, "second", "q3", "third", evidence={})
    tokenizer, encoded, report = encode([given], max_length=140)
    assert [learnt(tokenizer, e) for e in encoded] == ["first<|im_end|>", "second<|im_end|>", "third<|im_end|>"]
    assert prompt_of(encoded[2]) == at_inference(tokenizer, given["messages"][2:5])
    assert (report.split, report.shortened, report.dropped) == (1, 1, 0)
    # What went: <> user \n q1 <> \n <> assistant \n first <> \n
    assert report.lost == 1 + 5 + 2 + 2 + 1 + 10 + 5 + 2
    assert report.by_predictor == {"": {"shortened": 1, "lost": report.lost, "dropped": 0}}


def test_a_reply_longer_than_a_row_is_dropped_and_counted():
    _, encoded, report = encode([row("q", "x" * 70), row("q", "Oslo")], max_length=60)
    assert (len(encoded), report.dropped, report.shortened, report.rows) == (1, 1, 0, 1)
    with pytest.raises(DataError, match="nothing to train on: none of 1 replies fits in max_length=20 tokens with"):
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


def test_a_template_without_a_system_role_is_trained_with_the_prompt_of_inference():
    given = {"messages": [{"role": "system", "content": "Be brief."}, *row("Where?", "Paris")["messages"]]}
    tokenizer, [encoded], _ = encode([given], LLAMA2)
    assert prompt_of(encoded) == at_inference(tokenizer, given["messages"][:2])
    assert "Be brief." in tokenizer.decode(prompt_of(encoded))


def test_a_conversation_that_the_template_refuses_is_named():
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('no such thing') }}"
    with pytest.raises(DataError, match="row 1: the chat template refuses this conversation: no such thing"):
        encode([row("q", "a")], tokenizer=tokenizer)


def test_a_tokenizer_without_what_it_takes_is_refused():
    tokenizer = tiny_tokenizer()
    with pytest.raises(ModelError, match="no token that ends a turn"):
        encode_rows([row("q", "a")], tokenizer, [], max_length=99)
    tokenizer.chat_template = None
    with pytest.raises(ModelError, match="no chat template"):
        encode([row("q", "a")], tokenizer=tokenizer)
    with pytest.raises(DataError, match="no rows"):
        encode([])
