"""A tiny random Llama with one token per byte, chat templates in the styles of well-known models, a tiny encoder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QWEN = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are helpful.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Shows no thinking of earlier turns, and an empty one in the last.
QWEN_THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
    "{% if loop.last %}<think>\n\n</think>\n\n{% endif %}{{ m.content.split('</think>')[-1] }}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "<|begin_of_text|>{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
LLAMA2 = (
    "{% for m in messages %}{% if m.role == 'user' %}<s>[INST] {{ m.content }} [/INST]"
    "{% elif m.role == 'assistant' %} {{ m.content }} </s>"
    "{% else %}{{ raise_exception('no system messages') }}{% endif %}{% endfor %}"
)
# Gemma's: refuses a system message, and calls the assistant "model".
GEMMA = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n{{ m['content'] | trim }}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
# Passes over every system message without a word.
DROPS = (
    "{% for m in messages %}{% if m.role != 'system' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Shows the system message of a single question only.
DROPS_LATER = (
    "{% for m in messages %}{% if m.role != 'system' or messages | length == 2 %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
SPECIAL = {
    CHATML: ("<|im_end|>", "<|im_start|>", "<|tool|>"),
    QWEN: ("<|im_end|>", "<|im_start|>"),
    QWEN_THINKING: ("<|im_end|>", "<|im_start|>"),
    LLAMA3: ("<|eot_id|>", "<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
    LLAMA2: ("</s>", "<s>"),
    GEMMA: ("<end_of_turn>", "<start_of_turn>"),
    DROPS: ("<|im_end|>", "<|im_start|>"),
    DROPS_LATER: ("<|im_end|>", "<|im_start|>"),
    PLAIN: ("<eos>",),
}


def tiny_tokenizer(template: str = CHATML, merges: tuple[tuple[str, str], ...] = ()) -> Any:
    """One token per byte, the merges, and the template's special tokens, of which the first ends a turn."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = sorted(pre_tokenizers.ByteLevel.alphabet()) + ["".join(pair) for pair in merges]
    raw = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=list(merges)))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    special = SPECIAL[template]
    raw.add_special_tokens([AddedToken(token, special=True) for token in special])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=special[0], pad_token=special[0])
    tokenizer.chat_template = template
    return tokenizer


def save_tiny_llama(folder: Path, template: str = CHATML, **config: Any) -> Path:
    """Write a two-layer model and its tokenizer into the folder; the weights are the same every time."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = tiny_tokenizer(template)
    torch.manual_seed(0)
    shape = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
        "initializer_range": 0.3,
    }
    LlamaForCausalLM(LlamaConfig(**shape | config)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_tiny_encoder(folder: Path, texts: list[str]) -> Path:
    """Write a one-layer sentence-transformers model that knows the words of ``texts``; the same weights every time."""
    import torch
    from sentence_transformers import SentenceTransformer, models
    from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
    from tokenizers import models as tokenizer_models
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    found = {word for text in texts for word in re.findall(r"\w+|[^\w\s]", text.lower())}
    vocabulary = {word: number for number, word in enumerate([*special, *sorted(found)])}
    raw = Tokenizer(tokenizer_models.WordLevel(vocabulary, unk_token="[UNK]"))
    raw.normalizer = normalizers.Lowercase()
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, mask_token="[MASK]", **names)
    torch.manual_seed(0)
    shape = {
        "vocab_size": len(vocabulary),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    inner = folder / "bert"
    BertModel(BertConfig(**shape)).save_pretrained(inner)
    tokenizer.save_pretrained(inner)
    bert = models.Transformer(str(inner), max_seq_length=128)
    pooling = models.Pooling(shape["hidden_size"])
    SentenceTransformer(modules=[bert, pooling], device="cpu").save_pretrained(str(folder / "model"))
    return folder / "model"
