"""Every branch of MetaRAG's monitor, critic and plan, with the calls, queries and prompts worked out by hand.

The encoder is word overlap and k = 2: the question finds Harbor Song and Harbor Light.
"""

import dspy
import pytest
from dspy.utils.exceptions import LMError

from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.systems import build_system
from cirag_dspy.systems.metarag import OWN_KNOWLEDGE, PART_BY_PART, PASSAGES_ONLY, STEP_BY_STEP, MetaRAG
from tests.fakes import WordEncoder, scripted_lm
from tests.systems.roles import cited, lines, queries, run
from tests.systems.world import titles

QUESTION = "In which town was the director of the film Harbor Song born?"
FIRST = "reason: Harbor Song is by Ada Brook.\nanswer: Mora"
BETTER = "reason: Ada Brook was born in Velden.\nanswer: Velden"


def recalled(answer, known):
    return [f"answer: {answer}\nknown: {known}"]


def critique(sufficient, feedback="The birthplace of Ada Brook is missing."):
    return f"feedback: {feedback}\nsufficient: {sufficient}"


def test_an_answer_that_agrees_with_the_lms_own_is_accepted_at_once(index):
    prediction, lm = run(
        MetaRAG(index, k=2),
        "Who directed the film Harbor Song?",
        AnswerWithReason=["reason: The passage says so.\nanswer: Ada Brook"],
        AnswerFromMemory=recalled("Brook", "no"),  # F1 of "ada brook" and "brook": 0.67
    )
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Ada Brook", "passages", "agreed")
    assert prediction.thought == "The passage says so."
    assert lm.roles == ["AnswerWithReason", "AnswerFromMemory"]
    (asked,) = lm.asked("AnswerWithReason")
    assert asked["advice"] == "none"
    assert asked["passages"].splitlines() == lines("Harbor Song", "Harbor Light")
    assert "passages" not in lm.asked("AnswerFromMemory")[0]
    assert queries(prediction) == ["Who directed the film Harbor Song?"]
    assert titles(prediction.passages) == ["Harbor Song", "Harbor Light"]
    assert cited(prediction) == [("Harbor Song", 1)]


def test_agreement_has_to_be_above_the_threshold(index):
    prediction, lm = run(
        MetaRAG(index, k=2, accept=0.7),
        "Who directed the film Harbor Song?",
        AnswerWithReason=["answer: Ada Brook"] * 2,
        AnswerFromMemory=recalled("Brook", "no"),
        CritiqueAnswer=[critique("yes")],
    )
    assert (prediction.stopped, lm.roles[-1]) == ("nothing_new", "AnswerWithReason")


def test_two_refusals_do_not_agree(index):
    _, lm = run(
        MetaRAG(index, k=2),
        QUESTION,
        AnswerWithReason=["answer: unknown", BETTER, BETTER],
        AnswerFromMemory=recalled("unknown", "no"),
        CritiqueAnswer=[critique("yes")] * 2,
    )
    assert "CritiqueAnswer" in lm.roles


def test_both_sufficient_reasons_again_step_by_step(index):
    prediction, lm = run(
        MetaRAG(index, k=2),
        QUESTION,
        AnswerWithReason=[FIRST, BETTER, BETTER],
        AnswerFromMemory=recalled("Paris", "yes"),
        CritiqueAnswer=[critique("yes", "Mora is Tom Hale's town."), critique("Yes, they are.", "none")],
    )
    assert (prediction.answer, prediction.stopped) == ("Velden", "nothing_new")
    assert lm.roles == [
        "AnswerWithReason",
        "AnswerFromMemory",
        "CritiqueAnswer",
        "AnswerWithReason",
        "CritiqueAnswer",
        "AnswerWithReason",
    ]
    assert [asked["advice"] for asked in lm.asked("AnswerWithReason")] == [
        "none",
        f"Mora is Tom Hale's town. {STEP_BY_STEP}",
        STEP_BY_STEP,
    ]
    assert lm.asked("CritiqueAnswer")[0]["proposed"] == "Mora"
    assert lm.asked("CritiqueAnswer")[0]["reason"] == "Harbor Song is by Ada Brook."
    assert lm.asked("CritiqueAnswer")[1]["proposed"] == "Velden"
    assert queries(prediction) == [QUESTION]


def test_passages_only_are_relied_on_strictly(index):
    prediction, lm = run(
        MetaRAG(index, k=2),
        QUESTION,
        AnswerWithReason=[FIRST, FIRST],
        AnswerFromMemory=recalled("Paris", "no"),
        CritiqueAnswer=[critique("yes")],
    )
    assert lm.asked("AnswerWithReason")[1]["advice"] == f"The birthplace of Ada Brook is missing. {PASSAGES_ONLY}"
    assert (prediction.stopped, queries(prediction)) == ("nothing_new", [QUESTION])


