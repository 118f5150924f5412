"""Benchmarks: questions with gold annotations and the corpus they are asked of."""

from cirag_dspy.benchmarks.base import Benchmark
from cirag_dspy.benchmarks.load import DATASETS, load_benchmark

__all__ = ["DATASETS", "Benchmark", "load_benchmark"]
