import dspy

from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import Document
from cirag_dspy.systems.native_rag import NativeRAG
from tests.fakes import WordEncoder, fields_of, scripted_lm
from tests.systems.world import PASSAGES


def test_one_search_one_call(tmp_path):
    with CorpusIndex.create(tmp_path / "index", WordEncoder()) as index:
        index.add(Document(passage.id, (passage,)) for passage in PASSAGES.values())
        lm, engine = scripted_lm(["answer: The answer is Ada Brook."])
        with dspy.context(lm=lm):
            prediction = NativeRAG(index, k=2)(question="Who directed the film Harbor Song?")
    assert prediction.answer == "Ada Brook"
    assert prediction.level == "passages"
    assert prediction.passages == [PASSAGES["Harbor Song"].id, PASSAGES["Harbor Light"].id]
    assert [(citation.title, citation.sentence) for citation in prediction.citations] == [("Harbor Song", 1)]
    assert fields_of(engine.prompts[0][-1]["content"])["passages"].splitlines() == [
        "Harbor Song: Harbor Song is a film of 1950. The film Harbor Song was directed by Ada Brook.",
        "Harbor Light: Harbor Light is a film of 1961. The film Harbor Light was directed by Tom Hale.",
    ]


def test_an_empty_index_calls_no_lm(tmp_path):
    with CorpusIndex.create(tmp_path / "index", WordEncoder()) as index:
        lm, engine = scripted_lm([])
        with dspy.context(lm=lm):
            assert NativeRAG(index)(question="Anything?").answer == ""
    assert engine.prompts == []
