"""Every branch of ReAct's loop: turns, observations, searches, the answer and the reason to stop."""

import dspy
import pytest

from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import Document
from cirag_dspy.modules.act import read_action
from cirag_dspy.systems.react import ReAct
from tests.fakes import WordEncoder, fields_of, scripted_lm
from tests.systems.world import PASSAGES

QUESTION = "In which town was the director of the film Harbor Song born?"


@pytest.fixture
def index(tmp_path):
    with CorpusIndex.create(tmp_path / "index", WordEncoder()) as built:
        built.add(Document(passage.id, (passage,)) for passage in PASSAGES.values())
        yield built


def ask(index, replies, **knobs):
    lm, engine = scripted_lm(replies)
    with dspy.context(lm=lm):
        prediction = ReAct(index, **{"k": 1, **knobs})(question=QUESTION)
    return prediction, engine.prompts


def titles(ids):
    names = {passage.id: title for title, passage in PASSAGES.items()}
    return [names[id] for id in ids]


def act(action, thought="t"):
    return f"thought: {thought}\naction: {action}"


def test_two_searches_then_the_answer(index):
    replies = [
        act("search: director of the film Harbor Song", "Find the director."),
        act("Search[Ada Brook was born in]", "It is Ada Brook."),
        act("Finish[Velden]", "Done."),
    ]
    prediction, prompts = ask(index, replies)
    assert [hop.query for hop in prediction.hops] == ["director of the film Harbor Song", "Ada Brook was born in"]
    assert [titles(hop.passage_ids) for hop in prediction.hops] == [["Harbor Song"], ["Ada Brook"]]
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Velden", "passages", "finished")
    assert prediction.thought == "Done."
    assert titles(prediction.passages) == ["Harbor Song", "Ada Brook"]
    assert [(citation.title, citation.sentence) for citation in prediction.citations] == [("Ada Brook", 1)]
    # A turn a search: each prompt is the one before it, what was replied, and what that found.
    assert [len(prompt) for prompt in prompts] == [2, 4, 6]
    assert prompts[2][:3] == prompts[1][:3]
    assert fields_of(prompts[0][1]["content"])["observation"] == "none yet: nothing was searched"
    assert prompts[2][2]["content"] == "thought: Find the director.\naction: search: director of the film Harbor Song"
    assert fields_of(prompts[2][5]["content"]) == {
        "question": QUESTION,
        "observation": "Ada Brook: Ada Brook was a director. Ada Brook was born in Velden.",
    }


def test_a_search_made_before_is_not_made_again(index):
    replies = [act("search: Ada Brook"), act("search: ada brook!"), "answer: Velden"]
    prediction, prompts = ask(index, replies)
    assert (prediction.stopped, prediction.level, prediction.answer) == ("repeated_query", "default", "Velden")
    assert len(prediction.hops) == 1
    assert fields_of(prompts[2][-1]["content"])["passages"].startswith("Ada Brook: ")


def test_the_limit_is_on_turns(index):
    replies = [act("search: Harbor Song"), act("search: Ada Brook"), "answer: Velden"]
    prediction, _ = ask(index, replies, max_hops=2)
    assert (prediction.stopped, prediction.level, prediction.answer) == ("max_hops", "default", "Velden")
    assert titles(prediction.passages) == ["Harbor Song", "Ada Brook"]


def test_an_unreadable_turn_leaves_what_was_found(index):
    replies = [act("search: Harbor Song"), "hm", act("wait"), "answer: Ada Brook"]
    prediction, prompts = ask(index, replies)
    assert (prediction.stopped, prediction.level, prediction.answer) == ("unreadable", "default", "Ada Brook")
    assert "problem: " in prompts[2][-1]["content"]


def test_without_any_search_the_question_is_searched(index):
    prediction, prompts = ask(index, ["", "", "answer: Ada Brook"])
    assert (prediction.stopped, prediction.answer) == ("unreadable", "Ada Brook")
    assert [(hop.query, titles(hop.passage_ids)) for hop in prediction.hops] == [(QUESTION, ["Harbor Song"])]
    assert fields_of(prompts[2][-1]["content"])["passages"].startswith("Harbor Song: ")


def test_an_answer_without_a_search_rests_on_nothing(index):
    prediction, _ = ask(index, [act("finish: Velden")])
    assert (prediction.answer, prediction.passages, prediction.citations, prediction.hops) == ("Velden", [], [], [])


def test_an_answer_that_is_a_refusal_is_asked_for_once_more(index):
    replies = [act("search: Harbor Song"), act("finish: unanswerable"), act("finish: Ada Brook")]
    prediction, _ = ask(index, replies)
    assert (prediction.answer, prediction.stopped) == ("Ada Brook", "finished")


def test_an_empty_index_still_ends(tmp_path):
    with CorpusIndex.create(tmp_path / "empty", WordEncoder()) as index:
        prediction, prompts = ask(index, [act("search: Ada Brook"), act("search: Velden")], max_hops=2)
    assert (prediction.answer, prediction.passages, prediction.level) == ("", [], "default")
    assert fields_of(prompts[1][-1]["content"])["observation"] == "nothing found"


@pytest.mark.parametrize("knob", ["k", "max_hops"])
def test_knobs_are_checked(knob):
    with pytest.raises(ValueError, match=f"{knob} must be at least 1, not 0"):
        ReAct(None, **{knob: 0})


def test_state_goes_through_a_file(index, tmp_path):
    saved = ReAct(index)
    saved.actor.act.signature = saved.actor.act.signature.with_instructions("Act.")
    saved.save(tmp_path / "react.json")
    loaded = ReAct(index)
    loaded.load(tmp_path / "react.json")
    assert loaded.actor.act.signature.instructions == "Act."


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("search: Ada Brook", ("Ada Brook", "")),
        ("Search[Ada Brook (director)]", ("Ada Brook (director)", "")),
        ("**search:** Ada Brook", ("Ada Brook", "")),
        ('search "Ada Brook"', ("Ada Brook", "")),
        ("Action 2: Search[Velden]", ("Velden", "")),
        ("finish: The answer is Velden.", ("", "Velden")),
        ("Finish(Velden)\nThat is all.", ("", "Velden")),
        ("answer: Velden", ("", "Velden")),
        ("finish: unknown", ("", "")),
        ("search: none", ("", "")),
        ("search", ("", "")),
        ("Ada Brook", ("", "")),
        ("", ("", "")),
    ],
)
def test_actions(text, read):
    assert read_action(text) == read
