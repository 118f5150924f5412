"""Every rule of the loop: what is searched for, what is collected, what the prompts show, and why it ends.

The encoder is word overlap and K = 2, so each query's passages can be read off its words.
"""

import dspy
import pytest

from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.systems import build_system
from cirag_dspy.systems.ircot import IRCoT
from tests.fakes import WordEncoder, fields_of, scripted_lm
from tests.systems.world import titles

QUESTION = "In which town was the director of the film Harbor Song born?"
DIRECTOR = "The director was Ada Brook."
BORN = "Ada Brook was born in Velden."
ANSWER = "So the answer is: Velden."


def ask(index, replies, question=QUESTION, **knobs):
    lm, engine = scripted_lm(replies)
    with dspy.context(lm=lm):
        prediction = IRCoT(index, **{"k": 2, **knobs})(question=question)
    return prediction, [fields_of(prompt[-1]["content"]) for prompt in engine.prompts]


def shown(prompt):
    return [line.split(":")[0] for line in prompt["passages"].splitlines()]


def test_thoughts_are_the_queries_and_passages_accumulate(index):
    replies = [f"thought: {DIRECTOR}", f"thought: {BORN}", f"thought: {ANSWER}", "answer: Velden"]
    prediction, prompts = ask(index, replies)
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Velden", "passages", "answered")
    assert [hop.query for hop in prediction.hops] == [QUESTION, DIRECTOR, BORN]
    assert [hop.thought for hop in prediction.hops] == [DIRECTOR, BORN, ANSWER]
    assert [hop.next_query for hop in prediction.hops] == [DIRECTOR, BORN, ""]
    assert [titles(hop.passage_ids) for hop in prediction.hops] == [
        ["Harbor Song", "Harbor Light"],
        ["Ada Brook", "Harbor Song"],
        ["Ada Brook", "Tom Hale"],
    ]
    # Each prompt shows all passages so far, each once, and the thoughts so far.
    assert shown(prompts[0]) == ["Harbor Song", "Harbor Light"]
    assert shown(prompts[1]) == ["Harbor Song", "Harbor Light", "Ada Brook"]
    assert shown(prompts[2]) == ["Harbor Song", "Harbor Light", "Ada Brook", "Tom Hale"]
    assert [prompt.get("thoughts") for prompt in prompts] == ["none", DIRECTOR, f"{DIRECTOR} {BORN}", None]
    assert prompts[0]["passages"].startswith("Harbor Song: Harbor Song is a film of 1950. The film")
    # The reader is a separate call without the thoughts; what ranked first in a search comes first.
    assert set(prompts[3]) == {"question", "passages"}
    assert shown(prompts[3]) == titles(prediction.passages) == ["Harbor Song", "Ada Brook", "Harbor Light", "Tom Hale"]
    assert [(c.title, c.sentence) for c in prediction.citations] == [("Ada Brook", 1)]


def test_the_answer_is_the_readers_not_the_chains(index):
    prediction, _ = ask(index, ["thought: The answer is Mora.", "answer: Velden"])
    assert (prediction.answer, prediction.stopped, len(prediction.hops)) == ("Velden", "answered", 1)
    assert prediction.hops[0].next_query == ""


def test_only_the_first_sentence_of_a_reply_counts(index):
    replies = [f"thought: {DIRECTOR} {ANSWER}", f"thought: {ANSWER}", "answer: Velden"]
    prediction, prompts = ask(index, replies)
    assert [hop.thought for hop in prediction.hops] == [DIRECTOR, ANSWER]
    assert prompts[1]["thoughts"] == DIRECTOR


@pytest.mark.parametrize(
    "conclusion",
    ["Thus she was born in Mora.", "So it was Velden.", "Hence, Velden.", "1961 - 1950 = 11.", "That is, a town."],
)
def test_a_conclusion_is_not_searched_for(index, conclusion):
    replies = [f"thought: {conclusion}", f"thought: {ANSWER}", "answer: Velden"]
    prediction, prompts = ask(index, replies)
    assert [(hop.query, hop.thought) for hop in prediction.hops] == [(QUESTION, conclusion), ("", ANSWER)]
    assert prediction.hops[0].next_query == "" and prediction.hops[1].passage_ids == ()
    assert (prompts[1]["thoughts"], shown(prompts[1])) == (conclusion, ["Harbor Song", "Harbor Light"])


@pytest.mark.parametrize("fact", ["Sonja Brook was born in Velden.", "That town is Velden.", "It lasted 1950-1961."])
def test_a_fact_that_looks_like_a_conclusion_is_searched_for(index, fact):
    prediction, _ = ask(index, [f"thought: {fact}", f"thought: {ANSWER}", "answer: Velden"])
    assert prediction.hops[1].query == fact


