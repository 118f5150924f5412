"""What GEPA is told of each kind of call, in the words it is told."""

import dspy
import pytest

from cirag_dspy.distill.feedback import feedback_metric
from cirag_dspy.distill.watch import UNREADABLE
from cirag_dspy.schema import Hop
from cirag_dspy.signatures import AnswerAnyway, AnswerIfSufficient, ExtractTriples, Integrate
from tests.distill.questions import WHICH, exact, example
from tests.systems.world import PASSAGES, TRIPLES

SONG_YEAR, DIRECTED = TRIPLES["Harbor Song"]
LIGHT_YEAR, LIGHT = TRIPLES["Harbor Light"]
BORN = TRIPLES["Ada Brook"][1]
RIVER = TRIPLES["Velden"][1]
QUERY = "Ada Brook was born in"
WRONG = 'The final answer was "x"; the gold answer is "the river Ree"; it scored 0.'


def lookup(ids):
    by_id = {passage.id: passage for passage in PASSAGES.values()}
    return {id: by_id[id] for id in ids if id in by_id}


def told(signature, inputs, outputs, gold=None, pred=None, lookup=lookup, metric=exact):
    judge = feedback_metric(metric, lookup=lookup)
    step = (dspy.Predict(signature), inputs, dspy.Prediction(**outputs))
    pred = pred or dspy.Prediction(answer="x")
    return judge(gold or example(WHICH), pred, [step], "some.predictor", [step]).feedback.splitlines()


def hop(query, titles, candidates, core, next_query):
    return Hop(query, tuple(PASSAGES[title].id for title in titles), tuple(candidates), "", tuple(core), next_query)


def integrated(core, next_query, *, at=0, gold=None, after=("Ada Brook", "Tom Hale"), answer="x", lookup=lookup):
    """Feedback on one hop of a run that went Harbor Song -> Ada Brook -> Velden, its own reply being the given one."""
    shown = [SONG_YEAR, DIRECTED, LIGHT_YEAR, LIGHT]
    hops = [
        hop(WHICH, ["Harbor Song", "Harbor Light"], shown, [DIRECTED], QUERY),
        hop(QUERY, after, [BORN], [BORN], "Velden river"),
        hop("Velden river", ["Velden"], [RIVER], [RIVER], ""),
    ]
    facts = "\n".join(f"{n}. {triple.text}" for n, triple in enumerate(hops[at].candidates, 1))
    inputs = {"history": dspy.History(messages=[]), "question": WHICH, "query": hops[at].query, "facts": facts}
    outputs = {"thought": "", "core": core, "next_query": next_query}
    return told(Integrate, inputs, outputs, gold, dspy.Prediction(answer=answer, hops=hops), lookup)


def test_a_good_hop():
    assert integrated("2", QUERY, answer="the river Ree") == [
        "It kept what the gold evidence holds.",
        'Its next query "Ada Brook was born in" led to the gold passage "Ada Brook".',
        'The final answer was "the river Ree"; it scored 1.',
    ]


def test_facts_left_out_and_facts_off_the_gold():
    assert integrated("1, 4", QUERY) == [
        "It left out facts of the gold evidence: Harbor Song | was directed by | Ada Brook.",
        "It kept facts that are off the gold evidence: Harbor Song | is a film of | 1950; "
        "Harbor Light | was directed by | Tom Hale.",
        'Its next query "Ada Brook was born in" led to the gold passage "Ada Brook".',
        WRONG,
    ]


def test_a_query_that_led_nowhere():
    assert integrated("2", QUERY, after=["Tom Hale"])[1] == (
        'Its next query "Ada Brook was born in" led to no gold passage; missing were "Ada Brook", "Velden".'
    )


def test_stopping_too_early_and_going_on_for_nothing():
    assert integrated("2", "none")[1] == (
        'It asked for nothing more, but facts of "Ada Brook", "Velden" were still missing.'
    )
    assert integrated("1", "Ree", at=2)[1] == (
        'It asked "Ree", but nothing was missing any more: the next query should be none.'
    )
    assert integrated("1", "none", at=2)[1] == "It was right to ask for nothing more."


def test_a_query_that_was_not_searched_for_is_not_judged():
    assert integrated("2", "another query") == ["It kept what the gold evidence holds.", WRONG]


def test_choices_that_are_none_of_the_list():
    assert integrated("7", QUERY)[:2] == [
        "core must name facts of the list of 4, or say none.",
        "It left out facts of the gold evidence: Harbor Song | was directed by | Ada Brook.",
    ]
    assert integrated("the first", QUERY)[0] == "core must name facts of the list of 4, or say none."
    assert integrated("none", QUERY)[0].startswith("It left out")


def test_where_only_passages_are_gold_one_fact_of_each_is_enough():
    gold = dspy.Example(example(WHICH), gold_sentences=[])
    assert integrated("1", QUERY, gold=gold)[0] == "It kept what the gold evidence holds."
    assert integrated("4", QUERY, gold=gold)[0] == (
        "It left out facts of the gold evidence: Harbor Song | is a film of | 1950; Harbor Song | was directed by | "
        "Ada Brook."
    )
    elsewhere = dspy.Example(gold, gold_passages=["p"])
    assert integrated("none", QUERY, gold=elsewhere)[0] == "It was right to keep none of these facts."


