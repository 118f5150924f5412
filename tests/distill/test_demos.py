"""Which calls are shown, worked out by hand."""

import random

import dspy
import pytest

from cirag_dspy.adapter import LineAdapter
from cirag_dspy.distill.demos import Step, balanced, demonstration, labelled, steps
from cirag_dspy.distill.trajectories import Call
from cirag_dspy.signatures import AnswerIfSufficient, ExtractTriples, Integrate

NAME = "integration.integrate"
SIGNATURES = {NAME: Integrate, "cascade.triples": AnswerIfSufficient, "construct.extract.triples": ExtractTriples}
QUESTION = dspy.Example(question="Who?", answer="Ada").with_inputs("question")


def hops(question, n):
    """The steps of a question with ``n`` hops: all but the last go on."""
    return [Step(NAME, hop, hop < n, dspy.Example(of=f"{question}{hop}")) for hop in range(1, n + 1)]


def shown(questions, n):
    return [demo.of for demo in balanced(questions, n)]


def test_hops_come_in_turn_from_different_questions():
    """Known failure D12: two questions of three hops each gave two demonstrations of hops left to chance."""
    assert shown([hops("a", 3), hops("b", 3)], 2) == ["b1", "a2"]
    assert shown([hops("a", 3), hops("b", 3), hops("c", 3)], 3) == ["c1", "b2", "a3"]


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (1, ["a1"]),
        # Hop 2 chooses first: a2, which goes on. Of hop 1 then c1, the only one that stops.
        (2, ["c1", "a2"]),
        # Hop 3: a3, which stops. Hop 2: a2 goes on (b2 would stop again). Hop 1: of either decision one is shown, so
        # the first question that is not: b.
        (3, ["b1", "a2", "a3"]),
        # Now two go on and one stops: c1.
        (4, ["b1", "a2", "a3", "c1"]),
        (5, ["b1", "a2", "a3", "c1", "b2"]),
        (9, ["b1", "a2", "a3", "c1", "b2", "a1"]),
    ],
)
def test_decisions_to_go_on_and_to_stop_are_both_shown(n, expected):
    assert shown([hops("a", 3), hops("b", 2), hops("c", 1)], n) == expected


def test_no_steps_no_demonstrations():
    assert balanced([], 4) == []
    assert balanced([[], []], 4) == []


def test_refusals_and_answers_are_both_shown():
    step = [
        Step("cascade.triples", 1, refused, dspy.Example(of=of))
        for of, refused in zip("abcd", (0, 0, 0, 1), strict=True)
    ]
    assert shown([[s] for s in step], 2) == ["a", "d"]


def integrate(query, next_query, core="1"):
    inputs = {"question": "Who?", "query": query, "facts": "1. a | b | c"}
    return Call(NAME, inputs, {"thought": "t", "core": core, "next_query": next_query})


def test_hops_are_counted_by_predictor():
    calls = [
        integrate("Who?", "more"),
        integrate("more", "none"),
        Call("cascade.triples", {"question": "Who?", "evidence": "e"}, {"thought": "", "answer": "unanswerable"}),
        Call("cascade.triples", {"question": "Who?", "evidence": "e"}, {"thought": "", "answer": "Ada"}),
    ]
    assert [(step.predictor, step.hop, step.goes_on) for step in steps(calls, QUESTION, SIGNATURES)] == [
        (NAME, 1, True),
        (NAME, 2, False),
        ("cascade.triples", 1, True),
        ("cascade.triples", 2, False),
    ]


def test_extractions_are_no_hops_and_in_no_order_of_threads():
    def extract(title):
        inputs = {"title": title, "passage": "text"}
        return Call("construct.extract.triples", inputs, {"entities": "", "triples": f"{title} | is | x"})

    one = steps([extract("A"), extract("B"), extract("C")], QUESTION, SIGNATURES)
    other = steps([extract("C"), extract("A"), extract("B")], QUESTION, SIGNATURES)
    assert [step.demo.title for step in one] == [step.demo.title for step in other]
    assert {step.hop for step in one} == {0}


def test_a_demonstration_of_a_later_hop_is_its_own_turn():
    turn = {"question": "Who?", "query": "Who?", "facts": "1. x | y | z", "thought": "", "core": "1", "next_query": "q"}
    inputs = {"question": "Who?", "query": "q", "facts": "1. a | b | c"}
    call = Call(NAME, inputs, {"thought": "t", "core": "1", "next_query": "none"}, [turn])
    demo = demonstration(call, Integrate)
    assert dict(demo) == {"augmented": True, "history": {"messages": []}, **inputs, **call.outputs}
    messages = LineAdapter().format_demos(Integrate, [demo])
    assert messages == [
        {"role": "user", "content": "question: Who?\nquery: q\nfacts: 1. a | b | c"},
        {"role": "assistant", "content": "thought: t\ncore: 1\nnext_query: none"},
    ]


@pytest.mark.parametrize(
    ("call", "signature"),
    [
        (integrate("q", "none", core=""), Integrate),
        (Call(NAME, {"question": "Who?", "query": "q"}, {"thought": "", "core": "1", "next_query": ""}), Integrate),
        (Call(NAME, {"question": "Who?", "query": "q", "facts": "f"}, {"core": "1", "next_query": ""}), Integrate),
        (Call("x", {"title": "T", "passage": "p"}, {"entities": "", "triples": "I cannot help"}), ExtractTriples),
        (Call("x", {"title": "T", "passage": "p"}, {"entities": "", "triples": "none"}), ExtractTriples),
    ],
    ids=["empty core", "no facts", "no thought", "no triple", "no fact in the passage"],
)
def test_what_is_incomplete_is_not_shown(call, signature):
    assert demonstration(call, signature) is None
    assert steps([call], QUESTION, {call.predictor: signature}) == []


def test_fields_that_the_signature_lacks_are_left_out():
    call = integrate("q", "none")
    call.inputs["problem"] = "the reply has no core:"
    assert "problem" not in demonstration(call, Integrate)


def test_labelled_demonstrations_have_every_field():
    """Known failure D11: predictors within a program were shown training questions without their fields."""
    predictor = dspy.Predict(AnswerIfSufficient)
    whole = dspy.Example(question="q", evidence="e", thought="t", answer="a")
    examples = [QUESTION, whole]
    assert labelled(predictor, examples, 4, random.Random(0)) == [whole]
    assert labelled(predictor, examples, 0, random.Random(0)) == []
    assert len(labelled(dspy.Predict("question -> answer"), examples, 4, random.Random(0))) == 2
    assert labelled(predictor, examples, -1, random.Random(0)) == []
