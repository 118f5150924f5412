"""A scripted three-hop teacher: trajectories, rows and their prompts, worked out by hand."""

import json

import dspy
import pytest

from cirag_dspy.adapter import LineAdapter
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import Document
from cirag_dspy.distill.contrast import refusals
from cirag_dspy.distill.rows import chat_rows, check_rows, extraction_rows, read_rows, sample, write_rows
from cirag_dspy.distill.shorten import short_prompts
from cirag_dspy.distill.trajectories import collect, read_trajectories, reasons
from cirag_dspy.errors import DataError, RunError
from cirag_dspy.systems.cirag import CIRAGModule
from tests.fakes import WordEncoder, scripted_lm
from tests.systems.world import PASSAGES, TRIPLES, GoldLM, fill

DIRECTED = ("Harbor Song", "was directed by", "Ada Brook")
BORN = ("Ada Brook", "was born in", "Velden")
RIVER = ("Velden", "lies on", "the river Ree")
QUESTION = "Harbor Song was directed by someone born where by which water?"
SHOWN = [
    "1. Harbor Song | was directed by | Ada Brook\n2. Harbor Light | was directed by | Tom Hale\n"
    "3. Harbor Song | is a film of | 1950",
    "1. Ada Brook | was born in | Velden\n2. Ada Brook | was a | director\n3. Tom Hale | was born in | Mora",
    "1. Velden | lies on | the river Ree\n2. Velden | is a | town\n3. Ada Brook | was a | director",
]
QUERIES = ["Ada Brook was born in", "Velden lies on", "none"]


@pytest.fixture
def index(tmp_path):
    with CorpusIndex.create(tmp_path / "index", WordEncoder()) as built:
        built.add(Document(passage.id, (passage,)) for passage in PASSAGES.values())
        fill(built)
        yield built


def teacher(index, answer="the river Ree", **knobs):
    lm, engine = scripted_lm(GoldLM([DIRECTED, BORN, RIVER], QUERIES, answer))
    program = CIRAGModule(index, **{"k": 2, "n": 3, "threads": 1, **knobs})
    program.set_lm(lm)
    return program, engine


def example(id="q1", question=QUESTION, answer="the river Ree"):
    return dspy.Example(id=id, question=question, answer=answer).with_inputs("question")


def exact(example, prediction, trace=None):
    return example.answer == prediction.answer


def gathered(index, tmp_path, **knobs):
    program, _ = teacher(index, **knobs)
    return program, collect(program, [example()], tmp_path / "t.jsonl", metric=exact)


def test_every_hop_is_kept_under_the_predictor_that_made_it(index, tmp_path):
    _, (trajectory,) = gathered(index, tmp_path)
    assert (trajectory.kept, trajectory.reason, trajectory.score) == (True, "", 1.0)
    assert [call.predictor for call in trajectory.calls] == ["integration.integrate"] * 3 + ["cascade.triples"]
    assert [call.inputs.get("query") for call in trajectory.calls] == [QUESTION, *QUERIES[:2], None]
    assert [len(call.history) for call in trajectory.calls] == [0, 1, 2, 0]
    assert trajectory.calls[1].outputs == {"thought": "turn 1", "core": "1", "next_query": "Velden lies on"}
    assert trajectory.calls[3].outputs == {"thought": "t", "answer": "the river Ree"}


def test_rows_of_a_three_hop_trajectory(index, tmp_path):
    """One conversation with three decisions, one answer: exactly what the program sends, and the replies."""
    program, trajectories = gathered(index, tmp_path)
    integrate, answer = chat_rows(program, trajectories)
    system = LineAdapter().format_system_message(program.integration.integrate.signature)
    assert integrate == {
        "predictor": "integration.integrate",
        "id": "q1",
        "messages": [
            {"role": "system", "content": system},
            {"role": "user", "content": f"question: {QUESTION}\nquery: {QUESTION}\nfacts:\n{SHOWN[0]}"},
            {
                "role": "assistant",
                "content": f"thought: turn 0\ncore: 1\nnext_query: {QUERIES[0]}",
            },
            {"role": "user", "content": f"question: {QUESTION}\nquery: {QUERIES[0]}\nfacts:\n{SHOWN[1]}"},
            {
                "role": "assistant",
                "content": f"thought: turn 1\ncore: 1\nnext_query: {QUERIES[1]}",
            },
            {"role": "user", "content": f"question: {QUESTION}\nquery: {QUERIES[1]}\nfacts:\n{SHOWN[2]}"},
            {"role": "assistant", "content": "thought: turn 2\ncore: 1\nnext_query: none"},
        ],
    }
    assert answer["messages"][1:] == [
        {
            "role": "user",
            "content": f"question: {QUESTION}\nevidence:\nHarbor Song | was directed by | Ada Brook\n"
            "Ada Brook | was born in | Velden\nVelden | lies on | the river Ree",
        },
        {"role": "assistant", "content": "thought: t\nanswer: the river Ree"},
    ]


