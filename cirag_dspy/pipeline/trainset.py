"""A recipe's ``[[data]]`` entry, opened: questions, corpus, the LMs that teach, and the index they work on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import dspy

from cirag_dspy.benchmarks import Benchmark, load_benchmark
from cirag_dspy.benchmarks.demo import demo_triples
from cirag_dspy.benchmarks.draw import permuted
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.distill.silver import Extracted
from cirag_dspy.errors import DataError, RunError
from cirag_dspy.evaluate.corpus import NONE, open_corpus
from cirag_dspy.evaluate.metrics import answer_metric, f1_metric
from cirag_dspy.lms import base_folder, is_local, load_lm, split_spec
from cirag_dspy.lms.weights import model_folder
from cirag_dspy.modules.extract import Extract, extract_missing
from cirag_dspy.recipe import Recipe, RecipeData, system_of
from cirag_dspy.schema import Triple
from cirag_dspy.systems import settings_of

ANNOTATIONS = "annotations"

Move = Callable[..., None]
Progress = Callable[[int | None, str], AbstractContextManager[Move]]
OpenLM = Callable[..., dspy.LM]


@dataclass
class TrainingSet:
    """Questions of one data set and what answering them takes. Everything is opened when it is first needed.

    Args:
        recipe: The recipe.
        data: Its entry.
        name: Of the entry in file names: the data set, numbered where it comes twice.
        data_dir: Folder of the official files; default: the hub.
        silver: Triples that were read from the recipe's files, for the passages that the corpus shares with them.
        open_lm: Makes an LM from a string.
    """

    recipe: Recipe
    data: RecipeData
    name: str
    data_dir: Path | None
    silver: Sequence[Extracted]
    open_lm: OpenLM
    cut_passages: int = field(default=0, init=False)

    @cached_property
    def benchmark(self) -> Benchmark:
        """The chosen questions and their corpus."""
        data = self.data
        whole = load_benchmark(data.dataset, data.split, data_dir=self.data_dir)
        count = len(whole.examples)
        if data.limit is None and not data.skip and not data.val:
            return whole
        order = list(range(count)) if data.first else permuted(count, self.recipe.seed)
        places = order[data.skip : None if data.limit is None else data.skip + data.limit]
        if not places:
            raise DataError(f"{data.dataset} {data.split} has no questions after {data.skip} of its {count}")
        ids = [whole.examples[place].id for place in places]
        chosen = load_benchmark(data.dataset, data.split, data_dir=self.data_dir, ids=ids)
        by_id = {example.id: example for example in chosen.examples}
        chosen = replace(chosen, examples=[by_id[id] for id in ids])  # so that the held-back ones are a sample, too
        kind = {"kind": "first"} if data.first else {"kind": "random", "seed": self.recipe.seed}
        chosen.notes["draw"] = {**kind, "n": len(places), "of": count, "skip": data.skip}
        if data.val >= len(chosen.examples):
            raise DataError(
                f"val={data.val} leaves none of {len(chosen.examples)} {data.dataset} questions to train on"
            )
        return chosen

    def check(self) -> None:
        """Raise what working on it would fail with, before anything is called.

        Raises:
            DataError: There are no questions, no passages, or no answers.
            ModelError: A local LM can't be had.
            RunError: The string of an LM means nothing.
        """
        benchmark = self.benchmark
        if not any(passage.text for passage in benchmark.passages):
            raise DataError(
                f"{self.data.dataset} {self.data.split} has no passages to retrieve from ({benchmark.source}): give "
                "a data set whose questions come with paragraphs"
            )
        if not any(example.get("answer") for example in self.train):
            raise DataError(f"{self.data.dataset} {self.data.split} has no answers to learn from ({benchmark.source})")
        lms = self.recipe.lm
        for spec in {lms.teacher, self.extraction if self.calls else "", lms.prompt} - {"", ANNOTATIONS}:
            base, adapter = split_spec(spec)
            if is_local(spec):
                base_folder(base)
                if adapter:
                    model_folder(adapter, adapter=True)
            elif "/" not in spec:
                raise RunError(f"{spec} is no LM: write PROVIDER/MODEL, embedded, local/MODEL or annotations")

    @property
    def train(self) -> list[dspy.Example]:
        """The questions to train on."""
        return self.benchmark.examples[: len(self.benchmark.examples) - self.data.val]

    @property
    def val(self) -> list[dspy.Example]:
        """The questions that are held back."""
        return self.benchmark.examples[len(self.train) :]

    def metric(self, name: str, threshold: float) -> Callable[..., float | bool]:
        """The official ``em`` or ``f1`` of the data set."""
        return f1_metric(self.data.dataset, threshold) if name == "f1" else answer_metric(self.data.dataset)

    def lm(self, spec: str) -> dspy.LM:
        """The LM of a string; ``annotations`` answers from this trainset's gold."""
        if spec == ANNOTATIONS:
            known: dict[str, Sequence[Triple]] = {passage.id: triples for passage, triples in self.silver}
            if self.data.dataset == "demo":
                known.update(demo_triples())
            corpus = self.benchmark.passages
            triples = {passage.id: known[passage.id] for passage in corpus if passage.id in known}
            return load_lm(ANNOTATIONS, examples=self.benchmark.examples, passages=corpus, triples=triples)
        lms = self.recipe.lm
        return self.open_lm(spec, max_tokens=lms.max_tokens, **{"api_base": lms.api_base} if lms.api_base else {})

    @property
    def calls(self) -> str:
        """How the systems extract triples, in ``one`` call or ``two``; empty where none needs any."""
        for system, settings in self.recipe.systems.items():
            if calls := settings_of(system_of(system), **settings).get("extract"):
                return str(calls)
        return ""

    @property
    def extraction(self) -> str:
        """The LM that writes the corpus' triples."""
        return self.data.extraction or self.recipe.extraction

    @contextmanager
    def index(self, threads: int, progress: Progress) -> Iterator[tuple[CorpusIndex, int]]:
        """The corpus' index with the triples of all passages, and of how many the extraction failed."""
        writer = self.lm(self.extraction) if self.calls else None
        with progress(len(self.benchmark.passages), "passage") as move:
            index = open_corpus(
                self.benchmark,
                embedder=self.recipe.embedder,
                extractor=f"{writer.model} ({self.calls})" if writer else NONE,
                progress=move,
            )
        with index:
            if writer:
                todo = index.pending()
                with progress(len(todo), "passage") as move, dspy.context(lm=writer):
                    extract_missing(
                        index,
                        Extract(self.calls),  # type: ignore[arg-type]
                        todo,
                        threads=threads,
                        retry_failed=True,
                        on_done=lambda passage, extraction: move(),
                    )
                index.embed_triples()
            counts = index.counts()
            self.cut_passages = counts["cut"]
            yield index, counts["failed"] + (counts["pending"] if writer else 0)

    def extracted(self, index: CorpusIndex) -> list[Extracted]:
        """As many passages as the recipe trains on, with the triples extracted from them; those of the gold first."""
        gold = [id for example in self.train for id in example.gold_passages]
        ids = list(dict.fromkeys([*gold, *(passage.id for passage in self.benchmark.passages)]))
        useless = index.errors(ids)  # empty for want of a usable reply: nothing to learn from
        states = index.states(ids).items()
        done = [id for id, state in states if state in ("done", "empty") and id not in useless][: self.data.triples]
        triples = index.triples(done)
        return [(passage, triples.get(id, ())) for id, passage in index.passages(done).items()]
