"""What GEPA sees of a program with a loop and with three predictors of one signature."""

import json

import dspy
import pytest

from cirag_dspy.distill.prompts import compile_prompts
from cirag_dspy.distill.reflection import CalledInTurn, mark, unmark
from cirag_dspy.distill.watch import UNREADABLE, KeepUnreadable, Watch, unwatched
from cirag_dspy.errors import RunError
from cirag_dspy.signatures import AnswerIfSufficient, Integrate
from tests.distill.questions import EXAMPLES, WHERE, WHICH, WHO, PlannedLM, build, exact
from tests.fakes import scripted_lm


@pytest.fixture
def program(tmp_path):
    return build(tmp_path)


class Reflection:
    """A reflection LM that proposes ``text`` and keeps what it was shown."""

    def __init__(self, text="Think."):
        self.text = text
        self.shown = []

    def __call__(self, messages):
        content = messages[-1]["content"]
        examples = content.split("[[ ## examples_with_feedback ## ]]\n")[1].split("\n\nRespond with")[0]
        self.shown.append(json.loads(examples))
        return json.dumps({"new_instruction": f"{self.text} {len(self.shown)}"})


def reflect(program, reply, reflection, trainset=EXAMPLES, **options):
    lm, _ = scripted_lm(reply)
    prompt_lm, _ = scripted_lm(reflection, name="scripted/prose")
    given = {"max_metric_calls": 40, "use_merge": False, **options}
    return compile_prompts(
        "gepa", program, trainset=trainset, valset=EXAMPLES[:1], metric=exact, lm=lm, prompt_lm=prompt_lm, options=given
    )


def test_marks_tell_predictors_of_one_signature_apart_and_leave_no_trace(program):
    before = mark(program)
    cascade = program.cascade
    assert not cascade.triples.signature.equals(cascade.sentences.signature)
    assert cascade.deepcopy().triples.signature.equals(cascade.triples.signature)
    cascade.triples.signature = cascade.triples.signature.with_instructions("New.")
    unmark(program, before)
    assert cascade.sentences.signature is AnswerIfSufficient
    assert cascade.triples.signature.instructions == "New."
    assert cascade.triples.signature.with_instructions(AnswerIfSufficient.instructions).equals(AnswerIfSufficient)


def test_a_mark_is_in_no_prompt(program):
    def prompt():
        lm, engine = scripted_lm(PlannedLM())
        with dspy.context(lm=lm):
            program(question=WHICH)
        return engine.prompts

    plain = prompt()
    mark(program)
    assert prompt() == plain


class State:
    def __init__(self, names):
        self.list_of_named_predictors = names
        self.named_predictor_id_to_update_next_for_program_candidate = {0: 0}


def test_predictors_that_were_called_have_their_turn(program):
    mark(program)
    names = [name for name, _ in program.named_predictors()]
    state, choose = State(names), CalledInTurn()
    called = [program.integration.integrate, program.cascade.triples, program.cascade.triples]
    runs = [{"trace": [(predictor, {}, {}) for predictor in called]}]
    turns = [choose(state, runs, [0.0], 0, {})[0] for _ in range(3)]
    assert turns == ["integration.integrate", "cascade.triples", "integration.integrate"]
    assert choose(state, [], [0.0], 0, {}) == ["cascade.triples"]  # nothing was called at all: gepa skips the turn


def test_every_predictor_of_the_loop_and_every_level_is_seen(program):
    """Known failure D16: only one predictor was ever improved."""
    lm, reflection = PlannedLM(), Reflection()

    def reply(messages):  # integrates well and never finds an answer sufficient
        fields = messages[-1]["content"]
        return "thought: t\nanswer: unanswerable" if "evidence:" in fields else lm(messages)

    reflect(program, reply, reflection)
    kinds = [sorted(shown[0]["Inputs"]) for shown in reflection.shown]
    assert kinds[:5] == [
        ["Context", "facts", "query", "question"],
        ["evidence", "question"],
        ["evidence", "question"],
        ["evidence", "question"],
        ["passages", "question"],
    ]
    levels = [[example["Inputs"]["evidence"] for example in shown] for shown in reflection.shown[1:4]]
    assert all(" | " in evidence for evidence in levels[0])  # triples only
    assert not any(" | " in evidence for evidence in levels[1] + levels[2])  # sentences, then passages
    assert levels[1] != levels[2]
    assert reflection.shown[1][0]["Feedback"].startswith(
        "It refused to answer, although the text it was given holds the answer"
    )


