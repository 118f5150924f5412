"""What the numbers of a run depend on, written beside them."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from cirag_dspy.benchmarks.base import Benchmark
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.evaluate.metrics import RULES

PACKAGES = ("cirag-dspy", "dspy", "torch", "transformers", "sentence-transformers", "faiss-cpu", "peft", "datasets")


def run_manifest(
    benchmark: Benchmark, index: CorpusIndex, *, system: Mapping[str, Any], lms: Mapping[str, Any], threads: int
) -> dict[str, Any]:
    """Data, corpus, index, system, models and versions of a run, with their hashes. Keys never get here."""
    return {
        "dataset": dataset_manifest(benchmark),
        "corpus": {"passages": len(benchmark.passages), "sha256": benchmark.corpus_hash},
        "index": {
            "sha256": index.corpus_hash,
            "extractor": index.extractor,
            "embedder": index.embedder_state,
            **({"ranker": index.ranker_state} if index.ranker_state else {}),
        },
        "system": {key: list(value) if isinstance(value, tuple) else value for key, value in system.items()},
        "lms": dict(lms),
        "metrics": dict(RULES),
        "threads": threads,
        "versions": versions(),
        "machine": machine(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def dataset_manifest(benchmark: Benchmark) -> dict[str, Any]:
    """Which questions of which file."""
    return {
        "name": benchmark.name,
        "split": benchmark.split,
        "source": benchmark.source,
        "n": len(benchmark.examples),
        "ids_sha256": benchmark.ids_sha256,
        "draw": benchmark.notes.get("draw"),
        "notes": {name: note for name, note in benchmark.notes.items() if name != "draw"},
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that can change a result."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def machine() -> dict[str, Any]:
    """The processor, as far as the system tells."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
            name = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), name)
    except OSError:
        pass
    return {"processor": name, "cores": os.cpu_count(), "system": platform.system()}
