"""Every branch of the agent: its turns, what it is shown, how it ends, and who gives the answer.

The encoder is word overlap and K = 2, so each query's passages can be read off its words.
"""

import dspy
import pytest

from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.systems import build_system
from cirag_dspy.systems.react import ReAct
from tests.fakes import WordEncoder, fields_of, scripted_lm
from tests.systems.world import titles

QUESTION = "In which town was the director of the film Harbor Song born?"
FIRST = "thought: I need the director.\naction: search[director of Harbor Song]"
SECOND = "thought: Where was she born?\naction: search[birthplace of Ada Brook]"
FINISH = "thought: She was born in Velden.\naction: finish[Velden]"


def ask(index, replies, question=QUESTION, **knobs):
    lm, engine = scripted_lm(replies)
    with dspy.context(lm=lm):
        return ReAct(index, **{"k": 2, **knobs})(question=question), engine.prompts


def fields(prompt):
    return fields_of(prompt[-1]["content"])


def test_search_search_finish(index):
    prediction, prompts = ask(index, [FIRST, SECOND, FINISH])
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Velden", "thoughts", "finished")
    assert [(hop.query, hop.thought) for hop in prediction.hops] == [
        ("director of Harbor Song", "I need the director."),
        ("birthplace of Ada Brook", "Where was she born?"),
        ("", "She was born in Velden."),
    ]
    assert [titles(hop.passage_ids) for hop in prediction.hops] == [
        ["Harbor Song", "Harbor Light"],
        ["Ada Brook", "Harbor Song"],
        [],
    ]
    assert [fields(prompt)["observation"] for prompt in prompts] == [
        "nothing searched for yet",
        "Harbor Song: Harbor Song is a film of 1950. The film Harbor Song was directed by Ada Brook.\n"
        "Harbor Light: Harbor Light is a film of 1961. The film Harbor Light was directed by Tom Hale.",
        "Ada Brook: Ada Brook was a director. Ada Brook was born in Velden.\n"
        "Harbor Song: Harbor Song is a film of 1950. The film Harbor Song was directed by Ada Brook.",
    ]
    assert titles(prediction.passages) == ["Harbor Song", "Ada Brook", "Harbor Light"]
    assert [(c.title, c.sentence) for c in prediction.citations] == [("Ada Brook", 1)]


def test_the_loop_is_one_conversation(index):
    _, prompts = ask(index, [FIRST, SECOND, FINISH])
    one, two, three = prompts
    assert two[: len(one)] == one and three[: len(two)] == two
    assert [message["role"] for message in three] == ["system", *["user", "assistant"] * 2, "user"]
    assert (two[2]["content"], three[4]["content"]) == (FIRST, SECOND)


def test_what_is_written_behind_an_action_does_not_count(index):
    replies = [f"{FIRST}\nobservation: Tom Hale directed it.\nthought: Mora.\naction: finish[Mora]", FINISH]
    prediction, prompts = ask(index, replies)
    assert prediction.hops[0].query == "director of Harbor Song"
    assert prompts[1][2]["content"] == FIRST
    assert prediction.answer == "Velden"


def test_a_repeated_search_is_stopped_and_the_reader_answers(index):
    again = "thought: Again.\naction: search[Director of Harbor Song?]"
    prediction, prompts = ask(index, [FIRST, again, "answer: Velden"])
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Velden", "default", "repeated_query")
    assert [hop.query for hop in prediction.hops] == ["director of Harbor Song", ""]
    assert prediction.hops[1].next_query == "Director of Harbor Song?"
    assert [line.split(":")[0] for line in fields(prompts[-1])["passages"].splitlines()] == [
        "Harbor Song",
        "Harbor Light",
    ]


def test_at_the_limit_the_reader_answers_from_all_that_was_found(index):
    prediction, prompts = ask(index, [FIRST, SECOND, "answer: Velden"], max_hops=2)
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Velden", "default", "max_hops")
    assert len(prediction.hops) == 2 and len(prompts) == 3
    shown = [line.split(":")[0] for line in fields(prompts[-1])["passages"].splitlines()]
    assert shown == titles(prediction.passages) == ["Harbor Song", "Ada Brook", "Harbor Light"]


