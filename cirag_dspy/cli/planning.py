"""What ``eval`` and ``ablate`` are about to run, checked before anything is opened, and what it would cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from cirag_dspy.cli import common
from cirag_dspy.errors import RunError

if TYPE_CHECKING:
    from cirag_dspy.artifact import Saved
    from cirag_dspy.benchmarks.base import Benchmark
    from cirag_dspy.evaluate.variants import Variant
    from cirag_dspy.modules.extract import Extract
    from cirag_dspy.modules.search import SearchIndex

ONLINE, OFFLINE, OFF, GIVEN = WHEN = ("online", "offline", "off", "given")


@dataclass(frozen=True)
class Planned:
    """A variant, ready to be built.

    Args:
        variant: What it is.
        saved: The saved program that has its prompts, if one does.
        knobs: All that it is built with beside its index.
        when: When its triples are extracted.
        alone: Whether it has an index of its own, so that it pays for its own triples.
    """

    variant: Variant
    saved: Saved | None
    knobs: dict[str, Any]
    when: str
    alone: bool

    @property
    def settings(self) -> dict[str, Any]:
        """All its settings."""
        from cirag_dspy.systems import settings_of

        return settings_of(self.variant.system, **self.knobs)

    @property
    def needs_triples(self) -> bool:
        """Whether it works on triples."""
        return "extract" in self.settings

    def build(self, index: SearchIndex | None = None) -> Any:
        """The system, without an LM."""
        from cirag_dspy.systems import build_system

        if self.saved is not None:
            return self.saved.program(index, self.variant.system, **self.knobs)
        return build_system(self.variant.system, index, **self.knobs)


@dataclass(frozen=True)
class Plan:
    """Variants over one benchmark, LM and index.

    Args:
        runs: The variants.
        saved: The saved program whose LM they have.
        calls: LM calls a passage to extract its triples, ``one`` or ``two``.
    """

    runs: tuple[Planned, ...]
    saved: Saved | None
    calls: str

    def extractor(self) -> Extract:
        """The module that extracts triples, without an LM."""
        from cirag_dspy.modules.extract import Extract

        if self.saved is not None and self.saved.extracts():
            return self.saved.extractor()
        return Extract(self.calls)  # type: ignore[arg-type]


def make_plan(
    variants: Sequence[Variant], saved: Saved | None, *, extract: str | None, calls: str | None, latency: bool = False
) -> Plan:
    """Check what a command is to run.

    Args:
        variants: What was asked for.
        saved: The program that was named: its systems have its prompts and settings, others their own.
        extract: When triples are extracted; default: as they are retrieved, but before any question where there are
            several variants, so that none pays for the triples of another.
        calls: LM calls a passage; default: the program's, else one.
        latency: Whether seconds are measured: then triples are extracted before any question by default.

    Raises:
        RunError: An option makes no sense, or a system refuses a setting.
    """
    from cirag_dspy.systems import settings_of

    if extract not in (None, *WHEN):
        raise RunError(f"--extract must be online, offline, off or given, not {extract!r}")
    if calls not in (None, "one", "two"):
        raise RunError(f"--calls must be one or two, not {calls!r}")
    extracted = any("extract" in settings_of(variant.system) for variant in variants)
    if extracted and saved is not None and saved.extracts():
        own = saved.extractor().calls
        if calls not in (None, own):
            raise RunError(f"{saved.folder} extracts in {own} call(s) a passage: leave --calls out")
        calls = own
    calls = calls or "one"
    several = len(variants) > 1
    runs = [_planned(variant, saved, extract, calls, several, first=several or latency) for variant in variants]
    if latency and (timed := [run.variant.name for run in runs if run.needs_triples and run.when == ONLINE]):
        raise RunError(
            f"--latency: {timed[0]} would extract triples while it is timed; --extract offline does so before"
        )
    for run in runs:
        run.build()  # what is wrong with it is said before anything is opened
    return Plan(tuple(runs), saved, calls)


def _planned(
    variant: Variant, saved: Saved | None, extract: str | None, calls: str, several: bool, *, first: bool
) -> Planned:
    """A variant of a plan; ``first``: its triples are extracted before any question unless something else is said."""
    from cirag_dspy.systems import settings_of

    defaults = settings_of(variant.system)
    held = saved if saved is not None and variant.system in saved.systems else None
    knobs = {**(held.settings(variant.system) if held else {}), **variant.settings}
    needs_triples = "extract" in defaults
    if variant.extract and not needs_triples:
        raise RunError(f"{variant.name}: {variant.system} works on no triples, so there is nothing to extract")
    when = variant.extract or extract or (OFFLINE if first and needs_triples else ONLINE)
    if needs_triples:
        knobs["extract"] = calls if when in (ONLINE, OFFLINE) else None
    if "threads" in defaults:
        knobs["threads"] = 1  # --threads questions at a time are as many LM calls at a time
    alone = several and when == ONLINE and needs_triples
    return Planned(variant, held if variant.student else None, knobs, when, alone)


def student_base(saved: Saved | None, lm: str | None) -> tuple[str, dict[str, Any]]:
    """What the LM of a command was trained from, and how that is called.

    Raises:
        RunError: It has no adapter.
    """
    from cirag_dspy.lms import split_spec

    spec, settings = saved.lm_spec() if saved is not None and lm is None else (lm or "embedded", {})
    base, adapter = split_spec(spec)
    if not adapter:
        raise RunError(f"{spec} is no student: give a program with a trained one, or an LM with +ADAPTER")
    return base, settings


def print_cost(plan: Plan, benchmark: Benchmark, as_json: bool, judged: bool = False) -> None:
    """What a plan costs at most, on stdout."""
    from cirag_dspy.evaluate.cost import judging_cost, run_cost

    answering = {run.variant.name: run_cost(benchmark, run.variant.system, run.settings) for run in plan.runs}
    extraction = _extraction_cost(plan, benchmark)
    cost: dict[str, Any] = {"questions": len(benchmark.examples), "passages": len(benchmark.passages)}
    several = len(plan.runs) > 1
    if several:
        cost["answering_at_most"] = {name: parts or None for name, parts in answering.items()}
    else:
        cost["answering_at_most"] = next(iter(answering.values())) or None
    if extraction:
        cost["extraction_at_most"] = extraction
    judging = _sum([judging_cost(benchmark)] * len(plan.runs)) if judged else {}
    if judging:
        cost["judging_at_most"] = judging
    if several:
        cost["known_at_most"] = _sum([*filter(None, answering.values()), *filter(None, (extraction, judging))])
    if as_json:
        common.print_json(cost)
        return
    typer.echo(f"{cost['questions']} questions over {cost['passages']} passages")
    for name, parts in answering.items():
        typer.echo(f"  {f'{name}, ' if several else ''}answering at most: {_told(parts)}")
    if extraction:
        typer.echo(f"  extraction at most: {_told(extraction)}")
    if judging:
        typer.echo(f"  judging at most: {_told(judging)}")
    if several:
        unknown = ", ".join(name for name, parts in answering.items() if not parts)
        typer.echo(f"  in all at most: {_told(cost['known_at_most'])}{f', and {unknown}' if unknown else ''}")


def _extraction_cost(plan: Plan, benchmark: Benchmark) -> dict[str, int]:
    """Of every passage once where that is done first, and of what each run may retrieve where it is not."""
    from cirag_dspy.evaluate.cost import extraction_cost, most_passages

    runs = [run for run in plan.runs if run.settings.get("extract")]
    reads = [most_passages(benchmark, run.settings) for run in runs if run.when == ONLINE]
    if any(run.when == OFFLINE for run in runs):
        reads.append(len(benchmark.passages))
    longest = sorted(benchmark.passages, key=lambda passage: len(passage.text), reverse=True)
    return _sum([extraction_cost(longest[:read], plan.calls) for read in reads])


def _sum(costs: Sequence[dict[str, int]]) -> dict[str, int]:
    return {key: sum(cost[key] for cost in costs) for key in costs[0]} if costs else {}


def _told(cost: dict[str, int]) -> str:
    if not cost:
        return "unknown"
    return f"{cost['lm_calls']} LM calls, about {cost['prompt_tokens']} prompt and {cost['reply_tokens']} reply tokens"
