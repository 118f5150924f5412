"""Every test starts with DSPy's defaults and no response cache on disk."""

import os

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# Generated input: few cases a property by default; CIRAG_CASES=2000 for the long run. Never a timed test.
settings.register_profile(
    "cirag",
    max_examples=int(os.environ.get("CIRAG_CASES", "60")),
    deadline=None,
    derandomize="CIRAG_CASES" not in os.environ,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("cirag")


@pytest.fixture(autouse=True)
def clean_dspy():
    import copy

    import dspy
    from dspy.dsp.utils.settings import DEFAULT_CONFIG

    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    dspy.cache.reset_memory_cache()
    yield
    dspy.configure(**copy.deepcopy(DEFAULT_CONFIG))