def test_an_answer_that_is_none_does_not_end_it(index):
    unknown = "The answer is not known yet."
    prediction, _ = ask(index, [f"thought: {unknown}", f"thought: {ANSWER}", "answer: Velden"])
    assert [hop.query for hop in prediction.hops] == [QUESTION, unknown]


def test_no_more_than_keep_are_collected_and_the_first_stay(index):
    replies = [f"thought: {DIRECTOR}", f"thought: {BORN}", f"thought: {ANSWER}", "answer: Velden"]
    prediction, prompts = ask(index, replies, keep=3)
    assert [len(shown(prompt)) for prompt in prompts] == [2, 3, 3, 3]
    assert titles(prediction.passages) == ["Harbor Song", "Ada Brook", "Harbor Light"]
    assert titles(prediction.hops[2].passage_ids) == ["Ada Brook", "Tom Hale"]  # found, not kept


def test_it_ends_at_max_hops(index):
    replies = [f"thought: {DIRECTOR}", f"thought: {BORN}", "answer: Velden"]
    prediction, prompts = ask(index, replies, max_hops=2)
    assert (prediction.answer, prediction.stopped, len(prediction.hops)) == ("Velden", "max_hops", 2)
    assert len(prompts) == 3
    assert titles(prediction.passages) == ["Harbor Song", "Ada Brook", "Harbor Light"]


def test_an_lm_that_repeats_itself_is_stopped(index):
    prediction, prompts = ask(index, [f"thought: {DIRECTOR}", "thought: the director was ada brook", "answer: Velden"])
    assert (prediction.answer, prediction.stopped, len(prompts)) == ("Velden", "repeated_thought", 3)


def test_a_reply_without_the_label_is_a_thought(index):
    prediction, _ = ask(index, [DIRECTOR, ANSWER, "answer: Velden"])
    assert [hop.thought for hop in prediction.hops] == [DIRECTOR, ANSWER]


def test_an_unreadable_thought_is_asked_for_again_then_what_there_is_is_read(index):
    prediction, prompts = ask(index, [f"thought: {DIRECTOR}", "thought:", "thought: ...", "answer: Velden"])
    assert (prediction.answer, prediction.stopped) == ("Velden", "unreadable")
    assert prompts[2]["problem"] == "the thought is empty"
    assert prediction.hops[1].error == "the thought is empty"
    assert shown(prompts[3]) == ["Harbor Song", "Ada Brook", "Harbor Light"]


def test_an_unreadable_answer_is_empty(index):
    prediction, _ = ask(index, [f"thought: {ANSWER}", "", ""])
    assert (prediction.answer, prediction.citations, prediction.stopped) == ("", [], "answered")
    assert titles(prediction.passages) == ["Harbor Song", "Harbor Light"]


def test_an_empty_index_calls_no_lm(tmp_path):
    with CorpusIndex.create(tmp_path / "empty", WordEncoder()) as empty:
        prediction, prompts = ask(empty, [])
    assert (prediction.answer, prediction.passages, prediction.hops) == ("", [], [])
    assert (prediction.stopped, prompts) == ("nothing_found", [])


def test_passages_beyond_the_context_are_left_out(index):
    from dspy.lm15 import ContextLengthError

    def reply(messages):
        fields = fields_of(messages[-1]["content"])
        if len(fields["passages"].splitlines()) > 1:
            return ContextLengthError("too long")
        return f"thought: {ANSWER}" if "thoughts" in fields else "answer: Velden"

    assert ask(index, reply)[0].answer == "Velden"


def test_an_lm_that_cannot_be_reached_fails_the_question(index):
    with pytest.raises(dspy.utils.exceptions.LMError):
        ask(index, lambda messages: RuntimeError("down"))


def test_program_is_a_dspy_program(index, tmp_path):
    program = build_system("ircot", None, k=3, keep=9, max_hops=7)
    assert (program.k, program.keep, program.max_hops) == (3, 9, 7)
    assert [name for name, _ in program.named_predictors()] == ["reason.reason", "reader.read"]
    program.reason.reason.demos = [dspy.Example(question="q", passages="p", thoughts="none", thought="t.")]
    program.save(tmp_path / "program.json")
    again = IRCoT(index, k=2)
    again.load(tmp_path / "program.json")
    assert again.reason.reason.demos[0]["thought"] == "t."
    copied = again.deepcopy()
    assert copied.index is index
    lm, engine = scripted_lm([f"thought: {ANSWER}", "answer: Velden"])
    copied.set_lm(lm)
    assert copied(question=QUESTION).answer == "Velden"
    assert engine.prompts[0][2]["content"] == "thought: t."


@pytest.mark.parametrize("knob", ["k", "keep", "max_hops"])
def test_knobs_are_checked(knob):
    with pytest.raises(ValueError, match=f"{knob} must be at least 1, not 0"):
        IRCoT(None, **{knob: 0})