def test_own_knowledge_only_is_used_and_the_rest_searched_for(index):
    prediction, lm = run(
        MetaRAG(index, k=2),
        QUESTION,
        AnswerWithReason=[FIRST, BETTER],
        AnswerFromMemory=recalled("the town of Velden", "yes"),
        CritiqueAnswer=[critique("The passages are not sufficient.")],
        RewriteQuery=['query: "Ada Brook was born in"'],
    )
    assert (prediction.answer, prediction.stopped) == ("Velden", "agreed")
    assert lm.roles[2:] == ["CritiqueAnswer", "RewriteQuery", "AnswerWithReason"]
    assert lm.asked("RewriteQuery")[0]["feedback"] == "The birthplace of Ada Brook is missing."
    assert queries(prediction) == [QUESTION, "Ada Brook was born in"]
    assert prediction.hops[1].thought == "The birthplace of Ada Brook is missing."
    again = lm.asked("AnswerWithReason")[1]
    assert again["advice"] == f"The birthplace of Ada Brook is missing. {OWN_KNOWLEDGE}"
    # The passages of both searches, in turn.
    assert again["passages"].splitlines() == lines("Harbor Song", "Ada Brook", "Harbor Light", "Tom Hale")
    assert titles(prediction.passages) == ["Harbor Song", "Ada Brook", "Harbor Light", "Tom Hale"]
    assert cited(prediction) == [("Ada Brook", 1)]


def test_neither_searches_for_the_parts_of_the_question(index):
    prediction, lm = run(
        MetaRAG(index, k=2),
        QUESTION,
        AnswerWithReason=[FIRST, BETTER],
        AnswerFromMemory=recalled("Velden", "no, I would have to guess"),
        CritiqueAnswer=[critique("no")],
        SplitQuestion=["queries:\n1. Who directed the film Harbor Song?\n2. Where was Ada Brook born?\n"],
    )
    assert (prediction.answer, prediction.stopped) == ("Velden", "agreed")
    assert lm.roles[2:] == ["CritiqueAnswer", "SplitQuestion", "AnswerWithReason"]
    assert queries(prediction) == [QUESTION, "Who directed the film Harbor Song?", "Where was Ada Brook born?"]
    advice = lm.asked("AnswerWithReason")[1]["advice"]
    assert advice.endswith(f"{PART_BY_PART} Who directed the film Harbor Song? Where was Ada Brook born?")
    assert titles(prediction.passages) == ["Harbor Song", "Ada Brook", "Harbor Light", "Tom Hale"]


def test_new_passages_are_worth_another_round(index):
    """The answer stays, but the passages don't: the critic sees them, and finds a plan for what they tell."""
    prediction, lm = run(
        MetaRAG(index, k=2),
        QUESTION,
        AnswerWithReason=[FIRST, FIRST, BETTER],
        AnswerFromMemory=recalled("Velden", "no"),
        CritiqueAnswer=[critique("no"), critique("yes", "Mora is Tom Hale's town.")],
        SplitQuestion=["queries: Where was Ada Brook born?"],
    )
    assert (prediction.answer, prediction.stopped) == ("Velden", "agreed")
    assert lm.asked("CritiqueAnswer")[1]["passages"].splitlines()[1:2] == lines("Ada Brook")
    assert lm.asked("AnswerWithReason")[2]["advice"] == f"Mora is Tom Hale's town. {PASSAGES_ONLY}"


def test_nothing_is_searched_twice(index):
    prediction, _ = run(
        MetaRAG(index, k=2),
        QUESTION,
        AnswerWithReason=[FIRST, FIRST],
        AnswerFromMemory=recalled("Paris", "yes"),
        CritiqueAnswer=[critique("no")],
        RewriteQuery=[f"query: {QUESTION.lower()}"],
    )
    assert (prediction.stopped, queries(prediction)) == ("nothing_new", [QUESTION])


@pytest.mark.parametrize("again", ["unanswerable", "It cannot be determined.", "Velden " * 11])
def test_a_refusal_or_a_long_text_does_not_replace_the_answer(index, again):
    prediction, _ = run(
        MetaRAG(index, k=2),
        QUESTION,
        AnswerWithReason=[FIRST, f"answer: {again}"],
        AnswerFromMemory=recalled("Paris", "no"),
        CritiqueAnswer=[critique("yes")],
    )
    assert (prediction.answer, prediction.thought) == ("Mora", "Harbor Song is by Ada Brook.")
    assert prediction.stopped == "nothing_new"


