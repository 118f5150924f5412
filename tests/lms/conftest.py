from __future__ import annotations

import copy

import pytest

import cirag_dspy.lms  # noqa: F401 - before dspy: it keeps dspy from fetching a price list

import dspy  # isort: skip
from dspy.dsp.utils.settings import DEFAULT_CONFIG  # isort: skip

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(autouse=True)
def clean_dspy():
    """As dspy's own tests do: no settings left over, and no cache on disk."""
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    dspy.cache.reset_memory_cache()
    yield
    dspy.configure(**copy.deepcopy(DEFAULT_CONFIG), inherit_config=False)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """A randomly initialised two-layer Llama, whose tokenizer has one token per byte."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken(t, special=True) for t in ("<|im_start|>", "<|im_end|>", "<|tool|>")])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|im_end|>")
    tokenizer.chat_template = TEMPLATE

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        initializer_range=0.3,
    )
    folder = tmp_path_factory.mktemp("tiny")
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def make_engine(tiny_folder):
    """Engines of their own (not from the registry), closed after the test."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from cirag_dspy.lms.local import LocalEngine

    engines = []

    def make(**options):
        model = AutoModelForCausalLM.from_pretrained(tiny_folder)
        engine = LocalEngine(model, AutoTokenizer.from_pretrained(tiny_folder), **({"chunk": 16} | options))
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        engine.close()
