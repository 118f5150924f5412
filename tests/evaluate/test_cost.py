import pytest

from cirag_dspy.benchmarks import load_benchmark
from cirag_dspy.evaluate.cost import extraction_cost, run_cost
from cirag_dspy.schema import Passage
from cirag_dspy.systems import settings_of


def test_extraction_counts_calls_of_both_ways():
    passages = [Passage.create("T", "One sentence here."), Passage.create("U", "Another one.")]
    one, two = extraction_cost(passages, "one"), extraction_cost(passages, "two")
    assert (one["lm_calls"], two["lm_calls"]) == (2, 4)
    assert two["prompt_tokens"] > one["prompt_tokens"] > 0
    assert extraction_cost([], "one") == {"lm_calls": 0, "prompt_tokens": 0, "reply_tokens": 0}


@pytest.mark.parametrize(("system", "calls"), [("native_rag", 1), ("cirag", 4 + 3 + 1)])
def test_a_run_costs_at_most(system, calls):
    benchmark = load_benchmark("demo", limit=5)
    cost = run_cost(benchmark, system, settings_of(system))
    assert cost["lm_calls"] == 5 * calls
    assert cost["prompt_tokens"] > 0