def test_the_prompt_trained_on_is_the_prompt_sent(index, tmp_path):
    """For the full prompts and for the short ones, hop by hop."""
    for shorten in (lambda program: None, short_prompts):
        program, engine = teacher(index)
        shorten(program)
        engine.prompts.clear()
        trajectories = collect(program, [example()], tmp_path / f"{shorten.__name__}.jsonl", metric=exact)
        integrate, answer = chat_rows(program, trajectories)
        for hop, sent in enumerate(engine.prompts[:3]):
            assert integrate["messages"][: 2 * hop + 2] == sent
        assert answer["messages"][:-1] == engine.prompts[3]


def test_short_prompts_are_part_of_the_saved_state(index, tmp_path):
    program, _ = teacher(index)
    short_prompts(program)
    assert program.integration.integrate.signature.instructions == "Integrate."
    system = LineAdapter().format_system_message(program.cascade.triples.signature)
    assert system == "Answer if sufficient.\n\nGiven:\nquestion:\nevidence:\n\nReply with exactly:\nthought:\nanswer:"
    program.set_lm(None)
    program.save(tmp_path / "p.json")
    again = CIRAGModule(index)
    again.load(tmp_path / "p.json")
    assert LineAdapter().format_system_message(again.cascade.triples.signature) == system


def test_a_repeated_call_counts_once_and_without_the_complaint(index, tmp_path):
    gold = GoldLM([DIRECTED, BORN, RIVER], QUERIES, "the river Ree")
    spoiled = []

    def reply(messages):
        if "core:" in messages[0]["content"] and not spoiled:
            spoiled.append(messages)
            return "thought: x\ncore: all of them\nnext_query: y"  # it parses, and says nothing that can be used
        return gold(messages)

    program = CIRAGModule(index, k=2, n=3, threads=1)
    program.set_lm(scripted_lm(reply)[0])
    (trajectory,) = collect(program, [example()], tmp_path / "t.jsonl", metric=exact)
    assert spoiled
    assert [call.predictor for call in trajectory.calls] == ["integration.integrate"] * 3 + ["cascade.triples"]
    assert all("problem" not in call.inputs for call in trajectory.calls)
    assert "problem" not in chat_rows(program, [trajectory])[0]["messages"][0]["content"]


def test_a_second_run_asks_nobody(index, tmp_path):
    _, first = gathered(index, tmp_path)
    silent = CIRAGModule(index, k=2)
    silent.set_lm(scripted_lm(lambda messages: pytest.fail("the teacher was asked"))[0])
    assert collect(silent, [example()], tmp_path / "t.jsonl", metric=exact) == first
    assert read_trajectories(tmp_path / "t.jsonl") == ({"threshold": 1.0}, first)


def test_a_killed_run_goes_on(index, tmp_path):
    file = tmp_path / "t.jsonl"
    program, _ = teacher(index)
    collect(program, [example("q1")], file, metric=exact)
    with file.open("a") as out:
        out.write('{"id": "q2", "question": "torn')
    found = collect(program, [example("q1"), example("q2")], file, metric=exact)
    assert [t.id for t in found] == ["q1", "q2"]
    lines = file.read_text().splitlines()
    assert [json.loads(lines[n]).get("id") for n in (1, 3)] == ["q1", "q2"]


def test_another_manifest_is_refused(index, tmp_path):
    gathered(index, tmp_path)
    program, _ = teacher(index)
    with pytest.raises(RunError, match=r"other settings \(teacher\)"):
        collect(program, [example()], tmp_path / "t.jsonl", metric=exact, manifest={"teacher": "another"})
    with pytest.raises(RunError, match=r"other settings \(threshold\)"):
        collect(program, [example()], tmp_path / "t.jsonl", metric=exact, threshold=0.5)


def test_what_is_dropped_has_a_reason(index, tmp_path):
    """A wrong answer, an error, an F1 below the threshold (D8, D9): none is learnt from."""
    program, _ = teacher(index, answer="Ree")

    def metric(example, prediction, trace=None):
        if example.id == "boom":
            raise ValueError("no gold")
        return {"low": 0.05, "minus": -1, "good": 1.0}[example.id]

    ids = ["low", "minus", "good", "boom"]
    examples = [example(id, QUESTION) for id in ids]
    found = collect(program, examples, tmp_path / "t.jsonl", metric=metric, threshold=0.8)
    assert [t.kept for t in found] == [False, False, True, False]
    assert reasons(found) == {"below threshold": 2, "kept": 1, "error": 1}
    assert found[3].reason == "error: ValueError: no gold"
    assert {row["id"] for row in chat_rows(program, found)} == {"good"}


