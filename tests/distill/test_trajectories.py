"""A scripted three-hop teacher: trajectories, rows and their prompts, worked out by hand."""

import json
import re
from dataclasses import replace

import dspy
import pytest

from cirag_dspy.adapter import LineAdapter
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import Document
from cirag_dspy.distill.contrast import contrasts
from cirag_dspy.distill.rows import chat_rows, check_rows, extraction_rows, read_rows, sample, write_rows
from cirag_dspy.distill.shorten import short_prompts
from cirag_dspy.distill.trajectories import Call, Trajectory, collect, read_trajectories, reasons
from cirag_dspy.errors import DataError, RunError
from cirag_dspy.schema import Triple
from cirag_dspy.systems.cirag import CIRAGModule
from cirag_dspy.text import fact_lines
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


def test_a_teacher_is_taken_at_its_word_when_it_asks_for_nothing(index, tmp_path):
    _, once = gathered(index, tmp_path)
    insistent, _ = teacher(index, min_hops=4)
    assert collect(insistent, [example()], tmp_path / "4.jsonl", metric=exact) == once
    assert insistent.min_hops == 4


def test_rows_of_a_three_hop_trajectory(index, tmp_path):
    """One conversation with three decisions, one answer: exactly what the program sends, and the replies."""
    program, trajectories = gathered(index, tmp_path)
    integrate, answer = chat_rows(program, trajectories)
    system = LineAdapter().format_system_message(program.integration.integrate.signature)
    assert {key: value for key, value in integrate.items() if key != "evidence"} == {
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
    assert [json.loads(line).get("id") for line in file.read_text().splitlines()] == [None, "q1", "q2"]
    assert read_trajectories(file)[1] == found  # nor is the file damaged for the runs after that
    file.write_text(file.read_text().splitlines()[0])  # killed at once
    assert [t.id for t in collect(program, [example("q1")], file, metric=exact)] == ["q1"]
    assert len(file.read_text().splitlines()) == 2


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
        return {"low": 0.05, "minus": -1, "good": 1.0, "none": None, "nan": float("nan")}[example.id]

    ids = ["low", "minus", "good", "boom", "none", "nan"]
    examples = [example(id, QUESTION) for id in ids]
    found = collect(program, examples, tmp_path / "t.jsonl", metric=metric, threshold=0.8)
    assert [t.kept for t in found] == [False, False, True, False, False, False]
    assert reasons(found) == {"error": 3, "below threshold": 2, "kept": 1}
    assert found[3].reason == "error: ValueError: no gold"
    assert found[4].reason.startswith("error: TypeError: ")
    assert (found[5].reason, found[5].score) == ("error: ValueError: the metric gave NaN", 0.0)
    assert {row["id"] for row in chat_rows(program, found)} == {"good"}


def test_a_file_knows_its_questions_by_their_text_too(index, tmp_path):
    """Ids such as 0, 1, 2 mean other questions in another training set."""
    program, _ = teacher(index)
    collect(program, [example("0")], tmp_path / "t.jsonl", metric=exact)
    other = example("0", "Who directed Harbor Song?")
    (found,) = collect(program, [other], tmp_path / "t.jsonl", metric=exact)
    assert found.question == other.question
    assert collect(program, [other], tmp_path / "t.jsonl", metric=exact) == [found]


@pytest.mark.parametrize(
    ("examples", "problem"),
    [
        ([example("a"), example("a")], "example 2: another one has the id 'a' too"),
        ([dspy.Example(question="q")], "example 1 has no id"),
        ([dspy.Example(text="t")], "example 1 has no id and no question"),
    ],
)
def test_examples_that_cannot_be_told_apart(index, tmp_path, examples, problem):
    program, engine = teacher(index)
    with pytest.raises(DataError, match=problem):
        collect(program, examples, tmp_path / "t.jsonl", metric=exact)
    assert engine.prompts == []


class Notes(dspy.Module):
    """A program that is not ours: lists, numbers, an input that is called as our complaint is."""

    def __init__(self):
        super().__init__()
        self.ask = dspy.Predict("question, notes: list[str], problem -> enough: bool, score: int")

    def forward(self, question):
        with dspy.context(adapter=LineAdapter()):
            self.ask(question=question, notes=["a", "b"], problem="p")
        return dspy.Prediction(answer="x")


def test_values_that_are_no_texts_are_kept_as_they_were_written(tmp_path):
    program = Notes()
    lm, engine = scripted_lm(lambda messages: "enough: False\nscore: 0")
    program.set_lm(lm)
    (found,) = collect(program, [example(answer="x")], tmp_path / "t.jsonl", metric=exact)
    (call,) = found.calls
    assert (call.inputs["notes"], call.inputs["problem"]) == ('["a", "b"]', "p")
    assert call.outputs == {"enough": "False", "score": "0"}
    (row,) = chat_rows(program, [found])
    assert row["messages"][:-1] == engine.prompts[0]
    assert row["messages"][-1]["content"] == "enough: False\nscore: 0"


@pytest.fixture
def bare(tmp_path):
    """The index without triples."""
    with CorpusIndex.create(tmp_path / "bare", WordEncoder()) as built:
        built.add(Document(passage.id, (passage,)) for passage in PASSAGES.values())
        yield built


def test_questions_at_once_keep_their_own_calls(bare, tmp_path):
    """Triples are extracted at query time, in threads within threads."""
    program, _ = teacher(bare, threads=2)
    examples = [example(f"q{n}", f"{QUESTION} {n}") for n in range(6)]
    found = collect(program, examples, tmp_path / "t.jsonl", metric=exact, threads=3)
    for n, trajectory in enumerate(found):
        asked = [call.inputs["question"] for call in trajectory.calls if "question" in call.inputs]
        assert asked == [f"{QUESTION} {n}"] * 4
    extracted = [call.inputs["title"] for t in found for call in t.calls if call.predictor.startswith("construct")]
    assert sorted(extracted) == sorted(PASSAGES)  # each passage once, whoever came first


def spoken(gold):
    """The teacher in the form of DSPy's own adapter: it reads and writes markers."""

    def reply(messages):
        lines = []
        for message in messages:
            text = message["content"].partition("\n\nRespond with")[0].replace("\n\n", "\n")
            lines.append({**message, "content": re.sub(r"^\[\[ ## (\w+) ## \]\]\n", r"\1: ", text, flags=re.M)})
        return re.sub(r"^(\w+):[ \n]?", r"[[ ## \1 ## ]]\n", gold(lines), flags=re.M)

    return reply


@pytest.mark.parametrize("calls", ["one", "two"])
def test_rows_in_the_form_of_another_adapter(bare, tmp_path, calls):
    gold = GoldLM([DIRECTED, BORN, RIVER], QUERIES, "the river Ree")

    def reply(messages):
        if "`entities`" in messages[0]["content"] and "`triples`" not in messages[0]["content"]:
            return "entities: Ada; Bo"
        return gold(messages)

    lm, engine = scripted_lm(spoken(reply))
    program = CIRAGModule(bare, k=2, n=3, threads=1, extract=calls)
    program.set_lm(lm)
    with dspy.context(adapter=dspy.ChatAdapter(use_json_adapter_fallback=False)):
        rows = chat_rows(program, collect(program, [example()], tmp_path / "t.jsonl", metric=exact))
    check_rows(rows)
    assert all(row["messages"][:-1] in engine.prompts for row in rows)
    targets = {row["predictor"]: row["messages"][-1]["content"] for row in rows}
    assert targets["construct.extract.triples"] == (
        "[[ ## triples ## ]]\nVelden | is a | town\n| lies on | the river Ree\n\n[[ ## completed ## ]]\n"
    )
    if calls == "two":
        assert targets["construct.extract.entities"] == "[[ ## entities ## ]]\nAda; Bo\n\n[[ ## completed ## ]]\n"


def test_unreadable_hops_are_not_learnt_from(index, tmp_path):
    gold = GoldLM([DIRECTED], [], "the river Ree", sufficient=lambda evidence: True)
    program = CIRAGModule(index, k=2, n=3, threads=1)
    program.set_lm(scripted_lm(lambda m: "gibberish" if "core:" in m[0]["content"] else gold(m))[0])
    (trajectory,) = collect(program, [example()], tmp_path / "t.jsonl", metric=exact)
    assert (trajectory.kept, trajectory.reason) == (False, "unreadable reply")


def test_the_teacher_is_asked_again_with_less_and_with_more(index, tmp_path):
    program, trajectories = gathered(index, tmp_path)
    kept = trajectories[0].calls[-1].inputs["evidence"].splitlines()
    shown = {fact for call in trajectories[0].calls for fact in fact_lines(call.inputs.get("facts", ""))}
    less, more, both = contrasts(program, trajectories, seed=3)
    assert all(one.calls[0].predictor == "cascade.triples" and one.kept for one in (less, more, both))
    lines = [one.calls[0].inputs["evidence"].splitlines() for one in (less, more, both)]
    assert len(lines[0]) == len(kept) - 1 and set(lines[0]) < set(kept)
    assert [line for line in lines[1] if line in kept] == kept  # all of it, in its order
    assert [line for line in lines[2] if line in kept] == lines[0]
    for noisy in lines[1:]:
        added = set(noisy) - set(kept)
        assert added and added <= shown and len(noisy) == len(set(noisy))
    answers = [one.calls[0].outputs["answer"] for one in (less, more, both)]
    assert answers == ["unanswerable", "the river Ree", "unanswerable"]
    assert [one.answer for one in (less, more, both)] == ["", "the river Ree", ""]
    assert contrasts(program, trajectories, seed=3) == [less, more, both]


def test_a_teacher_that_says_something_else_from_other_evidence_is_not_learnt_from(index, tmp_path):
    program, trajectories = gathered(index, tmp_path)
    program.set_lm(scripted_lm(lambda messages: "thought: t\nanswer: Velden")[0])
    assert contrasts(program, trajectories) == []


def test_sentences_gain_nothing(index, tmp_path):
    program, (trajectory,) = gathered(index, tmp_path)
    call = Call("cascade.sentences", {"question": "q", "evidence": "One.\nTwo."}, {"answer": "the river Ree"})
    told = contrasts(program, [replace(trajectory, calls=[*trajectory.calls[:3], call])])
    assert [one.calls[0].inputs["evidence"] in ("One.", "Two.") for one in told] == [True]


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


def test_extraction_in_two_calls_is_taught_as_two(index):
    program = CIRAGModule(index, extract="two")
    passage = PASSAGES["Harbor Song"]
    entities, triples = extraction_rows(program, [(passage, TRIPLES["Harbor Song"])])
    assert entities["messages"][1]["content"] == f"title: Harbor Song\npassage: {passage.text}"
    assert entities["messages"][2]["content"] == "entities: Harbor Song; 1950; Ada Brook"
    assert triples["messages"][1]["content"].endswith("\nentities: Harbor Song; 1950; Ada Brook")
    assert triples["messages"][2]["content"].startswith("triples:\n")


def test_triples_that_cannot_be_written_teach_nothing(index):
    program = CIRAGModule(index)
    passage = PASSAGES["Velden"]
    piped = Triple("A|B", "is", "c", passage.id, 0)
    assert extraction_rows(program, [(passage, [piped])]) == []
    (row,) = extraction_rows(program, [(passage, [])])
    assert row["messages"][2]["content"] == "triples: none"


def call(predictor, outputs, history=(), **inputs):
    return Call(predictor, inputs, outputs, list(history))


def rows_of(index, *calls):
    return chat_rows(CIRAGModule(index), [Trajectory("q1", QUESTION, "", 1.0, True, "", list(calls))])


@pytest.mark.parametrize(
    ("outputs", "target"),
    [
        ({"thought": "", "answer": ""}, None),  # the gate takes it for a refusal; there is nothing to learn in it
        ({"thought": "t", "answer": "The answer is: Ree."}, "thought: t\nanswer: Ree"),
        ({"answer": "Unanswerable. It does not say."}, "answer: unanswerable"),
        ({"thought": "t"}, None),
    ],
)
def test_answers_as_the_program_reads_them(index, outputs, target):
    rows = rows_of(index, call("cascade.triples", outputs, question="q", evidence="a | b | c"))
    assert [row["messages"][-1]["content"] for row in rows] == ([target] if target else [])


@pytest.mark.parametrize(
    ("outputs", "target"),
    [
        (
            {"thought": "a\nb", "core": "B | c | d", "next_query": '"B e"\nthat is missing'},
            "thought: a b\ncore: 2\nnext_query: B e",
        ),
        ({"thought": "t", "core": "", "next_query": "x"}, "thought: t\ncore: none\nnext_query: x"),
        ({"core": "2, 1, 7", "next_query": ""}, "core: 2, 1\nnext_query: none"),
        ({"thought": "t", "core": "1", "next_query": "None needed, we know."}, "thought: t\ncore: 1\nnext_query: none"),
    ],
)
def test_decisions_as_they_are_shown_at_the_next_hop(index, outputs, target):
    (row,) = rows_of(
        index, call("integration.integrate", outputs, question="q", query="q", facts="1. A | b | c\n2. B | c | d")
    )
    assert row["messages"][-1]["content"] == target


def test_a_student_that_copies_is_taught_the_facts_themselves(index):
    program = CIRAGModule(index, core="text")
    facts = "A | b | c\nB | c | d"
    history = [{"question": "q", "query": "q", "facts": facts, "core": "A | b | c", "next_query": "B"}]
    given = call("integration.integrate", {"core": "2", "next_query": ""}, question="q", query="B", facts=facts)
    given.history.extend(history)
    (row,) = chat_rows(program, [Trajectory("1", "q", "", 1.0, True, "", [given])])
    assert [message["content"] for message in row["messages"] if message["role"] == "assistant"] == [
        "core: A | b | c\nnext_query: B",
        "core: B | c | d\nnext_query: none",
    ]
    assert row["messages"][-2]["content"] == "question: q\nquery: B\nfacts:\nA | b | c\nB | c | d"


@pytest.mark.parametrize("triples", ["", "I cannot do that.", "a | b"])
def test_an_extraction_that_failed_is_not_taught_as_none(index, triples):
    assert rows_of(index, call("construct.extract.triples", {"triples": triples}, title="T", passage="P.")) == []


def test_a_conversation_whose_beginning_did_not_fit_is_told_as_it_was_sent(index):
    """Hop 3 was sent without hop 1; hop 2 had seen it."""
    shown = [{"question": "q", "query": f"q{n}", "facts": f"1. A{n} | b | c"} for n in range(3)]
    said = [{"thought": "t", "core": "1", "next_query": query} for query in ("q1", "q2", "none")]
    turns = [{**asked, **reply} for asked, reply in zip(shown, said, strict=True)]
    histories = [[], turns[:1], turns[1:2]]
    calls = [
        call("integration.integrate", reply, history, **asked)
        for asked, reply, history in zip(shown, said, histories, strict=True)
    ]
    rows = rows_of(index, *calls)
    asked = [[m["content"].split("\n")[1] for m in row["messages"] if m["role"] == "user"] for row in rows]
    assert asked == [["query: q0", "query: q1"], ["query: q1", "query: q2"]]


def test_rows_leave_other_files_alone(index, tmp_path):
    program, trajectories = gathered(index, tmp_path)
    rows = chat_rows(program, trajectories)
    write_rows(tmp_path, rows)  # where the trajectories are
    write_rows(tmp_path, rows[:1])
    names = sorted(path.name for path in tmp_path.glob("*.jsonl"))
    assert names == ["integration.integrate.jsonl", "joint.jsonl", "t.jsonl"]


def test_a_row_may_hold_any_character(tmp_path):
    text = "a\u2028b\x85c"  # ends of a line to Python, not to JSONL
    row = {"predictor": "p", "id": "1"}
    row["messages"] = [{"role": "user", "content": text}, {"role": "assistant", "content": text}]
    write_rows(tmp_path, [row])
    assert read_rows(tmp_path / "joint.jsonl")[0]["messages"] == row["messages"]


def test_files_for_any_trainer(index, tmp_path):
    """JSONL per predictor and joint, loadable with `datasets`; the report counts rows and targets."""
    datasets = pytest.importorskip("datasets")
    program, trajectories = gathered(index, tmp_path)
    rows = chat_rows(program, trajectories)
    report = write_rows(tmp_path / "rows", rows)
    assert report["rows"] == 2
    assert report["by_predictor"]["integration.integrate"]["targets"] == 3
    names = sorted(path.name for path in (tmp_path / "rows").iterdir())
    assert names == [
        "cascade.triples.jsonl",
        "evidence.json",
        "integration.integrate.jsonl",
        "joint.jsonl",
        "report.json",
    ]
    assert read_rows(tmp_path / "rows" / "joint.jsonl") == json.loads(json.dumps(rows))
    for file in (tmp_path / "rows").glob("*.jsonl"):
        assert all(json.loads(line).keys() == {"messages"} for line in file.read_text().splitlines())
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
