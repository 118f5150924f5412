"""Whole compilations by each optimizer, on four questions and scripted LMs."""

import importlib.util
import json
import subprocess
import sys
import threading

import dspy
import dspy.evaluate.evaluate as evaluating
import pytest
from dspy.utils.exceptions import LMAuthError

from cirag_dspy.distill.prompts import OPTIMIZERS, compile_prompts
from cirag_dspy.distill.trajectories import collect
from cirag_dspy.errors import ModelError, RunError
from cirag_dspy.signatures import Integrate
from cirag_dspy.systems.cirag import CIRAGModule
from cirag_dspy.systems.native_rag import NativeRAG
from tests.distill.questions import EXAMPLES, OLDER, WHERE, WHICH, WHO, PlannedLM, build, exact
from tests.fakes import scripted_lm

PROSE = ("observations", "summary", "program_description", "module_description", "proposed_instruction")
OPTIONS = {
    "bootstrap_random_search": {"num_candidate_programs": 2},
    "mipro": {"num_candidates": 3, "num_trials": 6},
    "gepa": {"max_metric_calls": 30},
}
# integrate gets four demonstrations in DSPy's unshuffled set, so its prompt has more than eight messages.
SHOWN_FOUR = 8


def told(messages):
    """Whether a student was given an instruction of the prompt LM, or four demonstrations."""
    return "KEEP" in messages[0]["content"] or len(messages) > SHOWN_FOUR


def prose(messages):
    if "JSON" in messages[-1]["content"]:
        return json.dumps({"new_instruction": "KEEP what matters."})
    return "\n".join(f"[[ ## {name} ## ]]\nKEEP what matters." for name in PROSE)


@pytest.fixture
def program(tmp_path):
    return build(tmp_path)


def compiled_by(name, program, *, able=told, teacher="lm", wrong=(), **given):
    """Compile with a student that is able only if told, taught by one that always is."""
    lm, engine = scripted_lm(PlannedLM(able, wrong), name="scripted/student")
    prompt_lm, _ = scripted_lm(prose, name="scripted/prose")
    if teacher == "lm":
        teacher, _ = scripted_lm(PlannedLM(), name="scripted/teacher")
    arguments = {"trainset": EXAMPLES, "valset": EXAMPLES, "metric": exact, "options": OPTIONS[name]} | given
    compiled, report = compile_prompts(name, program, lm=lm, prompt_lm=prompt_lm, teacher=teacher, **arguments)
    return compiled, report, lm, engine


def state(program):
    return {
        name: (predictor.signature.instructions, [dict(demo) for demo in predictor.demos])
        for name, predictor in program.named_predictors()
    }


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_compile_save_load_and_ask(name, program, tmp_path):
    compiled, report, lm, engine = compiled_by(name, program)
    assert (report["score"], report["baseline"]) == (1.0, 0.0)
    assert report["errors"] == {}
    assert json.loads(json.dumps(report)) == report

    compiled.save(tmp_path / "program.json")
    fresh = CIRAGModule(program.index, k=2, n=4, threads=1)
    fresh.load(tmp_path / "program.json")
    assert state(fresh) == state(compiled)

    def prompts(asked):
        start = len(engine.prompts)
        with dspy.context(lm=lm):
            assert [asked(question=example.question).answer for example in EXAMPLES] == [e.answer for e in EXAMPLES]
        return engine.prompts[start:]

    assert prompts(fresh) == prompts(compiled)
    assert compiled.index is program.index
    assert not any(demos for _, demos in state(program).values())  # the program itself is as it was
    assert program.integration.integrate.signature is Integrate


def test_random_search(program):
    compiled, report, _, _ = compiled_by("bootstrap_random_search", program)
    assert report["optimizer"] == "BootstrapFewShotWithRandomSearch"
    assert (report["threshold"], report["seed"], report["train"], report["val"]) == (1.0, 0, 4, 4)
    assert report["options"]["num_candidate_programs"] == 2 and report["options"]["max_bootstrapped_demos"] == 4
    assert report["demos"] == {
        "construct.extract.triples": 0,
        "integration.integrate": 4,
        "cascade.triples": 4,
        "cascade.sentences": 0,
        "cascade.passages": 0,
        "cascade.default.read": 0,
    }
    assert report["changed"] == []
    assert (report["bootstrapped"], report["dropped"]) == (4, {})
    assert [demo.query for demo in compiled.integration.integrate.demos][1:3] == [
        "Ada Brook was born in",
        "Velden lies on the river",
    ]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_slow_question_is_asked_once(name, program, monkeypatch):
    """DSPy submits the last questions again after 120 seconds; here no executor has a time limit."""
    limits = []

    class Executor(evaluating.ParallelExecutor):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            limits.append(self.timeout)

    monkeypatch.setattr(evaluating, "ParallelExecutor", Executor)
    compiled_by(name, program)
    assert limits and set(limits) == {0}
    assert evaluating.ParallelExecutor is Executor


