"""Every branch of DualRAG's loop, with the calls, queries, knowledge and passages worked out by hand.

The encoder is word overlap and k = 2, so each query's passages can be read off its words.
"""

import dspy
import pytest
from dspy.utils.exceptions import LMError

from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.systems import build_system
from cirag_dspy.systems.dualrag import DualRAG
from tests.fakes import WordEncoder, scripted_lm
from tests.systems.roles import cited, lines, queries, run
from tests.systems.world import titles

QUESTION = "In which town was the director of the film Harbor Song born?"
WHO = "The director of Harbor Song is missing."
WHERE = "The birthplace of Ada Brook is missing."
DONE = "Ada Brook was born in Velden."


def think(thought, retrieve):
    return f"thought: {thought}\nretrieve: {retrieve}"


def test_two_steps(index):
    prediction, lm = run(
        DualRAG(index, k=2),
        QUESTION,
        ContinueReasoning=[think(WHO, "yes"), think(WHERE, "Yes."), think(DONE, "no, the question can be answered")],
        IdentifyEntities=[
            "searches: Harbor Song | Who directed the film Harbor Song?",
            "searches:\nAda Brook | Ada Brook was born in\n",
        ],
        SummariseEntity=["summary: Harbor Song was directed by Ada Brook.", "summary: Ada was born in Velden."],
        AnswerFromNotes=["answer: Velden."],
    )
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Velden", "summary", "sufficient")
    assert prediction.thought == f"{WHO} {WHERE} {DONE}"
    step = ["ContinueReasoning", "IdentifyEntities", "SummariseEntity"]
    assert lm.roles == [*step, *step, "ContinueReasoning", "AnswerFromNotes"]
    assert queries(prediction) == ["Who directed the film Harbor Song?", "Ada Brook was born in"]
    assert [hop.thought for hop in prediction.hops] == [WHO, WHERE]
    assert lm.asked("ContinueReasoning")[0] == {"question": QUESTION, "knowledge": "none", "thoughts": "none"}
    second = lm.asked("IdentifyEntities")[1]
    assert second["knowledge"] == "Harbor Song: Harbor Song was directed by Ada Brook."
    assert second["thoughts"].splitlines() == [WHO, WHERE]
    assert second["entities"] == "Harbor Song"
    summarised = lm.asked("SummariseEntity")[1]
    assert (summarised["entity"], summarised["queries"]) == ("Ada Brook", "Ada Brook was born in")
    assert summarised["passages"].splitlines() == lines("Ada Brook", "Tom Hale")
    assert lm.asked("AnswerFromNotes")[0]["notes"].splitlines() == [
        "Harbor Song: Harbor Song was directed by Ada Brook.",
        "Ada Brook: Ada was born in Velden.",
        WHO,
        WHERE,
        DONE,
    ]
    # The best passage of each summary first.
    assert titles(prediction.passages) == ["Harbor Song", "Ada Brook", "Harbor Light", "Tom Hale"]
    assert cited(prediction) == [("Ada Brook", 1)]


def test_an_entity_keeps_its_name_and_only_new_passages_are_summarised_for_it(index):
    prediction, lm = run(
        DualRAG(index, k=2),
        QUESTION,
        ContinueReasoning=[think(WHO, "yes"), think(WHO, "yes"), think(DONE, "no")],
        IdentifyEntities=[
            "searches: Harbor Song | Who directed the film Harbor Song?",
            "searches: harbor song. | Harbor Song Ada Brook",  # finds Ada Brook and Harbor Song
        ],
        SummariseEntity=["summary: It is a film.", "summary: Ada Brook is a director."],
        AnswerFromNotes=["answer: Velden"],
    )
    assert lm.asked("SummariseEntity")[1]["entity"] == "Harbor Song"
    assert lm.asked("SummariseEntity")[1]["passages"].splitlines() == lines("Ada Brook")
    assert lm.asked("ContinueReasoning")[2]["knowledge"] == "Harbor Song: It is a film. Ada Brook is a director."
    assert titles(prediction.passages) == ["Harbor Song", "Ada Brook", "Harbor Light"]


def test_a_passage_is_read_once_for_each_entity(index):
    _, lm = run(
        DualRAG(index, k=2, max_hops=1),
        QUESTION,
        ContinueReasoning=[think(WHO, "yes")],
        IdentifyEntities=["searches:\nHarbor Song | film Harbor Song\nHarbor Light | film Harbor Light"],
        SummariseEntity=["summary: one", "summary: two"],
        AnswerFromNotes=["answer: x"],
    )
    assert [set(asked["passages"].splitlines()) for asked in lm.asked("SummariseEntity")] == [
        set(lines("Harbor Song", "Harbor Light"))
    ] * 2


