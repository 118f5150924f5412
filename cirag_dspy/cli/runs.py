"""What ``eval`` and ``ablate`` share: their options, and running a plan over one benchmark, LM and index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cirag_dspy.cli import common
from cirag_dspy.cli.planning import GIVEN, OFFLINE, Plan, Planned, student_base
from cirag_dspy.cli.reports import Finished
from cirag_dspy.errors import RunError

if TYPE_CHECKING:
    import dspy

    from cirag_dspy.benchmarks.base import Benchmark
    from cirag_dspy.corpus.index import CorpusIndex
    from cirag_dspy.evaluate.run import RunFolder
    from cirag_dspy.modules.extract import Extract

Dataset = Annotated[str, typer.Option(help="hotpotqa, 2wikimultihopqa, musique, nq, webquestions, bamboogle or demo.")]
Split = Annotated[str, typer.Option(help="train, dev or test.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder of the official files; default: the hub.")]
DataFile = Annotated[Path | None, typer.Option(help="One file of questions.")]
Corpus = Annotated[Path | None, typer.Option(help="Passages to search; default: the paragraphs of the questions.")]
Setting = Annotated[str, typer.Option(help="HotpotQA: distractor or fullwiki.")]
Limit = Annotated[int | None, typer.Option(help="This many questions, drawn at random by --seed; default: all.")]
Seed = Annotated[
    int | None,
    typer.Option(min=0, help="Of the draw of --limit; default: 0.", show_default=False),
]
First = Annotated[
    bool,
    typer.Option(
        "--first", help="Let --limit take the first ones. Files may be sorted (MuSiQue's by hops): they are no sample."
    ),
]
Ids = Annotated[str | None, typer.Option(help="Question ids, separated by commas.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="NAME=VALUE, any setting of the systems, or SYSTEM.NAME=VALUE of one; again for more.",
        rich_help_panel="System",
    ),
]
Calls = Annotated[
    str | None,
    typer.Option(help="one or two LM calls a passage; default: the program's, else one.", rich_help_panel="System"),
]
ExtractionLM = Annotated[str | None, typer.Option(help="Another LM for the triples.", rich_help_panel="LM")]
JudgeLM = Annotated[
    str | None, typer.Option(help="An LM that says whether answers mean the same as the gold.", rich_help_panel="LM")
]
Unanswerable = Annotated[
    bool,
    typer.Option(
        "--unanswerable",
        help="Keep questions without an answer (answerable false; answer empty or null; answers []): right is to "
        "abstain. Not both rows of a MuSiQue-Full pair; default: rows with answerable false are skipped.",
    ),
]
Abstain = Annotated[
    bool,
    typer.Option(
        "--abstain",
        help="Score guesses that a system does not stand by as no answer; default: as the official scripts do, "
        "with how often it abstained beside.",
        rich_help_panel="Report",
    ),
]
Index = Annotated[Path | None, typer.Option(help="An index to use; default: one per corpus in the cache.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the runs in --out; finished ones are not asked.")]
Latency = Annotated[
    bool,
    typer.Option(
        "--latency",
        help="Measure seconds: one question at a time, no cache, after one that warms up, triples extracted before. "
        "Without it no seconds are printed: with questions side by side or cached replies they compare with nothing.",
        rich_help_panel="Report",
    ),
]
Against = Annotated[
    str | None, typer.Option(help="What the others are compared with; default: the first.", rich_help_panel="Report")
]
Csv = Annotated[Path | None, typer.Option("--csv", help="Also write the table as CSV.", rich_help_panel="Report")]
Markdown = Annotated[
    Path | None, typer.Option("--markdown", help="Also write the tables as Markdown.", rich_help_panel="Report")
]


@dataclass(frozen=True)
class Models:
    """The LMs of a command: who answers, who extracts triples, the untaught base of the first, who judges answers."""

    reader: dspy.LM
    extractor: dspy.LM
    base: dspy.LM | None
    judge: dspy.LM | None

    def of(self, run: Planned) -> dspy.LM:
        """Who answers in a run."""
        return self.reader if run.variant.student or self.base is None else self.base


def names(text: str | None) -> tuple[str, ...] | None:
    """What stands between the commas of an option."""
    return None if text is None else tuple(name.strip() for name in text.split(","))


def drawn(limit: int | None, seed: int | None, first: bool) -> dict[str, Any]:
    """The draw of ``--limit``, ``--seed`` and ``--first``, as ``load_benchmark`` takes it.

    Raises:
        RunError: ``--first`` and ``--seed`` are both given.
    """
    if first and seed is not None:
        raise RunError("--first draws nothing, so --seed would not be used: leave one of them out")
    return {"limit": limit, "sample_seed": seed or 0, "first": first}


def say_warnings(benchmark: Benchmark, quiet: bool) -> None:
    """What a benchmark's loader wants said."""
    for warning in benchmark.notes.get("warnings", []):
        common.say(f"note: {warning}", quiet)


