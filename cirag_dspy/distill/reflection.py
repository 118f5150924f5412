"""``dspy.GEPA`` for programs with loops and with several predictors of one signature.

DSPy's and gepa's: the search, the reflection, the proposals. Ours: which call belongs to which predictor (DSPy goes by
equal signatures, which the levels of a cascade share), whose turn it is (only predictors that were called), replies
that could not be read (``watch``), and the words of the feedback (``feedback``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import dspy
from dspy.teleprompt.gepa import InstructionProposer

from cirag_dspy.errors import RunError
from cirag_dspy.text import one_line

_OWNER = "predictor"


def mark(program: dspy.Module) -> dict[str, type[dspy.Signature]]:
    """Make every signature of a program its predictor's own, by a note on a field that no prompt shows.

    Returns:
        The signatures as they were, for ``unmark``.
    """
    before = {}
    for name, predictor in program.named_predictors():
        before[name] = predictor.signature
        first = next(iter(predictor.signature.fields))
        predictor.signature = predictor.signature.with_updated_fields(first, **{_OWNER: name})
    return before


def unmark(program: dspy.Module, before: Mapping[str, type[dspy.Signature]]) -> None:
    """Take the notes off again; instructions stay as they are now."""
    for name, predictor in program.named_predictors():
        now = predictor.signature.instructions
        predictor.signature = before[name] if now == before[name].instructions else before[name].with_instructions(now)


class CalledInTurn:
    """gepa's round robin over the predictors, without those that were not called: nothing can be said about them.

    Triples that the index has are not extracted again, and deeper levels of a cascade are rarely reached.
    """

    def __call__(
        self,
        state: Any,
        trajectories: Sequence[Any],
        subsample_scores: Sequence[float],
        candidate_idx: int,
        candidate: Mapping[str, str],
    ) -> list[str]:
        """The predictor to improve next, as gepa asks for it."""
        names = state.list_of_named_predictors
        turn = state.named_predictor_id_to_update_next_for_program_candidate
        called = {_owner(predictor) for trajectory in trajectories for predictor, *_ in trajectory["trace"]}
        places = [(turn[candidate_idx] + step) % len(names) for step in range(len(names))]
        place = next((place for place in places if names[place] in called), places[0])
        turn[candidate_idx] = (place + 1) % len(names)
        return [names[place]]


class Proposer(InstructionProposer):
    """DSPy's proposer, which counts what became of its proposals: gepa logs those that fail, and goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.made: Counter[str] = Counter()
        self.failed: list[Exception] = []

    def __call__(self, candidate: dict[str, str], reflective_dataset: Any, components_to_update: list[str]) -> Any:
        """New instructions by predictor."""
        try:
            proposed = super().__call__(candidate, reflective_dataset, components_to_update)
        except Exception as error:
            self.failed.append(error)
            raise
        self.made.update(proposed.keys())
        return proposed

    def report(self) -> dict[str, Any]:
        """Numbers of proposals by predictor, and of those that failed."""
        return {"proposed": dict(self.made), "failed": len(self.failed)}

    def check(self, lm: dspy.LM) -> None:
        """Raise RunError where the LM was asked for instructions and never wrote any."""
        if self.failed and not self.made:
            error = self.failed[-1]
            why = one_line(f"{type(error).__name__}: {error}")[:200]
            raise RunError(
                f"{lm.model} wrote no instruction in {len(self.failed)} tries ({why}); give another prompt LM"
            )


def _owner(predictor: Any) -> str:
    first = next(iter(predictor.signature.fields.values()))
    return str((first.json_schema_extra or {}).get(_OWNER, ""))