def test_without_gold_only_the_answer_is_left():
    gold = dspy.Example(question=WHICH, answer="the river Ree")
    assert integrated("2", QUERY, gold=gold) == [WRONG]
    judged = feedback_metric(lambda gold, pred: 0)(dspy.Example(question=WHICH), dspy.Prediction(answer=""))
    assert judged.feedback == "There was no final answer; it scored 0."


def test_titles_without_an_index_are_ids():
    line = integrated("2", "none", lookup=None)[1]
    assert line == (
        f"It asked for nothing more, but facts of {PASSAGES['Ada Brook'].id}, {PASSAGES['Velden'].id} were still missing."
    )


@pytest.mark.parametrize(
    ("answer", "evidence", "expected"),
    [
        (
            "unanswerable",
            RIVER.text,
            'It refused to answer, although the text it was given holds the answer "the river Ree".',
        ),
        ("unanswerable", BORN.text, "It was right to refuse: the text it was given does not hold the answer."),
        ("the river Ree", RIVER.text, 'Its answer "the river Ree" is right.'),
        (
            "the Rhine",
            RIVER.text,
            'It answered "the Rhine" where the gold answer is "the river Ree", which the text it was given holds.',
        ),
        (
            "the Rhine",
            BORN.text,
            'It answered "the Rhine" where the gold answer is "the river Ree"; the text it was given does not hold it.',
        ),
    ],
)
def test_levels_of_the_cascade(answer, evidence, expected):
    lines = told(AnswerIfSufficient, {"question": WHICH, "evidence": evidence}, {"thought": "", "answer": answer})
    assert lines == [expected, WRONG]


def test_yes_and_no_cannot_be_looked_up_in_a_text():
    gold = dspy.Example(question="q", answer="yes", answers=["yes"])

    def lines(answer):
        return told(AnswerIfSufficient, {"question": "q", "evidence": "yes no"}, {"answer": answer}, gold)[:-1]

    assert lines("unanswerable") == []
    assert lines("no") == ['It answered "no" where the gold answer is "yes".']
    assert lines("yes") == ['Its answer "yes" is right.']


def test_the_forced_answer():
    inputs = {"question": WHICH, "passages": PASSAGES["Velden"].text}
    assert told(AnswerAnyway, inputs, {"answer": "the river Ree"})[0] == 'Its answer "the river Ree" is right.'
    assert (
        told(AnswerAnyway, inputs, {"answer": "unknown"})[0]
        == "It refused, where the most likely answer must be given."
    )


def test_extraction():
    inputs = {"title": "Velden", "passage": PASSAGES["Velden"].text}
    text = "Velden | is a | town\nVelden | lies on the river Ree\nSo much for that | x"
    assert told(ExtractTriples, inputs, {"entities": "", "triples": text}) == [
        "2 of its lines were no triple of the form head | relation | tail, and were dropped: "
        '"Velden | lies on the river Ree"; "So much for that | x".',
        'No triple states what the question needs: "Velden lies on the river Ree.".',
        WRONG,
    ]
    assert told(ExtractTriples, inputs, {"entities": "", "triples": RIVER.text}) == [WRONG]
    assert told(ExtractTriples, inputs, {"entities": "", "triples": "[]"})[0].startswith("No triple states")
    assert told(ExtractTriples, inputs, {"entities": "", "triples": "none"}, lookup=None) == [WRONG]
    assert "No triple could be read." in told(ExtractTriples, inputs, {"entities": "", "triples": "I am sorry"})


def test_a_reply_that_could_not_be_read():
    lines = told(Integrate, {"question": WHICH}, {UNREADABLE: "Sure! Here you go"})
    assert lines[0] == "The reply could not be read. It must have lines that start with thought:, core:, next_query:"


def test_other_signatures_get_the_answer_only():
    assert told("question -> rationale", {"question": "q"}, {"rationale": "r"}) == [WRONG]


def test_scoring_calls_have_no_predictor():
    judged = feedback_metric(lambda gold, pred: 0.25)(example(WHICH), dspy.Prediction(answer="x"))
    assert judged.score == 0.25
    assert judged.feedback == 'The final answer was "x"; the gold answer is "the river Ree"; it scored 0.25.'


def test_the_metric_gets_the_whole_prediction_for_an_inner_answer_too():
    def metric(gold, pred):
        return float(pred.level == "triples" and pred.answer == gold.answer)

    pred = dspy.Prediction(answer="x", level="triples")
    inputs, outputs = {"question": WHICH, "evidence": RIVER.text}, {"thought": "", "answer": "the river Ree"}
    assert (
        told(AnswerIfSufficient, inputs, outputs, pred=pred, metric=metric)[0] == 'Its answer "the river Ree" is right.'
    )
