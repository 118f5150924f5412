"""TrajectoryDistillation end to end on a tiny random model: what is trained, what the compiled program is."""

from dataclasses import replace

import dspy
import pytest

from cirag_dspy.distill.lora import LoraSettings
from cirag_dspy.distill.optimizer import TrajectoryDistillation
from cirag_dspy.distill.shorten import short_prompts
from cirag_dspy.errors import ModelError, RunError
from cirag_dspy.lms import load_lm
from tests.distill.test_trajectories import exact, example, index, teacher  # noqa: F401
from tests.students import tiny_base
from tests.systems.world import PASSAGES, TRIPLES

QUICK = LoraSettings(rank=2, epochs=1, batch_size=2, max_length=500)


def optimizer(tmp_path, tiny_folder, **options):
    made = {"base": f"local/{tiny_folder}", "lora": QUICK, **options}
    return TrajectoryDistillation(exact, tmp_path / "student", **made)


def test_a_program_comes_out_with_a_trained_student(index, tmp_path, tiny_folder):  # noqa: F811
    program, engine = teacher(index)
    program.integration.integrate.demos = [dspy.Example(question="q", query="q", facts="1. a", core="1")]
    given = [(PASSAGES["Velden"], TRIPLES["Velden"])]
    compiled = optimizer(tmp_path, tiny_folder, extracted=given).compile(
        program, trainset=[example()], valset=[example()]
    )

    assert compiled is not program
    assert compiled.distilled["optimizer"] == "TrajectoryDistillation"
    assert compiled.distilled["trajectories"] == {"kept": 1}
    assert compiled.distilled["rows"] == {
        "cascade.triples": 4,  # the answer, also with facts beside the point; refusals where a line is missing
        "construct.extract.triples": 1,
        "integration.integrate": 1,
    }
    assert compiled.distilled["score"] == 0.0  # a random model: it runs, that is all
    names = {predictor.lm.model for _, predictor in compiled.named_predictors()}
    assert names == {load_lm(f"local/{tiny_folder}+{tmp_path / 'student'}").model} == {compiled.distilled["lm"]}
    assert compiled.integration.integrate.demos == []
    assert compiled.integration.integrate.signature.instructions == "Integrate."
    # The program that went in is as it was.
    assert len(program.integration.integrate.demos) == 1
    assert program.integration.integrate.lm.model == "scripted/lm"

    assert sorted(path.name for path in (tmp_path / "student" / "rows").glob("*.jsonl")) == [
        "cascade.triples.jsonl",
        "construct.extract.triples.jsonl",
        "integration.integrate.jsonl",
        "joint.jsonl",
    ]
    copy = compiled.deepcopy()
    assert copy.distilled == compiled.distilled
    compiled.save(tmp_path / "program.json")
    copy.integration.integrate.signature = program.integration.integrate.signature
    copy.load(tmp_path / "program.json", allow_unsafe_lm_state=True)
    assert copy.integration.integrate.signature.instructions == "Integrate."

    asked = len(engine.prompts)
    again = optimizer(tmp_path, tiny_folder, extracted=given).compile(program, trainset=[example()])
    assert again.distilled["lm"] == compiled.distilled["lm"]
    assert (
        len(engine.prompts) == asked + 3
    )  # with other evidence; the trajectory is on file, and the adapter is up to date


def test_full_prompts_on_request(index, tmp_path, tiny_folder):  # noqa: F811
    program, _ = teacher(index)
    before = program.integration.integrate.signature.instructions
    compiled = optimizer(
        tmp_path, tiny_base(tmp_path / "base"), lora=replace(QUICK, max_length=4000), shorten=False, contrast=False
    ).compile(program, trainset=[example()])
    assert compiled.integration.integrate.signature.instructions == before
    assert compiled.distilled["rows"] == {"cascade.triples": 1, "integration.integrate": 1}


def test_nothing_kept_is_an_error_with_the_reasons(index, tmp_path, tiny_folder):  # noqa: F811
    program, _ = teacher(index, answer="wrong")
    with pytest.raises(RunError, match="no trajectory to learn from: 1 below threshold"):
        optimizer(tmp_path, tiny_folder).compile(program, trainset=[example()])


def test_the_teacher_may_be_an_lm(index, tmp_path, tiny_folder):  # noqa: F811
    lm = teacher(index)[0].integration.integrate.lm
    student, engine = teacher(index, answer="wrong")
    compiled = optimizer(tmp_path, tiny_folder, contrast=False).compile(student, trainset=[example()], teacher=lm)
    assert compiled.distilled["trajectories"] == {"kept": 1}
    assert engine.prompts == []
    assert student.integration.integrate.lm is not lm


def test_a_teacher_with_other_prompts_is_another(index, tmp_path, tiny_folder):  # noqa: F811
    program, _ = teacher(index, answer="wrong")
    for changed in (False, True):
        if changed:
            signature = program.integration.integrate.signature
            program.integration.integrate.signature = signature.with_instructions("Do it well.")
        with pytest.raises(RunError, match="settings .prompts." if changed else "no trajectory to learn from"):
            optimizer(tmp_path, tiny_folder).compile(program, trainset=[example()])


def test_a_validation_question_that_fails_scores_nothing(index, tmp_path, tiny_folder):  # noqa: F811
    program, _ = teacher(index)
    made = optimizer(tmp_path, tiny_folder, contrast=False)
    nameless = dspy.Example(answer="x").with_inputs()
    assert made.compile(program, trainset=[example()], valset=[nameless]).distilled["score"] == 0.0


def test_rows_are_limited_by_predictors_that_are_there(index, tmp_path, tiny_folder):  # noqa: F811
    program, engine = teacher(index)
    with pytest.raises(RunError, match=r"most: there is no predictor cascade\.triple; there are construct"):
        optimizer(tmp_path, tiny_folder, most={"cascade.triple": 1}).compile(program, trainset=[example()])
    assert engine.prompts == []


def test_a_prompt_without_a_name_is_not_shortened_away():
    program = dspy.ChainOfThought(dspy.Signature("question -> answer", "In French."))
    assert list(short_prompts(program).values()) == ["In French."]


def test_only_a_local_model_can_be_trained(index, tmp_path, tiny_folder):  # noqa: F811
    program, _ = teacher(index)
    with pytest.raises(ModelError, match="openai/x can't be trained here"):
        optimizer(tmp_path, tiny_folder, base="openai/x").compile(program, trainset=[example()])
    program.set_lm(None)
    with pytest.raises(RunError, match="the program has no LM"):
        optimizer(tmp_path, tiny_folder, base=None).compile(program, trainset=[example()])