def test_ten_words_are_an_answer(index):
    prediction, _ = run(
        MetaRAG(index, k=2, max_hops=1),
        QUESTION,
        AnswerWithReason=[FIRST, "answer: one two three four five six seven eight nine ten"],
        AnswerFromMemory=recalled("Paris", "no"),
        CritiqueAnswer=[critique("yes")],
    )
    assert prediction.answer == "one two three four five six seven eight nine ten"


def test_it_ends_at_max_hops(index):
    """An answer that changes forever: two rounds, then it stands."""
    prediction, lm = run(
        MetaRAG(index, k=2, max_hops=2),
        QUESTION,
        AnswerWithReason=["answer: one", "answer: two", "answer: three"],
        AnswerFromMemory=recalled("Paris", "no"),
        CritiqueAnswer=[critique("yes")] * 2,
    )
    assert (prediction.answer, prediction.stopped) == ("three", "max_hops")
    assert len(lm.calls) == 2 + 2 * 2


def test_an_answer_that_agrees_after_the_last_round_is_accepted(index):
    prediction, _ = run(
        MetaRAG(index, k=2, max_hops=1),
        QUESTION,
        AnswerWithReason=[FIRST, BETTER],
        AnswerFromMemory=recalled("Velden", "no"),
        CritiqueAnswer=[critique("yes")],
    )
    assert (prediction.answer, prediction.stopped) == ("Velden", "agreed")


def test_unreadable_verdicts_count_as_no(index):
    """Neither knowledge counts as sufficient, so the question is split; each useless reply is asked for once more."""
    prediction, lm = run(
        MetaRAG(index, k=2),
        QUESTION,
        AnswerWithReason=[FIRST, BETTER],
        AnswerFromMemory=["answer: Velden\nknown: perhaps"] * 2,
        CritiqueAnswer=["chat"] * 2,
        SplitQuestion=["queries: Where was Ada Brook born?"],
    )
    assert (prediction.answer, prediction.stopped) == ("Velden", "agreed")
    assert queries(prediction) == [QUESTION, "Where was Ada Brook born?"]
    assert lm.asked("CritiqueAnswer")[1]["problem"] == "the reply has no sufficient:"
    assert lm.asked("AnswerFromMemory")[1]["problem"] == "known is neither yes nor no"


def test_nothing_readable_at_all_ends_in_a_forced_answer(index):
    prediction, lm = run(
        MetaRAG(index, k=2),
        QUESTION,
        AnswerWithReason=["chat"] * 4,
        AnswerFromMemory=["chat"] * 2,
        CritiqueAnswer=["chat"] * 2,
        SplitQuestion=["queries: none"] * 2,
        AnswerAnyway=["answer: Velden"],
    )
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Velden", "default", "nothing_new")
    assert prediction.thought == ""
    assert lm.asked("AnswerAnyway")[0]["passages"].splitlines() == lines("Harbor Song", "Harbor Light")


def test_an_empty_index_calls_no_lm(tmp_path):
    with CorpusIndex.create(tmp_path / "empty", WordEncoder()) as empty:
        prediction, lm = run(MetaRAG(empty), "Anything?")
    assert (prediction.answer, prediction.stopped, prediction.passages) == ("", "nothing_new", [])
    assert prediction.citations == [] and lm.calls == []


def test_an_lm_that_cannot_be_reached_fails_the_question(index):
    lm, _ = scripted_lm(lambda messages: RuntimeError("down"))
    with dspy.context(lm=lm), pytest.raises(LMError):
        MetaRAG(index)(question=QUESTION)


def test_program_is_a_dspy_program(index, tmp_path):
    program = MetaRAG(index)
    assert [name for name, _ in program.named_predictors()] == [
        "explain.explain",
        "recall.recall",
        "critic.critique",
        "rewrite.rewrite",
        "split.split",
        "default.read",
    ]
    program.critic.critique.demos = [dspy.Example(question="q", sufficient="no")]
    program.save(tmp_path / "program.json")
    again = build_system("metarag", None)
    again.load(tmp_path / "program.json")
    assert [dict(demo) for demo in again.critic.critique.demos] == [{"question": "q", "sufficient": "no"}]
    assert program.deepcopy().index is index
    lm, _ = scripted_lm([])
    program.set_lm(lm)
    assert all(predictor.lm is lm for predictor in program.predictors())


@pytest.mark.parametrize(
    ("knobs", "problem"),
    [
        ({"k": 0}, "k must be at least 1, not 0"),
        ({"max_hops": 0}, "max_hops must be at least 1, not 0"),
        ({"accept": 1.5}, "accept must be from 0 to 1, not 1.5"),
    ],
)
def test_knobs_are_checked(index, knobs, problem):
    with pytest.raises(ValueError, match=problem):
        MetaRAG(index, **knobs)
