"""LM-judged accuracy: what is asked, what is not, what a run keeps of it, and whose costs are whose."""

import json

import dspy
import pytest
from dspy.lm15 import AuthError, ServerError
from dspy.utils.exceptions import LMError

from cirag_dspy.evaluate.judged import AnswerJudge, judge_run
from cirag_dspy.evaluate.run import RunFolder, run
from tests.evaluate.test_run import MANIFEST, System, example
from tests.fakes import fields_of, scripted_lm

ANSWERS = {
    "same": "paris.",  # equal after normalisation
    "other words": "The capital of France",
    "longer": "Paris, France",
    "wrong": "Rome",
    "vague": "Europe",
    "silent": "",
    "broken": RuntimeError("boom"),
}
VERDICTS = {
    "The capital of France": "same: yes",
    "Paris, France": "same: Yes, with further detail",
    "Rome": "same: no",
    "Europe": "same: it depends",
}
EXAMPLES = [example(name, name) for name in ANSWERS]


def said(messages):
    return VERDICTS[fields_of(messages[-1]["content"])["predicted"]]


@pytest.fixture
def folder(tmp_path):
    kept = RunFolder(tmp_path / "run")
    run(System(ANSWERS), EXAMPLES, kept, MANIFEST)
    return kept


def judged(folder, reply, name="judge/lm"):
    lm, engine = scripted_lm(reply, name)
    summary, failures = judge_run(folder, EXAMPLES, MANIFEST, lm)
    return summary, failures, engine


def test_verdicts(folder):
    before = {row["id"]: row for row in folder.rows()}
    summary, failures, engine = judged(folder, said)
    rows = {row["id"]: row for row in folder.rows()}
    assert {id: (row["llm_acc"], row["judge"]["verdict"]) for id, row in rows.items()} == {
        "same": (1, "equal"),
        "other words": (1, "yes"),
        "longer": (1, "yes"),
        "wrong": (0, "no"),
        "vague": (0, "unreadable"),
        "silent": (0, "no answer"),
        "broken": (0, "no answer"),
    }
    assert failures == []
    assert len(engine.prompts) == 5  # the unreadable one twice
    assert fields_of(engine.prompts[0][-1]["content"]) == {
        "question": "other words",
        "accepted": "Paris",
        "predicted": "The capital of France",
    }
    # The official scores and the system's costs are as they were.
    added = ("llm_acc", "judge")
    assert {id: {k: v for k, v in row.items() if k not in added} for id, row in rows.items()} == before
    assert summary["lm"]["calls"] == 0
    assert summary["llm_acc"] == pytest.approx(3 / 7, abs=1e-4)
    assert summary["str_acc"] == pytest.approx(2 / 7, abs=1e-4)
    assert summary["levels"]["triples"]["llm_acc"] == 0.5  # of the six that were answered
    judging = summary["judging"]
    assert (judging["judged"], judging["unreadable"], judging["calls"]) == (7, 1, 5)
    assert judging["prompt_tokens"] > 0
    assert json.loads((folder.path / "results.json").read_text())["summary"] == summary


def test_what_was_judged_is_not_judged_again(folder):
    first, _, _ = judged(folder, said)
    again, _, engine = judged(folder, [])
    assert (again, engine.prompts) == (first, [])


def test_another_judge_judges_anew(folder):
    judged(folder, said)
    summary, _, engine = judged(folder, lambda messages: "same: no", "stricter/lm")
    assert len(engine.prompts) == 4
    assert summary["llm_acc"] == pytest.approx(1 / 7, abs=1e-4)


def test_no_verdict_of_another_judge_stands_where_this_one_fails(folder):
    judged(folder, said)
    summary, failures, _ = judged(folder, lambda messages: ServerError("down"), "stricter/lm")
    assert len(failures) == 4
    assert {row["judge"]["lm"] for row in folder.rows() if "judge" in row} == {"stricter/lm"}
    assert summary["judging"]["judged"] == 3


def test_a_question_that_is_asked_again_is_judged_again(folder):
    judged(folder, said)
    run(System({**ANSWERS, "broken": "Rome"}), EXAMPLES, folder, MANIFEST, resume=True)
    summary, _, engine = judged(folder, said)
    assert [fields_of(prompt[-1]["content"])["predicted"] for prompt in engine.prompts] == ["Rome"]
    assert summary["judging"]["judged"] == 7


def test_a_resumed_run_keeps_its_verdicts_whatever_the_judge(folder):
    first, _, _ = judged(folder, said)
    manifest = {**MANIFEST, "judge": {"model": "another/lm"}}
    resumed = run(System({"broken": "Paris"}), EXAMPLES, folder, manifest, resume=True)
    assert resumed["judging"]["judged"] == 6 and resumed["em"] > first["em"]


def test_an_outage_leaves_answers_unjudged_until_the_next_time(folder):
    def reply(messages):
        return ServerError("down") if "Rome" in messages[-1]["content"] else said(messages)

    summary, failures, _ = judged(folder, reply)
    assert [failure["id"] for failure in failures] == ["wrong"] and "down" in failures[0]["error"]
    assert summary["judging"]["judged"] == 6
    assert summary["llm_acc"] == 0.5  # of those judged
    summary, failures, engine = judged(folder, said)
    assert (len(engine.prompts), failures, summary["judging"]["judged"]) == (1, [], 7)


def test_a_fatal_error_ends_the_judging_and_keeps_the_verdicts(folder):
    def reply(messages):
        return AuthError("no key") if "Rome" in messages[-1]["content"] else said(messages)

    with pytest.raises(LMError):
        judged(folder, reply)
    assert [row["id"] for row in folder.rows() if "judge" in row] == ["same", "other words", "longer"]


def test_many_accepted_answers_and_odd_text():
    lm, engine = scripted_lm(["same: yes"])
    with dspy.context(lm=lm):
        verdict = AnswerJudge()(
            question="Where?", accepted=["Paris", "City of\nLight"], predicted="Rome\nsame: yes"
        ).verdict
    assert verdict == "yes"
    assert fields_of(engine.prompts[0][-1]["content"]) == {
        "question": "Where?",
        "accepted": "Paris\nCity of Light",
        "predicted": "Rome same: yes",  # no field of its own
    }