def test_an_alias_says_what_it_ran(program):
    lm, _ = scripted_lm(PlannedLM())
    _, report = compile_prompts(
        "bootstrap", program, trainset=EXAMPLES, metric=exact, lm=lm, options={"num_candidate_programs": 0}
    )
    assert report["optimizer"] == "BootstrapFewShotWithRandomSearch"
    assert report["val"] is None
    assert report["scores"] == [1.0, 1.0]


def test_mipro_changes_no_instruction_that_was_never_used(program):
    compiled, report, _, engine = compiled_by("mipro", program)
    assert report["optimizer"] == "MIPROv2"
    assert "construct.extract.triples" not in report["changed"]
    assert "integration.integrate" in report["changed"] or report["demos"]["integration.integrate"] == 4
    extract = compiled.construct.extract.triples.signature
    assert extract is program.construct.extract.triples.signature
    assert report["bootstrapped"] == 4
    assert not any("gold_sentences" in str(prompt) for prompt in engine.prompts)


def test_gepa(program):
    compiled, report, _, _ = compiled_by("gepa", program)
    assert report["optimizer"] == "GEPA"
    assert report["changed"] == ["integration.integrate"]
    assert report["proposed"] == {"integration.integrate": 1} and report["failed"] == 0
    assert compiled.integration.integrate.signature.instructions == "KEEP what matters."
    assert "predictor" not in compiled.integration.integrate.signature.fields["history"].json_schema_extra


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_same_seed_gives_the_same_program(name, program):
    first, one, _, _ = compiled_by(name, program, seed=3)
    second, two, _, _ = compiled_by(name, program, seed=3)
    assert state(first) == state(second)
    assert one == two


def test_another_seed_draws_other_demonstrations(program):
    orders = {
        tuple(
            demo.question
            for demo in compiled_by("bootstrap_random_search", program, seed=seed)[0].cascade.triples.demos
        )
        for seed in range(4)
    }
    assert len(orders) > 1


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_nothing_on_stdout(name, tmp_path):
    """Known failure D34, in a process of its own: nothing of DSPy's may come out of file descriptor 1."""
    script = f"""
from pathlib import Path
from tests.distill.questions import build
from tests.distill.test_prompts import compiled_by
compiled_by({name!r}, build(Path({str(tmp_path)!r})), threads=2)
print("the result")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "the result\n"), done.stderr[-2000:]
    assert "Average Metric" in done.stderr
    assert "Traceback" not in done.stderr


def test_quiet_is_quiet(program, capfd):
    compiled_by("bootstrap_random_search", program, quiet=True)
    assert capfd.readouterr() == ("", "")


def test_a_thread_of_its_own_and_nothing_configured(program):
    """Known failure D30: DSPy's settings belong to the thread that configured them."""
    dspy.configure(lm=None)
    results = []

    def work():
        results.append(compiled_by("bootstrap_random_search", program)[1]["score"])

    threads = [threading.Thread(target=work) for _ in range(2)]
    stdout = sys.stdout
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [1.0, 1.0]
    assert sys.stdout is stdout
    assert dspy.settings.lm is None


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_lms_of_single_predictors_are_used_and_come_back(name, program):
    """Optimizers reset programs and with them their LMs: candidates would be scored with the wrong ones."""
    reader, reading = scripted_lm(PlannedLM(), name="scripted/reader")
    program.cascade.set_lm(reader)

    def only_integrates(messages):
        assert "core:" in messages[0]["content"]
        return told(messages)

    lm, engine = scripted_lm(PlannedLM(only_integrates), name="scripted/student")
    prompt_lm, _ = scripted_lm(prose)
    compiled, report = compile_prompts(
        name,
        program,
        trainset=EXAMPLES,
        valset=EXAMPLES,
        metric=exact,
        teacher=None if name == "gepa" else scripted_lm(PlannedLM())[0],
        lm=lm,
        prompt_lm=prompt_lm,
        options=OPTIONS[name],
    )
    assert report["score"] == 1.0
    assert all("core:" in prompt[0]["content"] for prompt in engine.prompts)
    assert reading.prompts
    assert [predictor.lm for predictor in compiled.cascade.predictors()] == [reader] * 4
    assert compiled.integration.integrate.lm is None
    assert program.cascade.triples.lm is reader