def lm_name(plan: Plan, lm: str | None) -> str:
    """How tables and folders call the LM: by the program, the LM string, or both."""
    return " ".join(filter(None, (plan.saved.name if plan.saved else "", lm))) or "embedded"


def folders_in(out: Path, plan: Plan) -> list[RunFolder]:
    """A run folder for each variant of a plan.

    Raises:
        RunError: Two variants would share one.
    """
    from cirag_dspy.evaluate.corpus import slug
    from cirag_dspy.evaluate.run import RunFolder

    parts = [slug(run.variant.name) for run in plan.runs]
    if twice := [part for part in parts if not part or parts.count(part) > 1]:
        raise RunError(f"two variants would be kept in {out / twice[0]}: name them differently")
    return [RunFolder(out / part) for part in parts]


def open_models(
    plan: Plan,
    options: common.LMOptions,
    benchmark: Benchmark,
    *,
    lm: str | None,
    extraction_lm: str | None,
    judge_lm: str | None = None,
) -> Models:
    """The LMs that a command names, or those of its program."""
    from cirag_dspy.artifact import EXTRACTION, READER

    own = plan.saved if lm is None else None
    # Annotations answer from the gold of the very questions: an upper bound, not a system.
    gold = {"examples": benchmark.examples, "passages": benchmark.passages} if lm == "annotations" else {}
    reader = options.open_saved(own, READER) if own else options.open(lm or "embedded", **gold)
    extractor = options.open_saved(own, EXTRACTION) if own and EXTRACTION in own.meta["lms"] else reader
    if extraction_lm:
        extractor = options.open(extraction_lm)
    base = None
    if not all(run.variant.student for run in plan.runs):
        spec, settings = student_base(plan.saved, lm)
        base = options.open(spec, **settings)
    return Models(reader, extractor, base, options.open(judge_lm) if judge_lm else None)


def run_plan(
    plan: Plan,
    benchmark: Benchmark,
    folders: Sequence[RunFolder],
    models: Models,
    *,
    index: Path | None,
    embedder: str,
    aligner: Path | None,
    threads: int,
    latency: bool,
    resume: bool,
    quiet: bool,
    abstain: bool = False,
) -> list[Finished]:
    """Run each variant over the benchmark, one after another: all have the same questions, LMs and, but for those that
    extract their triples themselves, the same index. A judge then says which answers are right.

    Raises:
        RunError: A folder holds a run and ``resume`` is off, or holds one of other settings.
        dspy.utils.exceptions.LMError: No LM call can succeed; rows so far are kept.
    """
    import dspy

    from cirag_dspy.evaluate.judged import judge_run
    from cirag_dspy.evaluate.run import run as ask_all
    from cirag_dspy.modules.extract import Extract

    opener = _Opener(plan, benchmark, models, index, embedder, aligner, threads, quiet)
    describe = partial(
        _manifest,
        plan,
        benchmark=benchmark,
        models=models,
        given=index is not None,
        threads=threads,
        latency=latency,
        abstain=abstain,
    )
    finished = []
    with ExitStack() as stack:
        shared = None if all(run.alone for run in plan.runs) else stack.enter_context(opener.shared())
        for run, folder in zip(plan.runs, folders, strict=True):
            if resume and shared is not None and not run.alone:  # what can't be gone on with is said before any is
                folder.start(describe(run, opened=shared), resume=True)
        for number, (run, folder) in enumerate(zip(plan.runs, folders, strict=True), 1):
            if len(plan.runs) > 1:
                common.say(f"{run.variant.name} ({number} of {len(plan.runs)})", quiet)
            with opener.own(run, folder) if run.alone or shared is None else nullcontext(shared) as opened:
                manifest = describe(run, opened=opened)
                program = run.build(opened)
                for _, module in program.named_sub_modules(Extract):
                    module.load_state(opener.extracting.dump_state())  # of one index, triples have one writer
                    module.set_lm(models.extractor.copy(cache=False) if run.alone else models.extractor)
                with (
                    common.progress(len(benchmark.examples), "question", quiet) as bar,
                    dspy.context(lm=models.of(run)),
                ):
                    moved = partial(_advance, bar)
                    summary = ask_all(
                        program,
                        benchmark.examples,
                        folder,
                        manifest,
                        threads=threads,
                        resume=resume,
                        latency=latency,
                        abstain=abstain,
                        on_row=moved,
                    )
                opened.embed_triples()
                extraction = opened.counts()
            unjudged: list[dict[str, str]] = []
            if models.judge is not None:
                with common.progress(len(benchmark.examples), "verdict", quiet) as bar:
                    moved = partial(_advance, bar)
                    summary, unjudged = judge_run(
                        folder, benchmark.examples, manifest, models.judge, threads=threads, on_row=moved
                    )
            finished.append(
                Finished(run.variant.name, folder, summary, manifest, extraction, run.needs_triples, unjudged)
            )
    return finished


