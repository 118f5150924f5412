from __future__ import annotations

import threading

import pytest
from dspy.lm15 import Config, Message, Request

from cirag_dspy.lms import load_lm
from tests.lms.test_load import run_offline

pytestmark = pytest.mark.slow

WORDS = [
    "river",
    "mountain",
    "city",
    "author",
    "novel",
    "film",
    "born",
    "died",
    "capital",
    "population",
    "century",
    "king",
    "battle",
    "university",
]


@pytest.fixture(scope="module")
def lm():
    pytest.importorskip("gguf")
    return load_lm("embedded", cache=False)


def test_offline_silent_and_right(lm, tmp_path):
    code = "print(load_lm('embedded', cache=False)('What is the capital of France?'))"
    assert "Paris" in run_offline(code, tmp_path)


def test_alone_together_and_staggered_give_the_same_bits(lm):
    engine = lm.engine
    requests = [
        Request(
            model="m",
            messages=(Message.user(f"Write about {' '.join(WORDS[i % 14] for i in range(n * 7, n * 7 + length))}."),),
            config=Config(max_tokens=20, logprobs=0),
        )
        for n, length in enumerate((3, 12, 40, 90, 150, 200, 260, 8))
    ]

    def bits(response):
        return [(item.token_id, item.logprob) for item in response.logprobs]

    alone = [bits(engine.complete(request)) for request in requests]
    for delay in (0.0, 0.15):
        found = [None] * len(requests)

        def ask(index, found=found):
            found[index] = bits(engine.complete(requests[index]))

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(requests))]
        for thread in threads:
            thread.start()
            thread.join(delay or 0.001)
        for thread in threads:
            thread.join(120)
        assert found == alone


def test_agrees_with_transformers(lm):
    import torch
    from transformers import AutoModelForCausalLM

    from cirag_dspy.lms import embedded_model

    engine = lm.engine
    ask = Request(model="m", messages=(Message.user("Name three rivers of Europe."),), config=Config(max_tokens=16))
    ids = engine._chat.encode(ask)
    model = AutoModelForCausalLM.from_pretrained(embedded_model(), dtype=engine.model.dtype)
    wanted = model.generate(torch.tensor([ids]), max_new_tokens=16, do_sample=False)[0, len(ids) :]
    assert engine.complete(ask).text == engine.tokenizer.decode(wanted, skip_special_tokens=True)