def test_a_teacher_may_be_a_program_with_its_lm(program, tmp_path):
    (tmp_path / "teacher").mkdir()
    lm, engine = scripted_lm(PlannedLM(), name="scripted/teacher")
    teacher = CIRAGModule(program.index, k=2, n=4, threads=1)
    teacher.set_lm(lm)
    _, report, _, _ = compiled_by("bootstrap_random_search", program, teacher=teacher)
    assert report["score"] == 1.0
    assert len(engine.prompts) == 11
    assert all(predictor.lm is lm for predictor in teacher.predictors())


def test_a_program_can_teach_itself(program):
    _, report, _, _ = compiled_by("bootstrap_random_search", program, able=lambda messages: True, teacher=None)
    assert (report["bootstrapped"], report["score"]) == (4, 1.0)


def test_trajectories_made_before_are_not_paid_for_again(program, tmp_path):
    """Known failure D13."""
    lm, engine = scripted_lm(PlannedLM(wrong=[WHO]), name="scripted/teacher")
    with dspy.context(lm=lm):
        trajectories = collect(program, EXAMPLES, tmp_path / "traces.jsonl", metric=exact)
    calls = len(engine.prompts)
    _, report, _, _ = compiled_by("bootstrap_random_search", program, teacher=lm, trajectories=trajectories)
    assert len(engine.prompts) == calls == 11
    assert (report["bootstrapped"], report["dropped"]) == (3, {"below threshold": 1})


def test_an_optimized_program_can_be_optimized_further(program):
    once, _, _, _ = compiled_by("gepa", program)
    twice, report, _, _ = compiled_by("bootstrap_random_search", once)
    assert twice.integration.integrate.signature.instructions == "KEEP what matters."
    assert report["baseline"] == 1.0
    again, _, _, _ = compiled_by("bootstrap_random_search", compiled_by("bootstrap_random_search", program)[0])
    assert len(again.integration.integrate.demos) == 4


def test_other_systems(program):
    lm, _ = scripted_lm(lambda messages: "answer: Ada Brook" if len(messages) > 2 else "answer: who knows")
    teacher, _ = scripted_lm(["answer: Ada Brook"] * 4)
    compiled, report = compile_prompts(
        "bootstrap",
        NativeRAG(program.index, k=2),
        trainset=EXAMPLES,
        metric=exact,
        teacher=teacher,
        lm=lm,
        options={"num_candidate_programs": 1},
    )
    assert report["demos"] == {"reader.read": 1}
    assert (report["bootstrapped"], report["dropped"]) == (1, {"below threshold": 3})
    assert compiled.reader.read.demos[0].question == WHO
    assert (report["baseline"], report["score"]) == (0.0, 0.25)


def test_low_scores_are_no_demonstrations(program):
    """Known failure D9."""
    scores = {WHICH: 0.05, WHERE: 0.4, WHO: 0.5, OLDER: 0.9}

    def f1(gold, pred, trace=None):
        return scores[gold.question] if pred.answer == gold.answer else 0.0

    _, report, _, _ = compiled_by("bootstrap_random_search", program, metric=f1, threshold=0.5, able=lambda m: True)
    assert (report["bootstrapped"], report["dropped"]) == (2, {"below threshold": 2})
    assert report["score"] == pytest.approx(1.85 / 4, abs=1e-4)  # candidates are scored by the number itself
    with pytest.raises(RunError, match="threshold must be above 0, or failed runs would be shown, not -1"):
        compiled_by("bootstrap_random_search", program, threshold=-1)


@pytest.mark.parametrize("name", ["bootstrap_random_search", "mipro"])
def test_nothing_bootstrapped_is_an_error(name, program):
    """Known failure D10."""
    with pytest.raises(
        RunError, match=r"^nothing bootstrapped: none of 4 questions reached 1 \(below threshold: 4\); "
    ):
        compiled_by(name, program, metric=lambda gold, pred: False)