def _advance(bar: Callable[..., None], row: dict[str, Any]) -> None:
    bar()


def _manifest(
    plan: Plan,
    run: Planned,
    *,
    benchmark: Benchmark,
    opened: CorpusIndex,
    models: Models,
    given: bool,
    threads: int,
    latency: bool,
    abstain: bool,
) -> dict[str, Any]:
    """What the numbers of a run depend on; ``given`` says whether the index was named."""
    from cirag_dspy.evaluate.corpus import NONE
    from cirag_dspy.evaluate.manifest import run_manifest
    from cirag_dspy.evaluate.run import LATENCY

    manifest = run_manifest(
        benchmark,
        opened,
        system={"name": run.variant.system, **run.settings, "extract_when": run.when},
        lms={"reader": _describe(models.of(run)), "extraction": _describe(models.extractor)},
        threads=threads,
    )
    if not run.needs_triples and not given:
        manifest["index"]["extractor"] = NONE  # whatever the others need: it is the run that it would be alone
    if latency:
        manifest["latency"] = LATENCY
    if abstain:
        manifest["abstain"] = "guesses score as no answer"
    if models.judge is not None:
        manifest["judge"] = _describe(models.judge)
    if plan.saved:
        manifest["program"] = {"name": plan.saved.name, "sha256": plan.saved.sha256}
        if run.saved is None:
            manifest["program"]["prompts"] = "not the program's: those of the system itself"
    return manifest


class _Opener:
    """Opens the indexes of a plan, and extracts what is to be extracted before the first question."""

    def __init__(
        self,
        plan: Plan,
        benchmark: Benchmark,
        models: Models,
        index: Path | None,
        embedder: str,
        aligner: Path | None,
        threads: int,
        quiet: bool,
    ) -> None:
        self.plan, self.benchmark, self.models = plan, benchmark, models
        self.index, self.embedder, self.aligner = index, embedder, aligner
        self.threads, self.quiet = threads, quiet
        self.extracting: Extract = plan.extractor()

    @contextmanager
    def shared(self) -> Iterator[CorpusIndex]:
        """The index of all runs that have none of their own: with triples if one of them works on triples."""
        from cirag_dspy.evaluate.corpus import NONE, open_corpus

        runs = [run for run in self.plan.runs if run.needs_triples and not run.alone]
        writer = NONE  # systems that need no triples share one index, whatever their LM
        if runs:
            writer = GIVEN if any(run.when == GIVEN for run in runs) else self._writer()
        with common.progress(len(self.benchmark.passages), "passage", self.quiet) as advance:
            opened = open_corpus(
                self.benchmark, path=self.index, embedder=self.embedder, extractor=writer, progress=advance
            )
        with opened:
            common.use_aligner(opened, self.aligner)
            self._extract(opened, writer, runs)
            yield opened

    @contextmanager
    def own(self, run: Planned, folder: RunFolder) -> Iterator[CorpusIndex]:
        """An index of a run's own; one that no question was asked of yet is made anew."""
        import shutil

        from cirag_dspy.evaluate.corpus import own_corpus

        path = folder.path / "index"
        if not folder.rows_file.exists():
            shutil.rmtree(path, ignore_errors=True)
        with common.progress(len(self.benchmark.passages), "passage", self.quiet) as advance:
            opened = own_corpus(self.benchmark, path, embedder=self.embedder, progress=advance)
        with opened:
            common.use_aligner(opened, self.aligner)
            self._extract(opened, self._writer(), [run])
            yield opened

    def _writer(self) -> str:
        from cirag_dspy.artifact import triples_writer

        return triples_writer(self.models.extractor, self.extracting)

    def _extract(self, opened: CorpusIndex, writer: str, runs: Sequence[Planned]) -> None:
        if any(run.settings.get("extract") for run in runs):
            if opened.pending():
                common.extracted_by(opened, writer)
            # What failed in an earlier run is tried again, once; a question would pass it over.
            first = opened.pending() if any(run.when == OFFLINE for run in runs) else opened.failed()
            failures = common.extract_corpus(
                opened, self.extracting, self.models.extractor, first, threads=self.threads, quiet=self.quiet
            )
            common.list_failures(failures, "passages")
        opened.search("warm up", 1)  # loading the embedder is no question's time


def _describe(lm: Any) -> dict[str, Any]:
    """What an answer depends on in an LM; keys and addresses stay out."""
    kept = ("temperature", "max_tokens", "max_completion_tokens", "top_p", "seed")
    return {"model": lm.model, **{key: lm.kwargs[key] for key in kept if lm.kwargs.get(key) is not None}}
