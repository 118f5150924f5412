"""DSPy's optimizers of prompts by name, and their options: read off DSPy's own signatures, so that they never drift."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import dspy

from cirag_dspy.distill.reflection import CalledInTurn, Proposer
from cirag_dspy.errors import RunError

OPTIMIZERS = ("bootstrap_random_search", "mipro", "gepa")
ALIASES = {"bootstrap": "bootstrap_random_search"}

_CLASSES = dict(zip(OPTIMIZERS, (dspy.BootstrapFewShotWithRandomSearch, dspy.MIPROv2, dspy.GEPA), strict=True))
# What DSPy takes as an option and is set from elsewhere here; empty: of no use.
_SET_ELSEWHERE = {
    "metric": "metric",
    "metric_threshold": "threshold",
    "teacher_settings": "teacher",
    "task_model": "lm",
    "prompt_model": "prompt_lm",
    "reflection_lm": "prompt_lm",
    "num_threads": "threads",
    "seed": "seed",
    "track_stats": "",
    "requires_permission_to_run": "",
}
_NO_OPTIONS = ("self", "student", "trainset", "valset", "teacher")
_PLAIN = (str, int, float, bool, list, dict)


def optimizer_class(name: str) -> Any:
    """The DSPy class that a name means.

    Raises:
        RunError: There is no such optimizer.
    """
    name = ALIASES.get(name, name)
    if name not in _CLASSES:
        aliases = ", ".join(f"{short} for {long}" for short, long in ALIASES.items())
        raise RunError(f"unknown optimizer {name!r}; there are {', '.join(OPTIMIZERS)} ({aliases})")
    return _CLASSES[name]


def known_options(name: str) -> dict[str, Any]:
    """The options of an optimizer, with their defaults in DSPy.

    Raises:
        RunError: There is no such optimizer.
    """
    return {key: default for key, default in _parameters(name).items() if key not in _SET_ELSEWHERE}


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Check options by name and, where DSPy has a default, by type.

    Raises:
        RunError: There is no such optimizer or option, or a value is of another type.
    """
    known, optimizer = known_options(name), optimizer_class(name).__name__
    for key, value in options.items():
        if key in _SET_ELSEWHERE and key in _parameters(name):
            instead = f"give {_SET_ELSEWHERE[key]} instead" if _SET_ELSEWHERE[key] else "leave it out"
            raise RunError(f"{optimizer}: {key} is no option here; {instead}")
        if key not in known:
            raise RunError(f"{optimizer} has no option {key}; it has {', '.join(known)}")
        if not _fits(value, known[key]):
            kind = type(known[key]).__name__
            raise RunError(f"{optimizer}: {key} must be of type {kind}, such as {known[key]}, not {value!r}")
    if "log_dir" in options and optimizer == "GEPA":
        raise RunError("GEPA resumes from pickles in log_dir, which this package does not read; leave it out")


def all_options(name: str, given: Mapping[str, Any], train: int, val: int) -> dict[str, Any]:
    """Every option with its value: the one given, else our default, else DSPy's.

    Args:
        name: The optimizer.
        given: Options that were checked.
        train: Number of training questions.
        val: Number of validation questions; 0 where the training questions serve.
    """
    name = ALIASES.get(name, name)
    options = known_options(name)
    if name == "gepa":
        options |= {"component_selector": CalledInTurn(), "instruction_proposer": Proposer(), **given}
        if all(options[budget] is None for budget in ("auto", "max_full_evals", "max_metric_calls")):
            options["auto"] = "light"
        return options
    options |= {"max_labeled_demos": 0, **given}
    if name == "mipro":
        if "auto" not in given and (options["num_candidates"] or options["num_trials"]):
            options["auto"] = None
        if "minibatch" not in given:
            options["minibatch"] = (val or train * 4 // 5) > options["minibatch_size"]
    elif not options["max_labeled_demos"] and options["restrict"] is None:
        # Without labelled demonstrations DSPy's second candidate would be its first once more.
        options["restrict"] = [-3, -1, *range(options["num_candidate_programs"])]
    return options


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as JSON has them; of what JSON has not, the class."""
    return {
        key: value if value is None or isinstance(value, _PLAIN) else type(value).__name__
        for key, value in options.items()
    }


def _parameters(name: str) -> dict[str, Any]:
    optimizer = optimizer_class(name)
    methods = (optimizer.compile, optimizer.__init__)
    parameters = {key: p.default for method in methods for key, p in inspect.signature(method).parameters.items()}
    return {key: default for key, default in parameters.items() if key not in _NO_OPTIONS}


def _fits(value: Any, default: Any) -> bool:
    if value is None or default is None or not isinstance(value, _PLAIN):
        return True
    if isinstance(value, bool) or isinstance(default, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    return isinstance(value, (int, float) if isinstance(default, float) else type(default))