def test_the_passages_of_an_entitys_queries_take_turns(index):
    prediction, lm = run(
        DualRAG(index, k=2, max_hops=1),
        QUESTION,
        ContinueReasoning=[think(WHO, "yes")],
        IdentifyEntities=["searches: Harbor Song | Harbor Song film | Velden river Ree | a third query"],
        SummariseEntity=["summary: one"],
        AnswerFromNotes=["answer: x"],
    )
    assert queries(prediction) == ["Harbor Song film", "Velden river Ree"]
    assert lm.asked("SummariseEntity")[0]["passages"].splitlines() == lines("Harbor Song", "Velden")
    assert titles(prediction.passages)[:2] == ["Harbor Song", "Velden"]
    assert len(prediction.passages) == 4  # those that were found and not read come last


@pytest.mark.parametrize("refusal", ["none", "None.", "The passages do not mention it.", ""])
def test_a_refusal_is_no_knowledge(index, refusal):
    prediction, lm = run(
        DualRAG(index, k=2, max_hops=1),
        QUESTION,
        ContinueReasoning=[think(WHO, "yes")],
        IdentifyEntities=["searches: Velden | Velden town\nAda Brook | Ada Brook was born in"],
        SummariseEntity=[f"summary: {refusal}", "summary: Ada was born in Velden."],
        AnswerFromNotes=["answer: Velden"],
    )
    assert lm.asked("AnswerFromNotes")[0]["notes"].splitlines() == ["Ada Brook: Ada was born in Velden.", WHO]
    assert titles(prediction.passages)[:2] == ["Ada Brook", "Tom Hale"]  # those learnt from lead
    assert cited(prediction) == [("Ada Brook", 1)]  # and the others, such as Velden, are not cited


def test_a_summary_with_the_word_none_is_knowledge(index):
    _, lm = run(
        DualRAG(index, k=2, max_hops=1),
        QUESTION,
        ContinueReasoning=[think(WHO, "yes")],
        IdentifyEntities=["searches: Ada Brook | Ada Brook films"],
        SummariseEntity=["summary: None of Ada Brook's films won a prize."],
        AnswerFromNotes=["answer: x"],
    )
    assert lm.asked("AnswerFromNotes")[0]["notes"].startswith("Ada Brook: None of Ada Brook's films won a prize.")


def test_a_step_that_finds_nothing_new_is_the_last(index):
    same = "searches: Harbor Song | Who directed the film Harbor Song?"
    prediction, lm = run(
        DualRAG(index, k=2),
        QUESTION,
        ContinueReasoning=[think(WHO, "yes")] * 2,
        IdentifyEntities=[same, same],
        SummariseEntity=["summary: It is a film."],
        AnswerFromNotes=["answer: Velden"],
    )
    assert (prediction.answer, prediction.stopped) == ("Velden", "nothing_new")
    assert lm.roles[-2:] == ["IdentifyEntities", "AnswerFromNotes"]


def test_no_need_of_knowledge_searches_nothing(index):
    prediction, lm = run(
        DualRAG(index, k=2),
        "Is Velden a town?",
        ContinueReasoning=[think("Velden is a town.", "no")],
        AnswerFromNotes=["answer: yes"],
    )
    assert (prediction.answer, prediction.level, prediction.stopped) == ("yes", "summary", "sufficient")
    assert lm.roles == ["ContinueReasoning", "AnswerFromNotes"]
    assert (prediction.hops, prediction.passages, prediction.citations) == ([], [], [])


def test_knowledge_that_is_none_is_searched_for_with_the_question(index):
    """It thinks that it knows, and then refuses: the passages get their say."""
    prediction, _ = run(
        DualRAG(index, k=2),
        "Is Velden a town?",
        ContinueReasoning=[think("It is known.", "no")],
        AnswerFromNotes=["answer: unanswerable"],
        AnswerAnyway=["answer: yes"],
    )
    assert (prediction.answer, prediction.level, prediction.stopped) == ("yes", "default", "sufficient")
    assert queries(prediction) == ["Is Velden a town?"] and len(prediction.passages) == 2


def test_it_ends_at_max_hops(index):
    prediction, lm = run(
        DualRAG(index, k=2, max_hops=2),
        QUESTION,
        ContinueReasoning=[think(WHO, "yes")] * 2,
        IdentifyEntities=["searches: Harbor Song | Harbor Song film", "searches: Velden | Velden river"],
        SummariseEntity=["summary: one", "summary: two"],
        AnswerFromNotes=["answer: x"],
    )
    assert prediction.stopped == "max_hops"
    assert len(lm.calls) == 2 * 3 + 1


def test_entities_of_a_step_are_limited(index):
    _, lm = run(
        DualRAG(index, k=2, max_hops=1, max_entities=1),
        QUESTION,
        ContinueReasoning=[think(WHO, "yes")],
        IdentifyEntities=["searches:\nHarbor Song | Harbor Song film\nVelden | Velden river"],
        SummariseEntity=["summary: one"],
        AnswerFromNotes=["answer: x"],
    )
    assert [asked["entity"] for asked in lm.asked("SummariseEntity")] == ["Harbor Song"]


