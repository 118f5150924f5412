"""Multi-hop question answering over your own corpus: CIRAG as a DSPy program.

    import cirag_dspy

    index = cirag_dspy.CorpusIndex.open("my-index")
    program = cirag_dspy.CIRAGModule(index)
    program.set_lm(cirag_dspy.load_lm("embedded"))
    print(program(question="...").answer)

The names below are loaded on first use, so that importing the package is instant.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cirag_dspy.artifact import load, save
    from cirag_dspy.benchmarks import load_benchmark
    from cirag_dspy.corpus.embedder import Embedder
    from cirag_dspy.corpus.index import CorpusIndex
    from cirag_dspy.corpus.ingest import Document, read_corpus
    from cirag_dspy.lms import load_lm
    from cirag_dspy.modules.extract import Extract, extract_missing
    from cirag_dspy.modules.streaming import StepMessages, listeners
    from cirag_dspy.schema import Citation, Hop, Passage, Triple
    from cirag_dspy.systems.cirag import CIRAGModule
    from cirag_dspy.systems.d2f_reag import D2FReAG
    from cirag_dspy.systems.dualrag import DualRAG
    from cirag_dspy.systems.flare import FLARE
    from cirag_dspy.systems.ircot import IRCoT
    from cirag_dspy.systems.kirag import KiRAG
    from cirag_dspy.systems.logicrag import LogicRAG
    from cirag_dspy.systems.metarag import MetaRAG
    from cirag_dspy.systems.native_rag import NativeRAG
    from cirag_dspy.systems.react import ReAct

# DSPy and litellm would fetch a price list at first use: five seconds and a warning when offline.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
# Torch's threads wait for each other by spinning; with anything else on the cores (the embedder beside the LM, another
# run) that makes both several times slower, while not spinning at all costs a third on idle cores. A short spin is
# nearly the best of both. Read once, when torch is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "500")

_WHERE = {
    "CIRAGModule": "cirag_dspy.systems.cirag",
    "Citation": "cirag_dspy.schema",
    "CorpusIndex": "cirag_dspy.corpus.index",
    "D2FReAG": "cirag_dspy.systems.d2f_reag",
    "Document": "cirag_dspy.corpus.ingest",
    "DualRAG": "cirag_dspy.systems.dualrag",
    "Embedder": "cirag_dspy.corpus.embedder",
    "Extract": "cirag_dspy.modules.extract",
    "FLARE": "cirag_dspy.systems.flare",
    "Hop": "cirag_dspy.schema",
    "IRCoT": "cirag_dspy.systems.ircot",
    "KiRAG": "cirag_dspy.systems.kirag",
    "LogicRAG": "cirag_dspy.systems.logicrag",
    "MetaRAG": "cirag_dspy.systems.metarag",
    "NativeRAG": "cirag_dspy.systems.native_rag",
    "Passage": "cirag_dspy.schema",
    "ReAct": "cirag_dspy.systems.react",
    "StepMessages": "cirag_dspy.modules.streaming",
    "Triple": "cirag_dspy.schema",
    "listeners": "cirag_dspy.modules.streaming",
    "extract_missing": "cirag_dspy.modules.extract",
    "load": "cirag_dspy.artifact",
    "load_benchmark": "cirag_dspy.benchmarks",
    "load_lm": "cirag_dspy.lms",
    "read_corpus": "cirag_dspy.corpus.ingest",
    "save": "cirag_dspy.artifact",
}

__all__ = [
    "FLARE",
    "CIRAGModule",
    "Citation",
    "CorpusIndex",
    "D2FReAG",
    "Document",
    "DualRAG",
    "Embedder",
    "Extract",
    "Hop",
    "IRCoT",
    "KiRAG",
    "LogicRAG",
    "MetaRAG",
    "NativeRAG",
    "Passage",
    "ReAct",
    "StepMessages",
    "Triple",
    "extract_missing",
    "listeners",
    "load",
    "load_benchmark",
    "load_lm",
    "read_corpus",
    "save",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'cirag_dspy' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