def test_hops_after_the_first_are_reflected_on_too(program):
    lm, reflection = PlannedLM(wrong=[WHICH]), Reflection()
    reflect(program, lm, reflection, trainset=EXAMPLES[:1], reflection_minibatch_size=1, max_metric_calls=60)
    queries = {
        example["Inputs"]["query"] for shown in reflection.shown for example in shown if "query" in example["Inputs"]
    }
    assert queries > {WHICH} and queries <= {WHICH, "Ada Brook was born in", "Velden lies on the river"}


def test_replies_that_cannot_be_read_are_reflected_on(program):
    reflection = Reflection("Use labels.")
    lm = PlannedLM()

    def reply(messages):
        if "core:" in messages[0]["content"] and "Use labels." not in messages[0]["content"]:
            return "Sure, I can help."
        return lm(messages)

    compiled, report = reflect(program, reply, reflection)
    first = reflection.shown[0][0]
    assert first["Generated Outputs"] == {UNREADABLE: "Sure, I can help."}
    assert first["Feedback"].startswith(
        "The reply could not be read. It must have lines that start with thought:, core:"
    )
    assert report["changed"] == ["integration.integrate"]
    assert (report["baseline"], report["score"]) == (0.0, 1.0)
    assert compiled.integration.integrate.signature.instructions == "Use labels. 1"


def test_a_reflection_lm_that_never_writes_an_instruction_is_an_error(program):
    with pytest.raises(
        RunError, match=r"^scripted/prose wrote no instruction in \d+ tries \(AdapterParseError: .*\); give"
    ):
        reflect(program, PlannedLM(wrong=[WHO, WHERE]), lambda messages: "no JSON here")


def test_nothing_to_improve_asks_no_reflection_lm(program):
    reflection = Reflection()
    compiled, report = reflect(program, PlannedLM(), reflection)
    assert reflection.shown == []
    assert (report["score"], report["baseline"], report["changed"]) == (1.0, 1.0, [])
    assert compiled.integration.integrate.signature is Integrate


def test_unreadable_replies_are_kept_only_where_a_trace_is():
    predict, callback = dspy.Predict("question -> answer: int"), KeepUnreadable()
    lm, _ = scripted_lm(["[[ ## answer ## ]]\n5", "nonsense", "nonsense"])
    adapter = dspy.ChatAdapter(use_json_adapter_fallback=False)
    with dspy.context(lm=lm, adapter=adapter, callbacks=[callback], trace=[]):
        predict(question="q")
        with pytest.raises(dspy.utils.exceptions.AdapterParseError):
            predict(question="r")
        read, unread = dspy.settings.trace
        with dspy.context(trace=None), pytest.raises(dspy.utils.exceptions.AdapterParseError):
            predict(question="s")
    assert read[2].answer == 5
    assert unread[:2] == (predict, {"question": "r"})
    assert dict(unread[2].items()) == {UNREADABLE: "nonsense"}


def test_a_watch_sees_errors_and_calls_of_copies(program):
    watch = Watch(program)

    def reply(messages):
        return ConnectionError("gone") if WHERE in messages[-1]["content"] else PlannedLM()(messages)

    lm, _ = scripted_lm(reply)
    with dspy.context(lm=lm, callbacks=[watch]):
        assert unwatched() == []
        program.deepcopy()(question=WHO)
        with pytest.raises(dspy.utils.exceptions.LMError):
            program.deepcopy()(question=WHERE)
    assert watch.called == {"integration.integrate", "cascade.triples"}
    assert watch.errors == {"LMUnexpectedError": 1}