def test_an_agent_that_finishes_at_once_is_believed(index):
    prediction, prompts = ask(index, [FINISH])
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Velden", "thoughts", "finished")
    assert (prediction.passages, prediction.citations, len(prompts)) == ([], [], 1)


def test_an_action_without_its_label_is_one(index):
    prediction, prompts = ask(index, ["I need the director. search[director of Harbor Song]", "finish[Velden]"])
    assert (prediction.answer, prediction.hops[0].query) == ("Velden", "director of Harbor Song")
    assert len(prompts) == 2


def test_a_refusal_is_no_answer(index):
    prediction, _ = ask(index, [FIRST, "action: finish[unanswerable]", "answer: Velden"])
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Velden", "default", "finished")
    prediction, _ = ask(index, ["action: finish[unknown]", "answer: Velden"])
    assert prediction.answer == "Velden"
    assert [hop.query for hop in prediction.hops] == ["", QUESTION]  # nothing was searched for: plain RAG


def test_a_long_answer_is_shortened(index):
    assert ask(index, ['action: finish["The answer is: Velden."]'])[0].answer == "Velden"


def test_an_unreadable_action_is_asked_for_again_then_the_reader_answers(index):
    prediction, prompts = ask(index, [FIRST, "thought: hm", "action: think[more]", "answer: Velden"])
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Velden", "default", "unreadable")
    assert fields(prompts[2])["problem"] == "the reply has no action:"
    assert prediction.hops[1].error == "the action is neither search[query] nor finish[answer]"
    assert titles(prediction.passages) == ["Harbor Song", "Harbor Light"]


def test_rubbish_falls_back_to_plain_rag(index):
    prediction, _ = ask(index, ["", "{ half", "answer: Velden"])
    assert (prediction.answer, prediction.stopped) == ("Velden", "unreadable")
    assert titles(prediction.passages) == ["Harbor Song", "Harbor Light"]


def test_an_empty_index_finds_nothing_and_the_agent_is_told(tmp_path):
    with CorpusIndex.create(tmp_path / "empty", WordEncoder()) as empty:
        prediction, prompts = ask(empty, [FIRST, SECOND], max_hops=2)
    assert (prediction.answer, prediction.passages, prediction.stopped) == ("", [], "max_hops")
    assert fields(prompts[1])["observation"] == "nothing found"
    assert len(prompts) == 2


def test_a_long_conversation_loses_its_oldest_turn_first(index):
    from dspy.lm15 import ContextLengthError

    replies = iter([FIRST, SECOND, FINISH])

    def reply(messages):
        return ContextLengthError("too long") if len(messages) > 4 else next(replies)

    prediction, prompts = ask(index, reply)
    assert prediction.answer == "Velden"
    assert prompts[-1][2]["content"] == SECOND


def test_an_lm_that_cannot_be_reached_fails_the_question(index):
    with pytest.raises(dspy.utils.exceptions.LMError):
        ask(index, lambda messages: RuntimeError("down"))


def test_program_is_a_dspy_program(index, tmp_path):
    program = build_system("react", None, k=4, max_hops=2)
    assert (program.k, program.max_hops) == (4, 2)
    assert [name for name, _ in program.named_predictors()] == ["act.act", "reader.read"]
    program.act.act.demos = [dspy.Example(question="q", observation="o", thought="t", action="finish[a]")]
    program.save(tmp_path / "program.json")
    again = ReAct(index)
    again.load(tmp_path / "program.json")
    assert again.act.act.demos[0]["action"] == "finish[a]"
    copied = again.deepcopy()
    assert copied.index is index
    lm, engine = scripted_lm([FINISH])
    copied.set_lm(lm)
    assert copied(question=QUESTION).answer == "Velden"
    assert engine.prompts[0][2]["content"] == "thought: t\naction: finish[a]"


@pytest.mark.parametrize("knob", ["k", "max_hops"])
def test_knobs_are_checked(knob):
    with pytest.raises(ValueError, match=f"{knob} must be at least 1, not 0"):
        ReAct(None, **{knob: 0})
