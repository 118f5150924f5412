"""Every branch of LogicRAG's loop, with the calls, queries, summaries and passages worked out by hand.

The encoder is word overlap and k = 2, so each query's passages can be read off its words.
"""

import dspy
import pytest
from dspy.utils.exceptions import LMError

from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.systems import build_system
from cirag_dspy.systems.logicrag import LogicRAG
from tests.fakes import WordEncoder, scripted_lm
from tests.systems.roles import cited, lines, queries, run
from tests.systems.world import titles

QUESTION = "Which river flows by the birthplace of the director of Harbor Song?"
WHO = "Who directed the film Harbor Song?"
WHERE = "Where was Ada Brook born?"
RIVER = "Which river flows by Velden?"
DIRECTED = "Harbor Song was directed by Ada Brook."
BORN = "The director Ada Brook was born in Velden."
ALL = "Ada Brook was born in Velden, on the river Ree."


def check(sufficient, *missing):
    return "\n".join([f"sufficient: {sufficient}", "missing:", *missing])


def test_a_summary_that_suffices_is_answered_from(index):
    prediction, lm = run(
        LogicRAG(index, k=2),
        WHO,
        RefineSummary=[f"summary: {DIRECTED}"],
        CheckSummary=["sufficient: yes\nmissing: none"],
        AnswerFromNotes=["answer: Ada Brook"],
    )
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Ada Brook", "summary", "sufficient")
    assert prediction.thought == DIRECTED
    assert lm.roles == ["RefineSummary", "CheckSummary", "AnswerFromNotes"]
    assert lm.asked("RefineSummary") == [
        {"question": WHO, "known": "none", "point": WHO, "passages": "\n".join(lines("Harbor Song", "Harbor Light"))}
    ]
    assert lm.asked("CheckSummary") == [{"question": WHO, "summary": DIRECTED}]
    assert lm.asked("AnswerFromNotes") == [{"question": WHO, "notes": DIRECTED}]
    assert queries(prediction) == [WHO]
    assert titles(prediction.passages) == ["Harbor Song", "Harbor Light"]
    assert cited(prediction) == [("Harbor Song", 1)]


def test_subproblems_are_looked_up_in_the_order_of_their_logic(index):
    prediction, lm = run(
        LogicRAG(index, k=2),
        QUESTION,
        RefineSummary=[
            "summary: Harbor Song is a film.",
            f"summary: {DIRECTED}",
            f"summary: {BORN}",
            f"summary: {ALL}",
        ],
        CheckSummary=[check("no", f"1. {RIVER}", f"2. {WHERE}", f"3. {WHO}"), *[check("no", RIVER)] * 2, check("yes")],
        OrderSubproblems=["dependencies:\n1 depends on 2\n2 depends on 3"],
        AnswerFromNotes=["answer: the river Ree"],
    )
    assert (prediction.answer, prediction.level, prediction.stopped) == ("the river Ree", "summary", "sufficient")
    assert queries(prediction) == [QUESTION, WHO, WHERE, RIVER]
    assert lm.roles == [
        "RefineSummary",
        "CheckSummary",
        "OrderSubproblems",
        *["RefineSummary", "CheckSummary"] * 3,
        "AnswerFromNotes",
    ]
    assert lm.asked("OrderSubproblems")[0]["problems"].splitlines() == [f"1. {RIVER}", f"2. {WHERE}", f"3. {WHO}"]
    third = lm.asked("RefineSummary")[2]
    assert (third["known"], third["point"]) == (DIRECTED, WHERE)
    assert third["passages"].splitlines() == lines("Ada Brook", "Tom Hale")
    assert lm.asked("AnswerFromNotes")[0]["notes"] == ALL
    # Those of every search in turn, not those of the last.
    assert titles(prediction.passages) == ["Harbor Song", "Ada Brook", "Velden", "Harbor Light", "Tom Hale"]
    assert cited(prediction) == [("Velden", 1)]


def test_it_stops_early_when_the_summary_suffices(index):
    prediction, lm = run(
        LogicRAG(index, k=2),
        QUESTION,
        RefineSummary=["summary: Harbor Song is a film.", f"summary: {ALL}"],
        CheckSummary=[check("no", WHO, WHERE), check("yes")],
        OrderSubproblems=["dependencies: 2 depends on 1"],
        AnswerFromNotes=["answer: Ree"],
    )
    assert prediction.stopped == "sufficient"
    assert queries(prediction) == [QUESTION, WHO]
    assert lm.roles[-2:] == ["CheckSummary", "AnswerFromNotes"]


def test_it_ends_when_all_subproblems_are_looked_up(index):
    prediction, lm = run(
        LogicRAG(index, k=2),
        QUESTION,
        RefineSummary=["summary: Harbor Song is a film.", f"summary: {DIRECTED}"],
        CheckSummary=[check("no", WHO), check("no", WHERE)],
        AnswerFromNotes=["answer: unsure, Ree"],
    )
    assert (prediction.answer, prediction.stopped) == ("unsure, Ree", "no_query")
    assert "OrderSubproblems" not in lm.roles  # one sub-problem has one order
    assert queries(prediction) == [QUESTION, WHO]


def test_it_ends_at_max_hops(index):
    prediction, lm = run(
        LogicRAG(index, k=2, max_hops=2),
        QUESTION,
        RefineSummary=[f"summary: {DIRECTED}"] * 3,
        CheckSummary=[check("no", WHO, WHERE, RIVER)] * 3,
        OrderSubproblems=["dependencies: none"],
        AnswerFromNotes=["answer: Ree"],
    )
    assert (prediction.answer, prediction.stopped) == ("Ree", "max_hops")
    assert queries(prediction) == [QUESTION, WHO, WHERE]
    assert len(lm.calls) == 3 * 2 + 2


