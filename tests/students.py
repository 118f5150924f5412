"""A tiny random student for tests of saved programs: a base with room for whole prompts, and adapters to it."""

from __future__ import annotations

from pathlib import Path

from tests.tiny import save_tiny_llama


def tiny_base(folder: Path) -> Path:
    """A random model whose context holds the prompts of a question."""
    folder.mkdir(parents=True, exist_ok=True)
    return save_tiny_llama(folder, max_position_embeddings=8192)


def tiny_adapter(base: Path, folder: Path, seed: int = 0) -> Path:
    """A random adapter of a base; another one for each seed."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    config = LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)
    get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).save_pretrained(folder)
    return folder
