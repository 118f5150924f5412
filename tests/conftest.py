"""Every test starts with DSPy's defaults and no response cache on disk."""

import os

import pytest

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(autouse=True)
def clean_dspy():
    import copy

    import dspy
    from dspy.dsp.utils.settings import DEFAULT_CONFIG

    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    dspy.cache.reset_memory_cache()
    yield
    dspy.configure(**copy.deepcopy(DEFAULT_CONFIG))
