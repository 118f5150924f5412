"""A drawing of an ablation: EM and F1, with their intervals, over its settings. Needs matplotlib (extra ``plot``)."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cirag_dspy.errors import ModelError, RunError

_ENDINGS = (".svg", ".png", ".pdf")


def require_plot(path: Path) -> None:
    """Check that a drawing can be made there, before anything is paid for.

    Raises:
        ModelError: There is no matplotlib.
        RunError: The file's ending is none that is drawn.
    """
    if path.suffix.lower() not in _ENDINGS:
        raise RunError(f"{path}: a drawing ends in {', '.join(_ENDINGS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise ModelError("--plot needs matplotlib: pip install 'cirag-dspy[plot]'")


def draw(
    comparison: Mapping[str, Any], path: Path, *, title: str, xs: Sequence[float] | None = None, label: str = ""
) -> None:
    """Draw a comparison's EM and F1.

    Args:
        comparison: As ``compare`` gives it.
        path: The file; its ending says of which kind.
        title: Above the drawing.
        xs: Where its runs lie on the x axis; without it they stand side by side, with their names, unconnected.
        label: What the x axis shows.
    """
    import matplotlib
    from matplotlib.figure import Figure

    runs = comparison["runs"]
    places = list(range(len(runs))) if xs is None else list(xs)
    # The same drawing is the same file; a name is a name, whatever dollars are in it.
    with matplotlib.rc_context({"svg.hashsalt": "cirag-dspy", "text.parse_math": False}):
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        for score, name, aside in (("f1", "F1", -0.08), ("em", "EM", 0.08)):
            found = [run["scores"][score] for run in runs.values()]
            means = [100 * one["mean"] for one in found]
            bars = [
                [100 * (one["mean"] - (one["mean"] if one["low"] is None else one["low"])) for one in found],
                [100 * ((one["mean"] if one["high"] is None else one["high"]) - one["mean"]) for one in found],
            ]
            # Names have room for the two beside each other; numbers stay where they are.
            where, line = (places, "-") if xs is not None else ([place + aside for place in places], "")
            axes.errorbar(where, means, yerr=bars, marker="o", capsize=3, linestyle=line, label=name)
        if xs is None:
            axes.set_xticks(places, list(runs), rotation=30, ha="right")
        elif len(places) <= 12:
            axes.set_xticks(places)
        axes.set(title=title, xlabel=label, ylabel="%")
        axes.grid(alpha=0.3)
        figure.legend(loc="outside lower right", ncols=2)
        dated = {"svg": "Date", "pdf": "CreationDate"}.get(path.suffix.lower()[1:])
        figure.savefig(path, metadata={dated: None} if dated else None)