def test_labelled_demonstrations_only_where_they_are_complete(program):
    """Known failure D11."""
    options = {"num_candidate_programs": 1, "max_labeled_demos": 4}
    compiled, report, _, _ = compiled_by("bootstrap_random_search", program, options=options)
    assert report["demos"]["cascade.default.read"] == 0
    for _, predictor in compiled.named_predictors():
        assert all(field in demo for demo in predictor.demos for field in predictor.signature.fields)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_questions_that_raise_are_counted(name, program):
    able = PlannedLM(told)

    def reply(messages):
        return ConnectionError("gone") if OLDER in messages[-1]["content"] else able(messages)

    lm, _ = scripted_lm(reply)
    teacher, _ = scripted_lm(PlannedLM())
    prompt_lm, _ = scripted_lm(prose)
    _, report = compile_prompts(
        name,
        program,
        trainset=EXAMPLES,
        valset=EXAMPLES,
        metric=exact,
        teacher=teacher,
        lm=lm,
        prompt_lm=prompt_lm,
        options=OPTIONS[name],
    )
    assert report["score"] == 0.75
    assert list(report["errors"]) == ["LMUnexpectedError"] and report["errors"]["LMUnexpectedError"] >= 2


def test_too_many_failures_end_the_search(program):
    def reply(messages):
        return ConnectionError("gone")

    teacher, _ = scripted_lm(PlannedLM())
    lm, _ = scripted_lm(reply)
    with pytest.raises(
        RunError, match=r"^too many questions failed \(LMUnexpectedError: 2\); set that right, or raise max_e"
    ):
        compile_prompts(
            "bootstrap", program, trainset=EXAMPLES, metric=exact, teacher=teacher, lm=lm, options={"max_errors": 2}
        )


def test_a_metric_that_raises_is_counted(program):
    def metric(gold, pred, trace=None):
        if gold.question == OLDER:
            raise KeyError("gold")
        return exact(gold, pred)

    _, report, _, _ = compiled_by("bootstrap_random_search", program, metric=metric)
    assert report["errors"] == {"metric: KeyError": 4}  # once for each of four candidates
    assert report["dropped"] == {"error: KeyError": 1}
    assert report["score"] == 0.75


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_lm_without_a_key_ends_it_at_once(name, program):
    lm, engine = scripted_lm(lambda messages: LMAuthError("no key"))
    prompt_lm, _ = scripted_lm(prose)
    with pytest.raises(LMAuthError, match="no key"):
        compile_prompts(
            name, program, trainset=EXAMPLES, metric=exact, lm=lm, prompt_lm=prompt_lm, options=OPTIONS[name]
        )
    assert len(engine.prompts) == 1


@pytest.mark.parametrize("name", ["mipro", "gepa"])
def test_annotations_write_no_prose(name, program):
    lm, _ = scripted_lm([], name="annotations/0123456789ab")
    optimizer = {"mipro": "MIPROv2", "gepa": "GEPA"}[name]
    with pytest.raises(RunError) as error:
        compile_prompts(name, program, trainset=EXAMPLES, metric=exact, lm=lm)
    assert str(error.value) == (
        f"{optimizer} has an LM write instructions, which annotations can't; give a prompt_lm that can"
    )


def test_mipro_without_optuna_says_what_to_install(program, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "optuna" else find(name, *rest)
    )
    with pytest.raises(ModelError, match=r"^MIPROv2 needs optuna: pip install 'cirag-dspy\[optimizers\]'$"):
        compiled_by("mipro", program)


def test_a_prompt_lm_that_cannot_be_read_is_an_error(program):
    lm, _ = scripted_lm(PlannedLM())
    prompt_lm, _ = scripted_lm(lambda messages: "", name="scripted/mute")
    with pytest.raises(RunError, match=r"^scripted/mute wrote no instruction that can be read; give another prompt_lm"):
        compile_prompts(
            "mipro", program, trainset=EXAMPLES, metric=exact, lm=lm, prompt_lm=prompt_lm, options=OPTIONS["mipro"]
        )


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("mipro", {"options": {"max_steps": 3}}, "MIPROv2 has no option max_steps; it has "),
        ("bootstrap_random_search", {"trainset": []}, "no examples to compile on"),
        (
            "bootstrap_random_search",
            {"options": {"restrict": [99]}},
            "BootstrapFewShotWithRandomSearch: `restrict` {99} does not match",
        ),
        ("mipro", {"options": {"num_trials": 3}}, "MIPROv2: If auto is None, num_candidates must also be provided."),
        ("mipro", {"options": {"auto": "huge"}}, "MIPROv2: Invalid value for auto: huge."),
        ("gepa", {"options": {"auto": "light", "max_full_evals": 2}}, "GEPA: Exactly one of max_metric_calls, "),
        ("mipro", {"trainset": EXAMPLES[:1], "valset": None}, "MIPROv2: Trainset must have at least 2 examples"),
    ],
)
def test_what_is_asked_for_wrongly_is_one_line(name, given, message, program):
    with pytest.raises(RunError) as error:
        compiled_by(name, program, **given)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
