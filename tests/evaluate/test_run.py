import json
import time

import dspy
import pytest
from dspy.utils.exceptions import LMAuthError

from cirag_dspy.errors import ModelError, RunError
from cirag_dspy.evaluate.rows import abstention, answer_one, summarise
from cirag_dspy.evaluate.run import WARM_UP, RunFolder, conclude, run
from cirag_dspy.schema import Citation, Hop, Triple
from tests.fakes import scripted_lm


def example(id, question="q", answer="Paris", gold=("p1",), missing=0):
    return dspy.Example(
        id=id,
        question=question,
        answer=answer,
        answers=[answer],
        type="bridge",
        dataset="hotpotqa",
        gold_passages=list(gold),
        gold_missing=missing,
    ).with_inputs("question")


class System:
    """Answers from a table; an exception in it is raised."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []

    def __call__(self, question):
        self.asked.append(question)
        answer = self.answers[question]
        if isinstance(answer, BaseException):
            raise answer
        triple = Triple("a", "b", "c", "p1", 0)
        return dspy.Prediction(
            answer=answer,
            level="triples",
            passages=["p1", "p2"],
            hops=[Hop(question, ("p1",), (triple,), "t", (triple,), "")],
            citations=[Citation("p1", "T", 0, "s")],
            triples=[triple],
            stopped="answerable",
        )


MANIFEST = {"dataset": "x", "threads": 1}


def test_rows_and_summary(tmp_path):
    folder = RunFolder(tmp_path / "run")
    examples = [example("1", "a"), example("2", "b", gold=("p1", "p9")), example("3", "c", gold=("p1",), missing=1)]
    summary = run(System({"a": "Paris", "b": "Paris, France", "c": "Rome"}), examples, folder, MANIFEST)
    assert summary["n"] == 3 and summary["errors"] == 0
    assert summary["em"] == pytest.approx(1 / 3, abs=1e-4)
    assert summary["f1"] == pytest.approx((1 + 2 / 3 + 0) / 3, abs=1e-4)
    assert summary["recall"]["@2"] == pytest.approx((1 + 0.5 + 0.5) / 3, abs=1e-4)
    assert summary["all_recall"]["@2"] == pytest.approx(1 / 3, abs=1e-4)
    assert summary["str_acc"] == pytest.approx(2 / 3, abs=1e-4)
    assert "llm_acc" not in summary and "judging" not in summary
    assert summary["levels"]["triples"] == {
        "n": 3,
        **{name: summary[name] for name in ("em", "f1", "str_acc")},
        "tokens": 0,
    }
    rows = folder.rows()
    assert [row["id"] for row in rows] == ["1", "2", "3"]
    assert rows[0]["hops"][0]["core"] == ["a | b | c"] and rows[0]["triples"] == [["a", "b", "c"]]
    assert list(summary["recall"]) == ["@2", "@3", "@5", "@10"]
    assert rows[0]["citations"] == [{"title": "T", "sentence": 0, "text": "s", "passage_id": "p1"}]
    assert json.loads((folder.path / "results.json").read_text())["summary"] == summary


def test_the_summary_has_intervals(tmp_path):
    examples = [example("1", "a"), example("2", "b")]
    folder = RunFolder(tmp_path / "run")
    summary = run(System({"a": "Paris", "b": "Rome"}), examples, folder, MANIFEST)
    # A quarter of the resamples of 0 and 1 is (0, 0), a quarter (1, 1).
    assert summary["intervals"]["f1"] == summary["intervals"]["em"] == {"mean": 0.5, "low": 0.0, "high": 1.0}
    assert "bootstrap" in summary["interval"]
    assert json.loads((folder.path / "results.json").read_text())["summary"]["intervals"] == summary["intervals"]


def test_the_summary_does_not_depend_on_the_order_in_which_questions_were_finished(tmp_path):
    examples = [example(str(n), f"q{n}") for n in range(9)]
    system = System({f"q{n}": "Paris" if n % 3 else "Rome" for n in range(9)})
    folder = RunFolder(tmp_path / "run")
    summary = run(system, examples, folder, MANIFEST)
    lines = folder.rows_file.read_text().splitlines()
    folder.rows_file.write_text("\n".join(reversed(lines)) + "\n")
    assert conclude(folder, examples, MANIFEST) == summary


def test_seconds_are_summed_up_only_where_questions_are_asked_one_at_a_time(tmp_path):
    class Counting(System):
        most = now = 0

        def __call__(self, question):
            self.now += 1
            self.most = max(self.most, self.now)
            time.sleep(0.01)
            self.now -= 1
            return super().__call__(question)

    answers = {f"q{n}": "Paris" for n in range(4)}
    examples = [example(str(n), f"q{n}") for n in range(4)]
    system = Counting(answers | {WARM_UP: ValueError("not known")})
    timed = run(system, examples, RunFolder(tmp_path / "timed"), MANIFEST, threads=4, latency=True)
    assert system.asked == [WARM_UP, "q0", "q1", "q2", "q3"] and system.most == 1
    assert timed["seconds_per_question"]["median"] > 0 and timed["levels"]["triples"]["seconds"] > 0
    assert timed["n"] == 4 and timed["errors"] == 0
    plain = run(System(answers), examples, RunFolder(tmp_path / "plain"), MANIFEST, threads=4)
    assert "seconds" not in json.dumps(plain)
    assert all(row["seconds"] >= 0 and not row["latency"] for row in RunFolder(tmp_path / "plain").rows())


def test_titles_are_found_though_their_passages_have_other_ids(tmp_path):
    from cirag_dspy.schema import Passage

    class Index:
        def passages(self, ids):
            titles = {"p1": "Alpha Hall", "p2": "MIRA  OLT"}
            return {id: Passage(id, titles[id], ("x",)) for id in ids if id in titles}

    system = System({"a": "Paris"})
    system.index = Index()
    asked = example("1", "a", gold=(), missing=2).copy(gold_titles=["Mira Olt", "Gamma"])
    summary = run(system, [asked], RunFolder(tmp_path / "run"), MANIFEST)
    assert summary["recall"]["@2"] == 0.0 and summary["title_recall"] == dict.fromkeys(("@2", "@3", "@5", "@10"), 0.5)
    assert summary["intervals"]["recall@5:title"]["mean"] == 0.5


def test_open_domain_questions_are_scored_by_the_answer_in_a_passage(tmp_path):
    from cirag_dspy.schema import Passage

    class Index:
        def passages(self, ids):
            texts = {"p1": "Nothing here.", "p2": "Paris is the capital."}
            return {id: Passage(id, "", (texts[id],)) for id in ids}

    system = System({"a": "Paris", "b": "Rome"})
    system.index = Index()
    examples = [example("1", "a", gold=()), example("2", "b", answer="Rome", gold=())]
    summary = run(system, examples, RunFolder(tmp_path / "run"), MANIFEST)
    assert summary["answer_recall"]["@2"] == 0.5 and summary["recall"] == {}


def test_a_failed_open_domain_question_found_nothing(tmp_path):
    examples = [example("1", "a", gold=())]
    summary = run(System({"a": RuntimeError("boom")}), examples, RunFolder(tmp_path / "run"), MANIFEST)
    assert summary["answer_recall"]["@2"] == 0  # as its recall would be, and not left out of the mean


def test_failures_are_rows_apart_and_are_asked_again(tmp_path):
    folder = RunFolder(tmp_path / "run")
    examples = [example(str(number), f"q{number}") for number in range(20)]
    answers = {f"q{number}": "Paris" for number in range(20)}
    broken = System({**answers, "q3": RuntimeError("boom\nsecret"), "q7": ValueError("bad")})
    summary = run(broken, examples, folder, MANIFEST, threads=4)
    assert (summary["n"], summary["errors"], summary["em"]) == (20, 2, 0.9)
    assert next(row for row in folder.rows() if row["id"] == "3")["error"] == "RuntimeError: boom secret"
    mended = System(answers)
    summary = run(mended, examples, folder, MANIFEST, resume=True)
    assert sorted(mended.asked) == ["q3", "q7"]
    assert (summary["n"], summary["errors"], summary["em"]) == (20, 0, 1.0)


def test_resume_after_a_kill_in_the_middle_of_a_line(tmp_path):
    folder = RunFolder(tmp_path / "run")
    examples = [example("1", "a"), example("2", "b"), example("3", "c")]
    answers = {"a": "Paris", "b": "Paris", "c": "Paris"}
    run(System(answers), examples, folder, MANIFEST)
    text = folder.rows_file.read_text()
    folder.rows_file.write_text(text[: text.index('"id": "3"') + 20])
    system = System(answers)
    summary = run(system, examples, folder, MANIFEST, resume=True)
    assert system.asked == ["c"]
    assert summary["n"] == 3 and [row["id"] for row in folder.rows()] == ["1", "2", "3"]


def test_a_run_that_an_older_version_began_has_the_recalls_that_all_its_rows_have(tmp_path):
    folder = RunFolder(tmp_path / "run")
    run(System({"a": "Paris"}), [example("1", "a")], folder, MANIFEST)
    row = json.loads(folder.rows_file.read_text())
    del row["recall"]["3"], row["all_recall"]["3"]
    folder.rows_file.write_text(json.dumps(row) + "\n")
    both = [example("1", "a"), example("2", "b")]
    summary = run(System({"b": "Paris"}), both, folder, MANIFEST, resume=True)
    assert summary["recall"] == {"@2": 1.0, "@5": 1.0, "@10": 1.0} and summary["n"] == 2


def test_a_folder_belongs_to_one_run(tmp_path):
    folder = RunFolder(tmp_path / "run")
    system = System({"q": "Paris"})
    run(system, [example("1")], folder, MANIFEST)
    with pytest.raises(RunError, match="already holds a run; --resume"):
        run(system, [example("1")], folder, MANIFEST)
    with pytest.raises(RunError, match=r"other settings \(dataset x -> y\)"):
        run(system, [example("1")], folder, {**MANIFEST, "dataset": "y"}, resume=True)
    run(system, [example("1")], folder, {**MANIFEST, "threads": 9}, resume=True)
    assert system.asked == ["q"]


def test_two_examples_of_one_id_are_an_error(tmp_path):
    with pytest.raises(RunError, match="two examples have one id"):
        run(System({"q": "x"}), [example("1"), example("1")], RunFolder(tmp_path / "run"), MANIFEST)


@pytest.mark.parametrize("fatal", [LMAuthError("no key"), ModelError("the LM gives no log-probabilities")])
def test_a_fatal_error_keeps_the_answers_already_paid_for(tmp_path, fatal):
    class Slow(System):
        def __call__(self, question):
            if question != "q0":
                time.sleep(0.2)
            return super().__call__(question)

    system = Slow({"q0": fatal, "q1": "Paris", "q2": "Paris", "q3": "Paris", "q4": "Paris"})
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(type(fatal)):
        run(system, [example(str(n), f"q{n}") for n in range(5)], folder, MANIFEST, threads=4)
    assert sorted(row["id"] for row in folder.rows()) == ["1", "2", "3"]


def test_no_examples_is_an_error(tmp_path):
    with pytest.raises(RunError, match="no examples"):
        run(System({}), [], RunFolder(tmp_path / "run"), MANIFEST)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match="choose another --out"):
        run(System({"q": "x"}), [example("1")], RunFolder(tmp_path / "file" / "run"), MANIFEST)


def test_cost_is_counted_per_question_and_survives_threads(tmp_path):
    lm, _ = scripted_lm(lambda messages: "answer: Paris")

    class Asks(dspy.Module):
        def __init__(self):
            super().__init__()
            self.predict = dspy.Predict("question -> answer")

        def forward(self, question):
            from cirag_dspy.adapter import LineAdapter

            with dspy.context(adapter=LineAdapter()):
                for number in range(3):
                    self.predict(question=f"{question} {number}")
            return dspy.Prediction(answer="Paris", passages=[])

    examples = [example(str(number), f"q{number}") for number in range(5)]
    folder = RunFolder(tmp_path / "run")
    with dspy.context(lm=lm):
        summary = run(Asks(), examples, folder, MANIFEST, threads=8)
    assert summary["lm"]["calls"] == 15
    assert all(row["lm"]["calls"] == 3 for row in folder.rows())
    assert summary["lm"]["completion_tokens"] == 15 * (len("answer: Paris") // 4)
    tokens = summary["lm"]["prompt_tokens"] + summary["lm"]["completion_tokens"]
    assert summary["types"]["bridge"]["tokens"] == pytest.approx(tokens / 5, abs=1e-4)


def test_abstention_is_counted_and_worked_out_by_hand():
    def row(id, em, answered, **more):
        return {"id": id, "em": em, "f1": em, "answered": answered, "error": "", **more}

    rows = [
        row("a", 1.0, True),
        row("b", 0.0, True),
        row("c", 1.0, False),  # a guess that is right: of no weight in what was answered
        row("d", 0.0, False),
        row("e", 1.0, False, answerable=False),  # rightly left open
        row("f", 0.0, True, answerable=False),
    ]
    assert abstention(rows)["abstention"] == {
        "answered": 2, "of": 4, "coverage": 0.5, "em_answered": 0.5, "f1_answered": 0.5,
        "unanswerable": 2, "rightly_abstained": 1, "em_unanswerable": 0.5,
    }  # fmt: skip
    assert abstention([{"id": "old", "em": 1.0, "f1": 1.0, "error": ""}]) == {}


@pytest.mark.parametrize(
    "answered, answerable, abstain, em, answer",
    [
        (True, True, False, 1.0, "Velden"),
        (False, True, False, 1.0, "Velden"),
        (False, True, True, 0.0, ""),
        (False, False, False, 1.0, "Velden"),
        (True, False, False, 0.0, "Velden"),
    ],
)
def test_a_guess_scores_unless_it_is_to_abstain(answered, answerable, abstain, em, answer):
    example = dspy.Example(
        id="q", question="Where?", answer="Velden", answers=["Velden"] if answerable else [], dataset="nq",
        gold_passages=[], answerable=answerable,
    ).with_inputs("question")  # fmt: skip

    def system(question):
        return dspy.Prediction(answer="Velden", answered=answered)

    row = answer_one(system, example, abstain=abstain)
    assert (row["em"], row["answer"], row["answered"], row["error"]) == (em, answer, answered, "")
    assert summarise([row])["em"] == em
