from __future__ import annotations

import asyncio
import json
import shutil
import threading

import dspy
import pytest
from dspy.clients.utils_finetune import TrainDataFormat, TrainingStatus

from cirag_dspy.adapter import LineAdapter
from cirag_dspy.errors import DataError, ModelError, RunError
from cirag_dspy.lms import load_lm, weights
from cirag_dspy.lms.provider import LocalProvider, LocalTrainingJob
from tests.fakes import ScriptedEngine

SETTINGS = {"rank": 16, "epochs": 60, "learning_rate": 1e-2, "max_length": 512, "dtype": "float32"}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CIRAG_DSPY_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def tiny(tiny_folder):
    return load_lm(f"local/{tiny_folder}", dtype="float32", max_tokens=24, cache=False)


def chat(user, assistant):
    return {"messages": [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]}


def finetune(lm, rows, **train_kwargs):
    return lm.finetune(rows, TrainDataFormat.CHAT, SETTINGS | train_kwargs)


def test_a_trained_lm_answers_from_its_adapter_and_the_old_one_from_its_base(tiny, tiny_folder, tmp_path):
    before = tiny("Who?")
    job = finetune(tiny, [chat("Who?", "Ada")])
    student = job.result()

    assert job.status() == TrainingStatus.succeeded and (job.step, job.steps) == (60, 60) and job.loss < 0.1
    folder = next((tmp_path / "cache/adapters").iterdir())
    assert student.model == f"{tiny.model[:-13]}+{folder}@{student.model[-12:]}"
    assert student.engine is tiny.engine and student.provider is tiny.provider
    assert student("Who?") == ["Ada"] and tiny("Who?") == before != ["Ada"]
    assert asyncio.run(student.acall("Who?")) == ["Ada"]
    assert load_lm(student.model, dtype="float32")("Who?") == ["Ada"]
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == tiny_folder.name


def test_training_again_under_the_same_name_gives_the_new_answer(tiny, tiny_folder, tmp_path):
    spec = f"local/{tiny_folder}+{tmp_path / 'student'}"
    for answer in ("Ada", "Grace"):
        finetune(tiny, [chat("Who?", answer)], out=str(tmp_path / "student"), resume=False).result()
        assert load_lm(spec, dtype="float32")("Who?") == [answer]


def test_an_lm_with_an_adapter_is_trained_on_from_it(tiny):
    student = finetune(tiny, [chat("Who?", "Ada")]).result()
    rows, little = [chat("Who?", "Ada")], {"epochs": 1, "dtype": "float32"}
    one = student.finetune(rows, TrainDataFormat.CHAT, little)
    assert one.result()("Who?") == ["Ada"] and one.loss < 0.1


def test_the_same_training_again_trains_nothing(tiny):
    one, two = (finetune(tiny, [chat("Who?", "Ada")], epochs=2) for _ in range(2))
    assert one.result().model == two.result().model
    assert {one.steps, two.steps} == {0, 2}


@pytest.mark.parametrize("multitask", [True, False])
def test_bootstrap_finetune(tiny, multitask):
    answers = {"Capital of Norway?": "Oslo", "Capital of Peru?": "Lima"}
    teacher, student = dspy.Predict("question -> answer"), dspy.Predict("question -> answer")
    asked = ScriptedEngine(lambda messages: "answer: " + answers[messages[-1]["content"].split("question: ")[1]])
    teacher.set_lm(dspy.LM("scripted/teacher", engine=asked))
    student.set_lm(tiny)
    trainset = [dspy.Example(question=q, answer=a).with_inputs("question") for q, a in answers.items()]

    with dspy.context(adapter=LineAdapter()):
        optimizer = dspy.BootstrapFinetune(
            metric=lambda example, pred, trace=None: example.answer == pred.answer,
            multitask=multitask,
            train_kwargs=SETTINGS | {"batch_size": 1},
            num_threads=1,
        )
        trained = optimizer.compile(student, trainset=trainset, teacher=teacher)
        assert {q: trained(question=q).answer for q in answers} == answers
    assert trained.lm.model != tiny.model


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"rnak": 8}, "train_kwargs: no setting rnak: there are rank, alpha, .*, and out, output_dir, device"),
        ({"rank": "8"}, "train_kwargs: rank is of type int, and '8' is not"),
        ({"dtype": "float16", "device": "cpu"}, "float16 is not for the CPU"),
    ],
)
def test_a_wrong_setting_is_the_jobs_result(tiny, kwargs, message):
    job = finetune(tiny, [chat("Who?", "Ada")], **kwargs)
    error = job.result()
    assert isinstance(error, RunError | ModelError) and job.status() == TrainingStatus.failed
    with pytest.raises(type(error), match=message):
        raise error


def test_other_data_than_chat_is_refused(tiny):
    job = tiny.finetune([{"prompt": "a", "completion": "b"}], TrainDataFormat.COMPLETION, SETTINGS)
    assert isinstance(job.result(), DataError) and "chat data" in str(job.result())
    assert isinstance(finetune(tiny, [{"prompt": "a"}]).result(), DataError)


def test_a_cancelled_job_leaves_a_checkpoint_that_the_same_call_goes_on_from(tiny, tmp_path, monkeypatch):
    rows, reached, go = [chat("Who?", "Ada")], threading.Event(), threading.Event()

    class Slow(LocalTrainingJob):
        def on_step(self, step, steps, loss):
            if step == 3:
                reached.set()
                go.wait(60)
            super().on_step(step, steps, loss)

    monkeypatch.setattr(tiny.provider, "TrainingJob", Slow)
    job = finetune(tiny, rows, out=str(tmp_path / "student"), epochs=6)
    assert reached.wait(60) and job.status() == TrainingStatus.running
    waiting = finetune(tiny, rows, epochs=1)
    assert waiting.status() == TrainingStatus.pending and waiting.cancel()
    assert job.cancel()
    go.set()
    assert isinstance(job.result(), RunError) and job.status() == TrainingStatus.cancelled and not job.cancel()
    assert waiting.result() and waiting.status() == TrainingStatus.cancelled and waiting.step == 0
    assert [p.name for p in (tmp_path / "student/checkpoint").iterdir()] == ["step-00000003"]

    monkeypatch.setattr(tiny.provider, "TrainingJob", LocalTrainingJob)
    again = finetune(tiny, rows, out=str(tmp_path / "student"), epochs=6)
    assert again.result().model.endswith(weights.fingerprint(*folders(again.result())))


def folders(lm):
    from cirag_dspy.lms import base_folder, split_spec
    from cirag_dspy.lms.weights import model_folder

    base, adapter = split_spec(lm.model)
    return base_folder(base), model_folder(adapter, adapter=True)


def test_a_model_that_has_gone_is_named(tiny, tmp_path):
    student = finetune(tiny, [chat("Who?", "Ada")], epochs=1, out=str(tmp_path / "student")).result()
    shutil.rmtree(tmp_path / "student")
    with pytest.raises(dspy.LMError, match="no adapter"):
        student("Who?")


def test_what_the_provider_says_of_itself(tiny):
    provider = LocalProvider()
    assert provider.finetunable and not provider.reinforceable
    assert provider.is_provider_model("local/x") and provider.is_provider_model("embedded@0123456789ab")
    assert not provider.is_provider_model("openai/gpt-4o-mini")
    tiny.launch()
    tiny.kill()
    assert len(tiny("still there")) == 1
    assert load_lm("openai/gpt-4o-mini", api_key="none").provider.__class__ is not LocalProvider
