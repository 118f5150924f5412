"""Instructions reach every model: as a system message, or in the first user turn where a template takes none."""

from __future__ import annotations

import pytest

from cirag_dspy.distill.encode import encode_rows
from cirag_dspy.lms.chat import ChatFormat
from tests.tiny import CHATML, DROPS, DROPS_LATER, GEMMA, LLAMA2, LLAMA3, PLAIN, QWEN, QWEN_THINKING, tiny_tokenizer

WITHOUT = {"gemma": GEMMA, "llama 2": LLAMA2, "drops": DROPS, "drops later": DROPS_LATER}
WITH = {"chatml": CHATML, "qwen": QWEN, "qwen thinking": QWEN_THINKING, "llama 3": LLAMA3, "plain": PLAIN}
SYSTEM = {"role": "system", "content": "Be short."}
TALK = [
    {"role": "user", "content": "Who?"},
    {"role": "assistant", "content": "She."},
    {"role": "user", "content": "When?"},
]


def shown(template, messages, whole=False):
    tokenizer = tiny_tokenizer(template)
    chat = ChatFormat(tokenizer)
    ids = chat.conversation(messages) if whole else chat.prompt(messages)
    return tokenizer.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("name", WITH)
def test_templates_with_a_system_role_are_as_they_were(name):
    tokenizer = tiny_tokenizer(WITH[name])
    chat = ChatFormat(tokenizer)
    assert chat.takes_system
    for messages in ([SYSTEM, TALK[0]], [SYSTEM, *TALK], TALK):
        own = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert chat.prompt(messages) == list(own)


def test_chatml_by_hand():
    assert shown(CHATML, [SYSTEM, TALK[0]]) == (
        "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_gemma_by_hand():
    assert shown(GEMMA, [SYSTEM, TALK[0]]) == (
        "<start_of_turn>user\nBe short.\n\nWho?<end_of_turn>\n<start_of_turn>model\n"
    )
    assert shown(GEMMA, [SYSTEM, *TALK]) == (
        "<start_of_turn>user\nBe short.\n\nWho?<end_of_turn>\n<start_of_turn>model\nShe.<end_of_turn>\n"
        "<start_of_turn>user\nWhen?<end_of_turn>\n<start_of_turn>model\n"
    )


@pytest.mark.parametrize("name", WITHOUT)
def test_instructions_are_in_the_first_user_turn(name):
    for messages in ([SYSTEM, TALK[0]], [SYSTEM, *TALK], [SYSTEM, *TALK[:2]]):
        text = shown(WITHOUT[name], messages, whole=messages[-1]["role"] == "assistant")
        assert text.count("Be short.\n\nWho?") == 1 and text.count("Be short.") == 1
    assert "Be short." not in shown(WITHOUT[name], TALK)


def test_two_system_messages_and_one_alone():
    other = {"role": "system", "content": "In English."}
    assert "Be short.\n\nIn English.\n\nWho?" in shown(GEMMA, [SYSTEM, other, TALK[0]])
    assert "user\nBe short.<end_of_turn>" in shown(GEMMA, [SYSTEM])


def test_what_a_template_refuses_for_another_reason_is_said():
    from dspy.lm15 import InvalidRequestError

    with pytest.raises(InvalidRequestError, match="must alternate"):
        ChatFormat(tiny_tokenizer(GEMMA)).prompt([TALK[0], TALK[0]])


@pytest.mark.parametrize("name", [*WITHOUT, *WITH])
def test_trained_and_used_prompts_are_one(name):
    template = (WITHOUT | WITH)[name]
    tokenizer = tiny_tokenizer(template)
    messages = [SYSTEM, TALK[0], TALK[1]]
    (row,), _ = encode_rows([{"messages": messages}], tokenizer, {tokenizer.eos_token_id}, max_length=512)
    prompt = ChatFormat(tokenizer).prompt(messages[:-1])
    assert row.ids[: len(prompt)] == prompt
    assert not any(row.learnt[: len(prompt)])
    learnt = [id for id, told in zip(row.ids, row.learnt, strict=True) if told]
    assert "She." in tokenizer.decode(learnt)