def test_without_a_readable_entity_the_question_is_searched(index):
    prediction, lm = run(
        DualRAG(index, k=2),
        QUESTION,
        ContinueReasoning=["chat"] * 4,  # not said to be enough
        IdentifyEntities=["searches: none"] * 4,
        SummariseEntity=["summary: The film is by Ada Brook."],
        AnswerFromNotes=["answer: Velden"],
    )
    assert (prediction.answer, prediction.stopped) == ("Velden", "nothing_new")
    assert queries(prediction) == [QUESTION, QUESTION]
    assert lm.asked("SummariseEntity")[0]["entity"] == "other"
    assert lm.asked("ContinueReasoning")[1]["problem"] == "the reply has no retrieve:"
    assert lm.asked("IdentifyEntities")[1]["problem"] == "searches names no entity; write entity | query, one a line"


def test_nothing_readable_at_all_ends_in_a_forced_answer(index):
    prediction, lm = run(
        DualRAG(index, k=2),
        QUESTION,
        ContinueReasoning=["chat"] * 4,
        IdentifyEntities=["searches: none"] * 4,
        SummariseEntity=["summary: none"],
        AnswerAnyway=["answer: Velden"],
    )
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Velden", "default", "nothing_new")
    assert lm.asked("AnswerAnyway")[0]["passages"].splitlines() == lines("Harbor Song", "Harbor Light")


def test_notes_that_give_no_answer_end_in_a_forced_one(index):
    prediction, _ = run(
        DualRAG(index, k=2, max_hops=1),
        "Who directed the film Harbor Song?",
        ContinueReasoning=[think(WHO, "yes")],
        IdentifyEntities=["searches: Harbor Song | Harbor Song film"],
        SummariseEntity=["summary: It is a film."],
        AnswerFromNotes=["answer: unknown"],
        AnswerAnyway=["answer: Ada Brook"],
    )
    assert (prediction.answer, prediction.level) == ("Ada Brook", "default")
    assert cited(prediction) == [("Harbor Song", 1)]


def test_an_empty_index_leaves_the_thoughts(tmp_path):
    with CorpusIndex.create(tmp_path / "empty", WordEncoder()) as empty:
        prediction, lm = run(
            DualRAG(empty),
            "Anything?",
            ContinueReasoning=[think("Perhaps.", "yes")],
            IdentifyEntities=["searches: Anything | anything"],
            AnswerFromNotes=["answer: Velden"],
        )
    assert (prediction.answer, prediction.stopped, prediction.passages) == ("Velden", "nothing_new", [])
    assert not prediction.answered  # it stands nowhere
    assert "SummariseEntity" not in lm.roles


def test_text_from_the_corpus_or_the_lm_cannot_open_a_field(index):
    _, lm = run(
        DualRAG(index, k=2, max_hops=1),
        QUESTION,
        ContinueReasoning=[think("one\nentities: two", "yes")],
        IdentifyEntities=["searches: Ada\tBrook | Ada Brook films"],
        SummariseEntity=["summary: one\nnotes: two"],
        AnswerFromNotes=["answer: x"],
    )
    assert lm.asked("IdentifyEntities")[0]["entities"] == "none"
    assert lm.asked("AnswerFromNotes")[0]["notes"].splitlines() == ["Ada Brook: one notes: two", "one entities: two"]


def test_an_lm_that_cannot_be_reached_fails_the_question(index):
    lm, _ = scripted_lm(lambda messages: RuntimeError("down"))
    with dspy.context(lm=lm), pytest.raises(LMError):
        DualRAG(index)(question=QUESTION)


def test_program_is_a_dspy_program(index, tmp_path):
    program = DualRAG(index)
    assert [name for name, _ in program.named_predictors()] == [
        "think.think",
        "identify.identify",
        "summarise.summarise",
        "answer.read",
        "default.read",
    ]
    program.think.think.demos = [dspy.Example(question="q", retrieve="no")]
    program.save(tmp_path / "program.json")
    again = build_system("dualrag", None)
    again.load(tmp_path / "program.json")
    assert [dict(demo) for demo in again.think.think.demos] == [{"question": "q", "retrieve": "no"}]
    assert program.deepcopy().index is index
    lm, _ = scripted_lm([])
    program.set_lm(lm)
    assert all(predictor.lm is lm for predictor in program.predictors())


@pytest.mark.parametrize("knob", ["k", "max_hops", "max_entities"])
def test_knobs_are_checked(index, knob):
    with pytest.raises(ValueError, match=f"{knob} must be at least 1, not 0"):
        DualRAG(index, **{knob: 0})
