"""Every branch of IRCoT's loop: the searches, what each prompt shows, the chain, the reader's passages and the reason to stop."""

import dspy
import pytest

from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import Document
from cirag_dspy.modules.next_thought import is_conclusion, states_answer
from cirag_dspy.systems.ircot import IRCoT
from tests.fakes import WordEncoder, fields_of, scripted_lm
from tests.systems.world import PASSAGES

QUESTION = "In which town was the director of the film Harbor Song born?"
DIRECTED = "The film Harbor Song was directed by Ada Brook."
BORN = "Ada Brook was born in Velden."


@pytest.fixture
def index(tmp_path):
    with CorpusIndex.create(tmp_path / "index", WordEncoder()) as built:
        built.add(Document(passage.id, (passage,)) for passage in PASSAGES.values())
        yield built


def ask(index, replies, question=QUESTION, **knobs):
    lm, engine = scripted_lm(replies)
    with dspy.context(lm=lm):
        prediction = IRCoT(index, **{"k": 2, **knobs})(question=question)
    return prediction, [fields_of(prompt[-1]["content"]) for prompt in engine.prompts]


def shown(fields):
    return [line.split(":")[0] for line in fields["passages"].splitlines()]


def titles(ids):
    names = {passage.id: title for title, passage in PASSAGES.items()}
    return [names[id] for id in ids]


def test_each_thought_is_searched_with_and_passages_accumulate(index):
    replies = [f"thought: {DIRECTED}", f"thought: {BORN}", "thought: So the answer is: Velden.", "answer: Velden"]
    prediction, prompts = ask(index, replies)
    assert [hop.query for hop in prediction.hops] == [QUESTION, DIRECTED, BORN]
    assert [titles(hop.passage_ids) for hop in prediction.hops] == [
        ["Harbor Song", "Harbor Light"],
        ["Harbor Song", "Harbor Light"],
        ["Ada Brook", "Tom Hale"],
    ]
    assert [fields["thoughts"] for fields in prompts[:3]] == ["none yet", DIRECTED, f"{DIRECTED} {BORN}"]
    assert shown(prompts[2]) == ["Harbor Song", "Harbor Light", "Ada Brook", "Tom Hale"]
    # A separate reader answers from all of them; it sees no thought.
    assert shown(prompts[3]) == ["Harbor Song", "Harbor Light", "Ada Brook", "Tom Hale"]
    assert "thoughts" not in prompts[3]
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Velden", "passages", "answered")
    assert prediction.thought == f"{DIRECTED} {BORN} So the answer is: Velden."
    assert titles(prediction.passages) == ["Harbor Song", "Harbor Light", "Ada Brook", "Tom Hale"]
    assert [(citation.title, citation.sentence) for citation in prediction.citations] == [("Ada Brook", 1)]


def test_only_the_first_sentence_of_a_reply_is_kept(index):
    replies = [f"thought: {DIRECTED} {BORN} So the answer is: Mora.", "thought: So the answer is: x", "answer: Velden"]
    prediction, _ = ask(index, replies)
    assert [hop.query for hop in prediction.hops] == [QUESTION, DIRECTED]
    assert prediction.thought == f"{DIRECTED} So the answer is: x"


def test_an_answer_at_once_takes_one_search(index):
    prediction, prompts = ask(index, ["thought: The answer is Velden.", "answer: Velden"])
    assert [hop.query for hop in prediction.hops] == [QUESTION]
    assert prediction.hops[0].next_query == ""
    assert len(prompts) == 2


def test_a_conclusion_is_not_searched_with(index):
    concluded = "Therefore the director is Ada Brook."
    prediction, prompts = ask(index, [f"thought: {concluded}", "thought: So the answer is: Velden", "answer: Velden"])
    assert [(hop.query, hop.passage_ids) for hop in prediction.hops][1] == ("", ())
    assert shown(prompts[1]) == ["Harbor Song", "Harbor Light"]
    assert prompts[1]["thoughts"] == concluded
    assert prediction.stopped == "answered"


def test_the_limit_is_on_sentences(index):
    prediction, prompts = ask(index, [f"thought: {DIRECTED}", f"thought: {BORN}", "answer: Velden"], max_hops=2)
    assert [hop.query for hop in prediction.hops] == [QUESTION, DIRECTED]
    assert (prediction.stopped, prediction.answer) == ("max_hops", "Velden")
    assert len(prompts) == 3


def test_a_thought_that_comes_again_ends_the_chain(index):
    prediction, _ = ask(index, [f"thought: {DIRECTED}", f"thought: {DIRECTED.lower()}", "answer: Velden"])
    assert (prediction.stopped, len(prediction.hops)) == ("repeated_thought", 2)


def test_no_more_passages_than_may_be_kept(index):
    replies = [f"thought: {DIRECTED}", f"thought: {BORN}", "thought: So the answer is: Velden", "answer: Velden"]
    prediction, prompts = ask(index, replies, keep=3)
    assert shown(prompts[3]) == ["Harbor Song", "Harbor Light", "Ada Brook"]
    assert titles(prediction.hops[2].passage_ids) == ["Ada Brook", "Tom Hale"]


def test_an_unreadable_reply_leaves_the_reader(index):
    prediction, _ = ask(index, ["thought: ...", "", "answer: Ada Brook"])
    assert (prediction.stopped, prediction.answer) == ("unreadable", "Ada Brook")


def test_an_empty_index_calls_no_lm(tmp_path):
    with CorpusIndex.create(tmp_path / "empty", WordEncoder()) as index:
        prediction, prompts = ask(index, [])
    assert (prediction.answer, prediction.passages, prediction.stopped, prompts) == ("", [], "no_passages", [])


@pytest.mark.parametrize("knob", ["k", "max_hops", "keep"])
def test_knobs_are_checked(knob):
    with pytest.raises(ValueError, match=f"{knob} must be at least 1, not 0"):
        IRCoT(None, **{knob: 0})


def test_state_goes_through_a_file(index, tmp_path):
    saved = IRCoT(index)
    saved.think.think.signature = saved.think.think.signature.with_instructions("Reason.")
    saved.save(tmp_path / "ircot.json")
    loaded = IRCoT(index)
    loaded.load(tmp_path / "ircot.json")
    assert loaded.think.think.signature.instructions == "Reason."


@pytest.mark.parametrize(
    ("thought", "answered", "concludes"),
    [
        ("So the answer is: Velden", True, True),
        ("The answer is Velden.", True, False),
        ("Ada Brook was born in Velden.", False, False),
        ("Hence it is in Velden.", False, True),
        ("1961 - 1950 is 11.", False, True),
        ("Sofia is a city.", False, False),
        ("Theanswer isle is a rock.", False, False),
        ("Harbor Light was made in 1961-62.", False, True),
    ],
)
def test_what_a_thought_does(thought, answered, concludes):
    assert (states_answer(thought), is_conclusion(thought)) == (answered, concludes)
