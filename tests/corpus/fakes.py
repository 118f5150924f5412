"""Encoders without a model. Importable from a subprocess that runs in the repository root."""

import os
import re
import signal
import zlib

import numpy as np

from cirag_dspy.corpus.embedder import unit
from cirag_dspy.corpus.ingest import Document
from cirag_dspy.schema import Extraction, Passage, Triple


class FakeEncoder:
    """Sums a fixed random vector per word: texts that share words are near. Remembers what it was given."""

    def __init__(self, name="fake", dimension=32, seed=0, passage_prompt="", query_prompt="", kill_after=None):
        self.name, self.dimension, self.seed = name, dimension, seed
        self.passage_prompt, self.query_prompt = passage_prompt, query_prompt
        self.texts, self.queries, self.calls, self.kill_after = [], [], 0, kill_after
        self._words = {}

    def _word(self, word):
        if word not in self._words:
            seed = zlib.crc32(word.encode()) + self.seed
            self._words[word] = np.random.default_rng(seed).normal(size=self.dimension)
        return self._words[word]

    def _vectors(self, texts):
        rows = [sum((self._word(w) for w in re.findall(r"\w+", t.lower())), np.zeros(self.dimension)) for t in texts]
        return unit(np.array(rows).reshape(len(texts), self.dimension))

    def fingerprint(self):
        return [round(float(x), 4) for x in self._vectors(["a fixed probe"])[0][:16]]

    def encode_passages(self, texts):
        if self.kill_after is not None and self.calls == self.kill_after:
            os.kill(os.getpid(), signal.SIGKILL)
        self.calls += 1
        self.texts += texts
        return self._vectors(texts)

    def encode_query(self, text):
        self.queries.append(text)
        return self._vectors([text])[0]


class TableEncoder(FakeEncoder):
    """Vectors by text from a table, so that scores can be worked out by hand."""

    def __init__(self, table):
        super().__init__(name="table", dimension=2)
        self.table = table

    def _vectors(self, texts):
        return unit(np.array([self.table.get(t, (1.0, 0.0)) for t in texts]).reshape(len(texts), 2))


def passage(text, title="", id=None):
    return Passage.create(title, text, id)


def document(source, *texts, title="", file=None):
    return Document(source, tuple(passage(text, title) for text in texts), file)


def extraction(passage_id, *facts):
    return Extraction("done", tuple(Triple(*fact.split(" | "), passage_id, 0) for fact in facts))


def stream(n, per_document=1):
    """``n`` short passages, made one at a time."""
    for i in range(0, n, per_document):
        texts = [f"Passage {j} tells that town {j} lies on river {j % 97}." for j in range(i, i + per_document)]
        yield document(f"{i}.txt", *texts)
