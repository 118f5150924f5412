"""Plain RAG: retrieve once, read once. The baseline that every other system has to beat."""

from __future__ import annotations

import dspy

from cirag_dspy.modules.reader import NO_ANSWER, Reader, cite_answer
from cirag_dspy.modules.search import SearchIndex
from cirag_dspy.modules.streaming import tell
from cirag_dspy.schema import Hop
from cirag_dspy.systems.base import System
from cirag_dspy.systems.limits import require_at_least
from cirag_dspy.text import one_line


class NativeRAG(System):
    """Reads the answer from the top passages of the question.

    Args:
        index: What is searched.
        k: Passages retrieved and read. CIRAG's paper gives its plain RAG as many as each of CIRAG's searches, 10.
    """

    def __init__(self, index: SearchIndex, *, k: int = 10) -> None:
        super().__init__()
        require_at_least(1, k=k)
        self.index = index
        self.k = k
        self.reader = Reader()

    def forward(self, question: str) -> dspy.Prediction:
        """A prediction with ``answer``, ``answered`` (whether it stands in a passage), ``level`` (always ``passages``),
        ``citations`` (sentences with the answer), ``passages`` (ids, best first) and ``hops`` (one).
        """
        question = one_line(question)
        tell("hop", query=question)
        passages = [hit.passage for hit in self.index.search(question, self.k)]
        read = self.reader(question=question, passages=passages) if passages else NO_ANSWER
        ids = tuple(passage.id for passage in passages)
        return dspy.Prediction(
            answer=read.answer,
            answered=read.answered,
            level="passages",
            citations=cite_answer(read.answer, passages),
            passages=list(ids),
            hops=[Hop(question, ids, (), "", (), "")],
        )
