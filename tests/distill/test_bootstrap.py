"""The teacher's runs, and DSPy's bootstrapping with our choice of demonstrations."""

import threading

import dspy
import pytest
from dspy.utils.exceptions import LMAuthError

from cirag_dspy.distill.bootstrap import BalancedBootstrap, Teacher, _looking_up, attach, lms_of
from cirag_dspy.distill.trajectories import Trajectory
from cirag_dspy.errors import RunError
from tests.distill.questions import DIRECTED, EXAMPLES, OLDER, WHERE, WHICH, WHO, PlannedLM, build, exact
from tests.fakes import scripted_lm

NAMES = [
    "construct.extract.triples",
    "integration.integrate",
    "cascade.triples",
    "cascade.sentences",
    "cascade.passages",
    "cascade.default.read",
]


@pytest.fixture
def program(tmp_path):
    return build(tmp_path)


def taught_by(program, reply, **options):
    lm, engine = scripted_lm(reply)
    program.set_lm(lm)
    return Teacher(program, options.pop("metric", exact), options.pop("threshold", 1.0), **options), engine


def bootstrap(teacher, program, examples, n):
    optimizer = BalancedBootstrap(teacher, metric=exact, max_bootstrapped_demos=n, max_labeled_demos=0)
    return optimizer.compile(program, teacher=program.deepcopy(), trainset=examples)


def test_hops_of_different_questions(program):
    teacher, engine = taught_by(program, PlannedLM())
    compiled = bootstrap(teacher, program, EXAMPLES, 4)
    demos = {name: predictor.demos for name, predictor in compiled.named_predictors()}
    assert [(demo.question, demo.query, demo.next_query) for demo in demos["integration.integrate"]] == [
        (WHERE, WHERE, "Tom Hale was born in"),
        (WHICH, "Ada Brook was born in", "Velden lies on the river"),
        (WHICH, "Velden lies on the river", "none"),
        (WHO, WHO, "none"),
    ]
    assert [demo.question for demo in demos["cascade.triples"]] == [WHICH, WHERE, WHO, OLDER]
    assert {name: len(found) for name, found in demos.items()} == dict.fromkeys(NAMES, 0) | {
        "integration.integrate": 4,
        "cascade.triples": 4,
    }
    assert len(engine.prompts) == 3 + 2 + 1 + 1 + 4  # hops, and one answer a question


def test_a_question_is_run_once_however_many_sets_are_drawn(program):
    """Known failure D13."""
    teacher, engine = taught_by(program, PlannedLM())
    for examples in (EXAMPLES, EXAMPLES[::-1], EXAMPLES[1:]):
        bootstrap(teacher, program, examples, 4)
    assert len(engine.prompts) == 11
    assert teacher.counts() == (4, {})


def test_every_output_field_of_every_demonstration_is_there(tmp_path):
    """Known failure D11, and the extractions of an index that has no triples yet."""
    program = build(tmp_path, extracted=False)
    teacher, _ = taught_by(program, PlannedLM(wrong=[OLDER]))
    compiled = bootstrap(teacher, program, EXAMPLES, 2)
    for _, predictor in compiled.named_predictors():
        for demo in predictor.demos:
            assert all(demo[field] is not None for field in predictor.signature.fields)
    # All five passages are extracted for the first question, so both demonstrations are from there.
    assert len(compiled.construct.extract.triples.demos) == 2
    assert teacher.counts() == (2, {})  # two questions are enough, so the wrong one was never asked


def test_a_low_score_is_no_success(program):
    """Known failures D8 and D9: any positive F1, and the -1 of a failed parse, counted as success."""
    scores = {WHICH: 0.05, WHERE: -1, WHO: 0.5, OLDER: True}
    teacher, _ = taught_by(
        program, PlannedLM(), metric=lambda gold, pred, trace=None: scores[gold.question], threshold=0.5
    )
    compiled = bootstrap(teacher, program, EXAMPLES, 4)
    assert [demo.question for demo in compiled.cascade.triples.demos] == [WHO, OLDER]
    assert teacher.counts() == (2, {"below threshold": 2})


def test_nothing_bootstrapped_is_an_error_with_reasons(program):
    """Known failure D10."""
    lm = PlannedLM(wrong=[WHERE, WHO])

    def reply(messages):
        if OLDER in messages[-1]["content"]:
            return ConnectionError("gone")
        if WHICH in messages[-1]["content"] and "core:" in messages[0]["content"]:
            return "no label at all"
        return lm(messages)

    teacher, _ = taught_by(program, reply)
    with pytest.raises(RunError) as error:
        bootstrap(teacher, program, EXAMPLES, 4)
    assert teacher.counts() == (
        0,
        {"below threshold": 2, "unreadable reply": 1, "error: LMUnexpectedError": 1},
    )
    assert str(error.value) == (
        "nothing bootstrapped: none of 4 questions reached 1 (below threshold: 2, unreadable reply: 1, "
        "error: LMUnexpectedError: 1); take a better teacher, a lower threshold or more questions"
    )