def test_unreadable_hops_are_not_learnt_from(index, tmp_path):
    gold = GoldLM([DIRECTED], [], "the river Ree", sufficient=lambda evidence: True)
    program = CIRAGModule(index, k=2, n=3, threads=1)
    program.set_lm(scripted_lm(lambda m: "gibberish" if "core:" in m[0]["content"] else gold(m))[0])
    (trajectory,) = collect(program, [example()], tmp_path / "t.jsonl", metric=exact)
    assert (trajectory.kept, trajectory.reason) == (False, "unreadable reply")


def test_refusals_come_from_evidence_that_lacks_a_line(index, tmp_path):
    program, trajectories = gathered(index, tmp_path)
    (less,) = refusals(program, trajectories, seed=3)
    (call,) = less.calls
    assert call.predictor == "cascade.triples"
    assert len(call.inputs["evidence"].splitlines()) == 2
    assert call.outputs["answer"] == "unanswerable"
    assert refusals(program, trajectories, seed=3) == [less]


def test_extraction_rows_write_a_head_once(index):
    program = CIRAGModule(index)
    passage = PASSAGES["Harbor Song"]
    (row,) = extraction_rows(program, [(passage, TRIPLES["Harbor Song"])])
    assert row["predictor"] == "construct.extract.triples"
    assert row["messages"][1]["content"] == f"title: Harbor Song\npassage: {passage.text}"
    assert row["messages"][2]["content"] == (
        "triples:\nHarbor Song | is a film of | 1950\n| was directed by | Ada Brook"
    )
    extracted = program.construct.extract
    with dspy.context(lm=scripted_lm([row["messages"][2]["content"]])[0]):
        assert extracted(passage=passage).extraction.triples == TRIPLES["Harbor Song"]


def test_files_for_any_trainer(index, tmp_path):
    """JSONL per predictor and joint, loadable with `datasets`; the report counts rows and targets."""
    datasets = pytest.importorskip("datasets")
    program, trajectories = gathered(index, tmp_path)
    rows = chat_rows(program, trajectories)
    report = write_rows(tmp_path / "rows", rows)
    assert report["rows"] == 2
    assert report["by_predictor"]["integration.integrate"]["targets"] == 3
    names = sorted(path.name for path in (tmp_path / "rows").iterdir())
    assert names == ["cascade.triples.jsonl", "integration.integrate.jsonl", "joint.jsonl", "report.json"]
    assert read_rows(tmp_path / "rows" / "joint.jsonl") == rows
    loaded = datasets.load_dataset(
        "json", data_files=str(tmp_path / "rows" / "joint.jsonl"), split="train", cache_dir=str(tmp_path / "hf")
    )
    assert loaded[0]["messages"] == rows[0]["messages"]


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([{"role": "user", "content": "q"}], "roles must be"),
        ([{"role": "user", "content": "q"}, {"role": "assistant", "content": " "}], "the assistant message is empty"),
        ([{"role": "assistant", "content": "a"}, {"role": "user", "content": "q"}], "roles must be"),
        ([{"role": "user"}], "with text"),
        ("text", "with text"),
    ],
)
def test_rows_that_cannot_be_trained_on(messages, problem):
    with pytest.raises(DataError, match=problem):
        check_rows([{"messages": messages, "predictor": "p", "id": "1"}])


def test_bad_files(tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text('{"messages": []}\n{"text": 1}\n')
    with pytest.raises(DataError, match="line 2 is no row"):
        read_rows(file)
    with pytest.raises(DataError, match="no rows to train on"):
        check_rows([])
    with pytest.raises(DataError, match="holds no trajectories"):
        read_trajectories(file)
    with pytest.raises(DataError, match="can't be read"):
        read_trajectories(tmp_path / "none.jsonl")


def test_a_sample_is_seed_stable():
    rows = [{"predictor": p, "id": str(n), "messages": []} for n in range(10) for p in ("a", "b")]
    drawn = sample(rows, {"a": 3}, seed=1)
    assert sum(row["predictor"] == "a" for row in drawn) == 3
    assert sum(row["predictor"] == "b" for row in drawn) == 10
    assert drawn == sample(rows, {"a": 3}, seed=1)
    assert drawn != sample(rows, {"a": 3}, seed=2)
