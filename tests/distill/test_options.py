import inspect

import dspy
import pytest

from cirag_dspy.distill.options import OPTIMIZERS, all_options, check_options, known_options, optimizer_class, plain
from cirag_dspy.errors import RunError


def refusal(name, **options):
    with pytest.raises(RunError) as error:
        check_options(name, options)
    return str(error.value)


def test_names():
    assert [optimizer_class(name) for name in OPTIMIZERS] == [
        dspy.BootstrapFewShotWithRandomSearch,
        dspy.MIPROv2,
        dspy.GEPA,
    ]
    assert optimizer_class("bootstrap") is dspy.BootstrapFewShotWithRandomSearch
    assert refusal("miprov3") == (
        "unknown optimizer 'miprov3'; there are bootstrap_random_search, mipro, gepa "
        "(bootstrap for bootstrap_random_search)"
    )


def test_options_are_those_of_dspy():
    assert list(known_options("bootstrap")) == [
        "restrict",
        "labeled_sample",
        "max_bootstrapped_demos",
        "max_labeled_demos",
        "max_rounds",
        "num_candidate_programs",
        "max_errors",
        "stop_at_score",
    ]
    assert known_options("mipro")["auto"] == "light"
    taken = inspect.signature(dspy.GEPA.__init__).parameters
    assert known_options("gepa").keys() < taken.keys()


def test_an_unknown_option_is_an_error_and_no_fallback():
    """Known failure D16: ``--optimizer gepa --set max_steps=3`` silently ran another optimizer."""
    message = refusal("gepa", max_steps=3)
    assert message.startswith("GEPA has no option max_steps; it has auto, max_full_evals, max_metric_calls, ")


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("mipro", "task_model", "MIPROv2: task_model is no option here; give lm instead"),
        ("gepa", "reflection_lm", "GEPA: reflection_lm is no option here; give prompt_lm instead"),
        (
            "bootstrap",
            "metric_threshold",
            "BootstrapFewShotWithRandomSearch: metric_threshold is no option here; give threshold instead",
        ),
        ("mipro", "seed", "MIPROv2: seed is no option here; give seed instead"),
        ("mipro", "track_stats", "MIPROv2: track_stats is no option here; leave it out"),
        ("gepa", "log_dir", "GEPA resumes from pickles in log_dir, which this package does not read; leave it out"),
    ],
)
def test_what_is_set_elsewhere_is_no_option(name, option, message):
    assert refusal(name, **{option: "x"}) == message


def test_values_are_of_the_type_of_the_default():
    assert refusal("mipro", max_bootstrapped_demos="4") == (
        "MIPROv2: max_bootstrapped_demos must be of type int, such as 4, not '4'"
    )
    assert "must be of type int" in refusal("bootstrap", max_rounds=True)
    assert "must be of type bool" in refusal("gepa", use_merge=1)
    check_options("mipro", {"init_temperature": 1, "auto": None, "num_candidates": 3})
    check_options("gepa", {"component_selector": object()})


def test_our_defaults():
    bootstrap = all_options("bootstrap", {"num_candidate_programs": 2}, 5, 0)
    assert (bootstrap["max_labeled_demos"], bootstrap["restrict"]) == (0, [-3, -1, 0, 1])
    assert all_options("bootstrap", {"max_labeled_demos": 2}, 5, 0)["restrict"] is None
    gepa = plain(all_options("gepa", {}, 5, 0))
    assert (gepa["auto"], gepa["component_selector"], gepa["instruction_proposer"]) == (
        "light",
        "CalledInTurn",
        "Proposer",
    )
    assert all_options("gepa", {"max_metric_calls": 9}, 5, 0)["auto"] is None


@pytest.mark.parametrize(
    ("given", "train", "val", "auto", "minibatch"),
    [
        ({}, 5, 0, "light", False),
        ({"num_candidates": 3}, 5, 0, None, False),
        ({"num_trials": 3}, 50, 0, None, True),  # 40 of 50 are for validation, 35 make a minibatch
        ({"num_trials": 3}, 50, 20, None, False),
        ({"num_trials": 3, "minibatch_size": 10}, 50, 20, None, True),
        ({"num_trials": 3, "auto": "heavy", "minibatch": True}, 5, 5, "heavy", True),
    ],
)
def test_defaults_of_mipro(given, train, val, auto, minibatch):
    options = all_options("mipro", given, train, val)
    assert (options["auto"], options["minibatch"]) == (auto, minibatch)
