from __future__ import annotations

import copy

import pytest

import cirag_dspy.lms  # noqa: F401 - before dspy: it keeps dspy from fetching a price list
from tests.tiny import save_tiny_llama

import dspy  # isort: skip
from dspy.dsp.utils.settings import DEFAULT_CONFIG  # isort: skip


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
    return save_tiny_llama(tmp_path_factory.mktemp("tiny"))


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
