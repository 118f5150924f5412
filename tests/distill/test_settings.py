from __future__ import annotations

import math
import subprocess
import sys

import pytest

from cirag_dspy.distill.settings import AlignerSettings, LoraSettings
from cirag_dspy.errors import RunError


def test_the_papers_defaults():
    settings = LoraSettings()
    assert (settings.rank, settings.epochs, settings.batch_size, settings.learning_rate) == (64, 2.0, 2, 2e-4)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("constant", [0.5, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
        ("linear", [0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]),
        ("cosine", [0.5, 1, 1, *[(1 + math.cos(math.pi * n / 8)) / 2 for n in range(1, 8)]]),
    ],
)
def test_rates_by_hand(schedule, rates):
    settings = LoraSettings(learning_rate=1.0, warmup=0.2, schedule=schedule)
    assert [settings.rate(step, 10) for step in range(10)] == pytest.approx(rates)
    assert LoraSettings(learning_rate=1.0, warmup=0.0, schedule=schedule).rate(0, 1) == 1.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rank": 0}, "rank must be above 0, not 0"),
        ({"rank": 8.5}, "rank is of type int, and 8.5 is not"),
        ({"rank": True}, "rank is of type int, and True is not"),
        ({"alpha": -1}, "alpha must be above 0, not -1"),
        ({"learning_rate": "2e-4"}, "learning_rate is of type float, and '2e-4' is not"),
        ({"learning_rate": float("nan")}, "learning_rate must be above 0, not nan"),
        ({"epochs": float("inf")}, "epochs must be above 0, not inf"),
        ({"warmup": 1.0}, "warmup must be at least 0 and below 1, not 1.0"),
        ({"dropout": -0.1}, "dropout must be at least 0 and below 1, not -0.1"),
        ({"weight_decay": -1.0}, "weight_decay must not be negative, and is -1.0"),
        ({"schedule": "step"}, "no schedule 'step': use one of linear, cosine, constant"),
        (
            {"rnak": 8, "lr": 1},
            "no setting lr, rnak: there are rank, alpha, dropout, epochs, batch_size, learning_rate",
        ),
    ],
)
def test_a_wrong_setting_is_an_error_that_names_it(values, message):
    with pytest.raises(RunError, match=message):
        LoraSettings.of(values)


def test_given_values_over_the_defaults():
    assert LoraSettings.of({"rank": 8, "epochs": 1, "alpha": None}) == LoraSettings(rank=8, epochs=1.0)


def test_settings_need_nothing_heavy():
    code = "import sys, cirag_dspy.distill.settings; sys.exit(bool({'torch', 'peft', 'dspy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_an_aligner_s_seed_is_one_of_numpy_s(seed):
    with pytest.raises(RunError, match=r"seed must be at least 0 and below 2\*\*32, not"):
        AlignerSettings(seed=seed)