def test_the_question_is_not_its_own_subproblem(index):
    prediction, _ = run(
        LogicRAG(index, k=2),
        QUESTION,
        RefineSummary=[f"summary: {DIRECTED}"],
        CheckSummary=[check("no", QUESTION.lower())],
        AnswerFromNotes=["answer: Ree"],
    )
    assert (prediction.stopped, queries(prediction)) == ("no_query", [QUESTION])


def test_a_circle_of_dependencies_is_opened(index):
    prediction, _ = run(
        LogicRAG(index, k=2),
        QUESTION,
        RefineSummary=[f"summary: {DIRECTED}"] * 3,
        CheckSummary=[check("no", WHERE, WHO), check("no", WHO), check("yes")],
        OrderSubproblems=["dependencies:\n1 depends on 2\n2 depends on 1"],
        AnswerFromNotes=["answer: Ree"],
    )
    assert queries(prediction) == [QUESTION, WHO, WHERE]


def test_an_unreadable_check_is_no_yes(index):
    """The published code would answer at once, as if the summary sufficed."""
    prediction, lm = run(
        LogicRAG(index, k=2),
        QUESTION,
        RefineSummary=[f"summary: {DIRECTED}", f"summary: {BORN}", f"summary: {ALL}"],
        CheckSummary=[check("hard to say", WHO, WHERE)] * 2 + ["chat"] * 2 + [check("yes")],
        OrderSubproblems=["chat"],
        AnswerFromNotes=["answer: Ree"],
    )
    assert prediction.stopped == "sufficient"
    assert queries(prediction) == [QUESTION, WHO, WHERE]
    assert lm.asked("CheckSummary")[1]["problem"] == "sufficient is neither yes nor no"


@pytest.mark.parametrize("reply", ["chat", "sufficient: no", "sufficient: no\nmissing: none"])
def test_a_check_that_names_nothing_ends_the_loop_as_unreadable(index, reply):
    prediction, lm = run(
        LogicRAG(index, k=2),
        QUESTION,
        RefineSummary=[f"summary: {DIRECTED}"],
        CheckSummary=[reply] * 2,
        AnswerFromNotes=["answer: Ree"],
    )
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Ree", "summary", "unreadable")
    assert "problem" in lm.asked("CheckSummary")[1]


@pytest.mark.parametrize("reply", ["summary: none", "summary:", "summary: The passages do not say it."])
def test_a_refinement_without_facts_keeps_the_summary(index, reply):
    _, lm = run(
        LogicRAG(index, k=2),
        QUESTION,
        RefineSummary=[f"summary: {DIRECTED}", reply],
        CheckSummary=[check("no", RIVER)] * 2,
        AnswerFromNotes=["answer: Ree"],
    )
    assert lm.asked("CheckSummary")[1]["summary"] == DIRECTED
    assert lm.asked("AnswerFromNotes")[0]["notes"] == DIRECTED


def test_without_any_summary_the_answer_is_forced_from_the_passages(index):
    prediction, lm = run(
        LogicRAG(index, k=2),
        QUESTION,
        RefineSummary=["summary: none"] * 2,
        CheckSummary=[check("no", RIVER)] * 2,
        AnswerAnyway=["answer: Ree"],
    )
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Ree", "default", "no_query")
    assert lm.asked("AnswerAnyway")[0]["passages"].splitlines() == lines("Harbor Song", "Velden")
    assert cited(prediction) == [("Velden", 1)]


def test_a_refusal_is_no_answer(index):
    prediction, _ = run(
        LogicRAG(index, k=2),
        WHO,
        RefineSummary=[f"summary: {DIRECTED}"],
        CheckSummary=[check("yes")],
        AnswerFromNotes=["answer: unanswerable"],
        AnswerAnyway=["answer: Ada Brook"],
    )
    assert (prediction.answer, prediction.level) == ("Ada Brook", "default")


def test_an_empty_index_calls_no_lm(tmp_path):
    with CorpusIndex.create(tmp_path / "empty", WordEncoder()) as empty:
        prediction, lm = run(LogicRAG(empty), "Anything?")
    assert (prediction.answer, prediction.stopped, prediction.passages) == ("", "nothing_new", [])
    assert prediction.citations == [] and lm.calls == []


def test_an_lm_that_cannot_be_reached_fails_the_question(index):
    lm, _ = scripted_lm(lambda messages: RuntimeError("down"))
    with dspy.context(lm=lm), pytest.raises(LMError):
        LogicRAG(index)(question=QUESTION)


def test_program_is_a_dspy_program(index, tmp_path):
    program = LogicRAG(index)
    assert [name for name, _ in program.named_predictors()] == [
        "refine.refine",
        "check.check",
        "order.order",
        "answer.read",
        "default.read",
    ]
    program.check.check.demos = [dspy.Example(question="q", sufficient="no")]
    program.save(tmp_path / "program.json")
    again = build_system("logicrag", None)
    again.load(tmp_path / "program.json")
    assert [dict(demo) for demo in again.check.check.demos] == [{"question": "q", "sufficient": "no"}]
    assert program.deepcopy().index is index
    lm, _ = scripted_lm([])
    program.set_lm(lm)
    assert all(predictor.lm is lm for predictor in program.predictors())


@pytest.mark.parametrize("knob", ["k", "max_hops"])
def test_knobs_are_checked(index, knob):
    with pytest.raises(ValueError, match=f"{knob} must be at least 1, not 0"):
        LogicRAG(index, **{knob: 0})
