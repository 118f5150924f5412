import pytest

from cirag_dspy.benchmarks import load_benchmark
from cirag_dspy.evaluate.cost import contrasts_cost, extraction_cost, judging_cost, rows_cost, run_cost
from cirag_dspy.schema import Passage
from cirag_dspy.systems import build_system, settings_of


def test_extraction_counts_calls_of_both_ways():
    passages = [Passage.create("T", "One sentence here."), Passage.create("U", "Another one.")]
    one, two = extraction_cost(passages, "one"), extraction_cost(passages, "two")
    assert (one["lm_calls"], two["lm_calls"]) == (2, 4)
    assert two["prompt_tokens"] > one["prompt_tokens"] > 0
    assert extraction_cost([], "one") == {"lm_calls": 0, "prompt_tokens": 0, "reply_tokens": 0}


@pytest.mark.parametrize(
    ("system", "calls"),
    [
        ("native_rag", 1),
        ("cirag", 4 + 3 + 1),
        ("d2f_reag", 167),
        ("flare", 2 * 4 + 1),
        ("ircot", 4 + 1),
        ("kirag", 6),
        ("react", 7 + 1),
        ("metarag", 2 + 5 * 3 + 1),
        ("dualrag", 5 * (2 + 4) + 2),
        ("logicrag", 2 + 1 + 3 * 2 + 2),
    ],
)
def test_a_run_costs_at_most(system, calls):
    benchmark = load_benchmark("demo", limit=5)
    cost = run_cost(benchmark, system, settings_of(system))
    assert cost["lm_calls"] == 5 * calls
    assert cost["prompt_tokens"] > 0


def test_the_cost_of_a_system_that_is_not_known():
    assert run_cost(load_benchmark("demo", limit=5), "kirag?", {}) == {}


@pytest.mark.parametrize(
    ("system", "contrast", "rows"), [("native_rag", True, 1), ("cirag", False, 5), ("cirag", True, 5 + 3)]
)
def test_rows_of_a_question_at_most(system, contrast, rows):
    benchmark = load_benchmark("demo", limit=5)
    cost = rows_cost(benchmark, build_system(system, None), settings_of(system), contrast)
    assert cost["rows"] == 5 * rows  # one for each predictor that is asked about a question; a conversation is one
    assert cost["tokens"] > 0


@pytest.mark.parametrize(("levels", "calls"), [(("triples", "passages"), 3), (("passages",), 1)])
def test_contrasts_cost_calls_by_question(levels, calls):
    settings = settings_of("cirag", levels=levels)
    assert contrasts_cost(load_benchmark("demo", limit=5), settings)["lm_calls"] == 5 * calls


def test_judging_costs_a_call_a_question_at_most():
    cost = judging_cost(load_benchmark("demo", limit=5))
    assert cost["lm_calls"] == 5 and cost["prompt_tokens"] > 0


def test_letters_of_other_scripts_cost_more_tokens():
    latin = Passage.create("", "a" * 400)
    chinese = Passage.create("", "北" * 400)
    one, other = (extraction_cost([passage], "one")["prompt_tokens"] for passage in (latin, chinese))
    assert other - one == 200  # 800 bytes more