def test_a_second_round_is_hotter_and_fresh(program):
    heats = []

    def reply(messages):
        return PlannedLM(wrong=[WHO] if len(heats) < 1 else [])(messages)

    def metric(gold, pred, trace=None):
        heats.append(pred.answer)
        return exact(gold, pred)

    teacher, _ = taught_by(program, reply, metric=metric, rounds=2)
    cold = program.integration.integrate.lm
    assert not teacher.run(EXAMPLES[2], 0).kept
    assert teacher.run(EXAMPLES[2], 1).kept
    assert heats == ["something else", "Ada Brook"]
    hot = teacher._program_for(EXAMPLES[2], 1).integration.integrate.lm
    assert (hot.kwargs["temperature"], hot.kwargs["rollout_id"]) == (1.0, 1)
    assert program.integration.integrate.lm is cold
    assert teacher.counts() == (1, {})


def test_known_runs_are_not_repeated_and_judged_anew(program):
    known = [
        Trajectory(WHO, WHO, "Ada Brook", 0.6, False, "below threshold", []),
        Trajectory(WHERE, WHERE, "", 0.0, False, "error: LMServerError: 500", []),
    ]
    teacher, engine = taught_by(program, PlannedLM(), threshold=0.5, known=known)
    assert teacher.run(EXAMPLES[2]).kept
    assert not teacher.run(EXAMPLES[1]).kept
    assert engine.prompts == []
    assert teacher.counts() == (1, {"error: LMServerError": 1})


def test_the_teacher_is_not_shown_the_very_question(program):
    own = dspy.Example(question=WHO, evidence=DIRECTED, thought="", answer="Ada Brook")
    other = dspy.Example(question=WHERE, evidence="e", thought="", answer="Mora")
    program.cascade.triples.demos = [own, other]
    teacher, engine = taught_by(program, PlannedLM())
    teacher.run(EXAMPLES[2])
    answering = engine.prompts[-1]
    assert [message["content"] for message in answering[1:3]] == [
        f"question: {WHERE}\nevidence: e",
        "thought:\nanswer: Mora",
    ]
    assert len(answering) == 4
    assert program.cascade.triples.demos == [own, other]


def test_an_lm_that_no_call_can_reach_ends_it(program):
    teacher, _ = taught_by(program, lambda messages: LMAuthError("no key"))
    with pytest.raises(LMAuthError, match="no key"):
        teacher.require_one(EXAMPLES)


def test_lms_can_be_taken_and_given(program):
    lm, _ = scripted_lm([])
    program.construct.extract.triples.lm = lm
    lms = lms_of(program)
    assert lms == dict.fromkeys(NAMES) | {"construct.extract.triples": lm}
    copied = program.reset_copy()
    assert set(lms_of(copied).values()) == {None}
    attach(copied, lms)
    assert copied.construct.extract.triples.lm is lm


def test_a_dspy_that_cannot_be_steered_is_refused():
    with pytest.raises(RunError, match=r"dspy 3\.4.* cannot be steered: .*compile does not use Gone; install dspy 3.4"):
        _looking_up(dspy.BootstrapFewShotWithRandomSearch.compile, Gone=1)
    assert dspy.BootstrapFewShotWithRandomSearch.compile.__globals__.get("Gone") is None


@pytest.mark.parametrize("threads", [1, 3])
def test_questions_are_run_in_threads_and_the_runs_do_not_depend_on_them(program, threads):
    """Two of the questions at a time wait for each other; one by one they would wait for ever."""
    barrier = threading.Barrier(2 if threads > 1 else 1)

    def metric(gold, pred, trace=None):
        if gold.question in (WHO, OLDER):
            barrier.wait(timeout=20)
        return exact(gold, pred)

    teacher, engine = taught_by(program, PlannedLM(wrong=[WHERE]), metric=metric, threads=threads, ahead=4)
    compiled = bootstrap(teacher, program, EXAMPLES, 4)
    assert teacher.counts() == (3, {"below threshold": 1})
    assert [demo.question for demo in compiled.cascade.triples.demos] == [WHICH, WHO, OLDER]
    assert len(engine.prompts) == 11


def test_no_more_is_run_than_one_by_one(program):
    teacher, _ = taught_by(program, PlannedLM(wrong=[WHICH]), threads=8)
    bootstrap(teacher, program, EXAMPLES, 2)
    assert teacher.counts() == (2, {"below threshold": 1})  # the last question was not needed


def test_a_program_is_not_changed_while_others_run_it(program):
    shown = dspy.Example(
        question=WHO, query=WHO, facts="1. a", core="1", thought="t", next_query="none", augmented=True
    )
    program.integration.integrate.demos = [shown]
    seen = []

    def reply(messages):
        seen.append(program.integration.integrate.demos)
        return PlannedLM()(messages)

    teacher, _ = taught_by(program, reply, rounds=2)
    teacher.prepare(EXAMPLES, 4)
    assert all(demos == [shown] for demos in seen) and len(seen) == 11
