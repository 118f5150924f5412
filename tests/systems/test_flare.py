"""Every branch of FLARE: drafts that stand, drafts that are searched with, the answer and the reason to stop.

The scripted LM gives each token of a draft the log-probability that the test says; a token is a word.
"""

import math
import re

import dspy
import pytest
from dspy.lm15 import Message, Response, TokenLogprob, Usage

from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import Document
from cirag_dspy.errors import ModelError
from cirag_dspy.systems.flare import FLARE, doubted, stated
from tests.fakes import ScriptedEngine, WordEncoder, fields_of, scripted_lm
from tests.systems.world import PASSAGES

QUESTION = "In which town was the director of the film Harbor Song born?"


@pytest.fixture
def index(tmp_path):
    with CorpusIndex.create(tmp_path / "index", WordEncoder()) as built:
        built.add(Document(passage.id, (passage,)) for passage in PASSAGES.values())
        yield built


class DoubtingEngine(ScriptedEngine):
    """Words with a ? behind them are unlikely; the ? is not part of the text."""

    def complete(self, request):
        reply = super().complete(request).message.text
        tokens = re.findall(r"\s*\S+", reply)
        scores = tuple(
            TokenLogprob(token=token.removesuffix("?"), logprob=math.log(0.1 if token.endswith("?") else 0.9))
            for token in tokens
        )
        return Response(
            id=None,
            model="scripted",
            message=Message.assistant("".join(score.token for score in scores)),
            finish_reason="stop",
            usage=Usage(input_tokens=1, output_tokens=1),
            logprobs=scores if request.config.logprobs is not None else None,
        )


def ask(index, replies, **knobs):
    script = iter(replies)
    engine = DoubtingEngine(lambda messages: next(script))
    with dspy.context(lm=dspy.LM("scripted/lm", engine=engine, cache=False, num_retries=0)):
        prediction = FLARE(index, **{"k": 1, **knobs})(question=QUESTION)
    return prediction, [fields_of(prompt[-1]["content"]) for prompt in engine.prompts]


def titles(ids):
    names = {passage.id: title for title, passage in PASSAGES.items()}
    return [names[id] for id in ids]


def test_a_sure_draft_stands_and_a_doubtful_one_is_searched_with_and_written_again(index):
    replies = [
        "thought: Harbor Song is a film.",
        "thought: The film Harbor Song was directed by Tom? Hale.?",
        "thought: The film Harbor Song was directed by Ada Brook. More text.",
        "thought: Ada Brook was born in Mora.?",
        "thought: Ada Brook was born in Velden.",
        "thought: So the answer is: Velden.",
    ]
    prediction, prompts = ask(index, replies)
    assert [fields["passages"].split(":")[0] for fields in prompts] == [
        "none",
        "none",
        "Harbor Song",
        "none",
        "Ada Brook",
        "none",
    ]
    assert [hop.query for hop in prediction.hops] == ["The film Harbor Song was directed by", "Ada Brook was born in"]
    assert prediction.hops[0].thought == "The film Harbor Song was directed by Ada Brook."
    assert prompts[3]["thoughts"] == "Harbor Song is a film. The film Harbor Song was directed by Ada Brook."
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Velden", "passages", "answered")
    assert titles(prediction.passages) == ["Ada Brook", "Harbor Song"]
    assert [(citation.title, citation.sentence) for citation in prediction.citations] == [("Ada Brook", 1)]


def test_an_answer_from_memory_retrieves_nothing(index):
    prediction, prompts = ask(index, ["thought: The answer is Velden."])
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Velden", "memory", "answered")
    assert (prediction.passages, prediction.hops, len(prompts)) == ([], [], 1)


def test_a_doubtful_answer_is_searched_with(index):
    prediction, _ = ask(index, ["thought: Ada Brook: the answer is Mora.?", "thought: The answer is Velden."])
    assert [hop.query for hop in prediction.hops] == ["Ada Brook: the answer is"]
    assert (prediction.answer, prediction.level) == ("Velden", "passages")


def test_a_draft_of_nothing_but_doubt_stands(index):
    prediction, _ = ask(index, ["thought: Perhaps? so.?", "thought: The answer is Velden."])
    assert (prediction.hops, prediction.thought) == ([], "Perhaps so. The answer is Velden.")


def test_the_limit_is_on_sentences(index):
    replies = ["thought: Harbor Song is a film.", "thought: Ada Brook made it.", "answer: Velden"]
    prediction, prompts = ask(index, replies, max_hops=2)
    assert (prediction.stopped, prediction.level, prediction.answer) == ("max_hops", "default", "Velden")
    assert prompts[2]["passages"].startswith("Harbor Song: ")  # the question's own search: there was no other
    assert titles(prediction.passages) == ["Harbor Song"]


def test_a_sentence_that_comes_again_ends_the_text(index):
    replies = ["thought: Ada Brook made it.?", "thought: It is hers.", "thought: It is hers.", "answer: Velden"]
    prediction, prompts = ask(index, replies)
    assert (prediction.stopped, prediction.level, prediction.answer) == ("repeated_thought", "default", "Velden")
    assert prompts[3]["passages"].startswith("Ada Brook: ")


def test_an_unreadable_draft_leaves_the_reader(index):
    prediction, _ = ask(index, ["", "", "answer: Ada Brook"])
    assert (prediction.stopped, prediction.level, prediction.answer) == ("unreadable", "default", "Ada Brook")


def test_what_cannot_be_written_again_stays_as_drafted(index):
    replies = ["thought: Ada Brook was born in Velden.?", "", "", "thought: The answer is Velden."]
    prediction, _ = ask(index, replies)
    assert prediction.thought == "Ada Brook was born in Velden. The answer is Velden."


def test_an_empty_index_still_ends(tmp_path):
    with CorpusIndex.create(tmp_path / "empty", WordEncoder()) as index:
        prediction, _ = ask(index, ["thought: Ada Brook.?", "thought: x."], max_hops=1)
    assert (prediction.answer, prediction.passages, prediction.stopped) == ("", [], "max_hops")


def test_an_lm_without_logprobs_is_refused_in_one_line(index):
    lm, _ = scripted_lm(["thought: Harbor Song is a film."])
    with dspy.context(lm=lm), pytest.raises(ModelError, match="flare needs log-probabilities"):
        FLARE(index)(question=QUESTION)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [({"k": 0}, "k must be at least 1"), ({"threshold": 1.5}, "threshold must be from 0 to 1, not 1.5")],
)
def test_knobs_are_checked(knobs, message):
    with pytest.raises(ValueError, match=message):
        FLARE(None, **knobs)


def test_state_goes_through_a_file(index, tmp_path):
    saved = FLARE(index)
    saved.think.think.signature = saved.think.think.signature.with_instructions("Reason.")
    saved.save(tmp_path / "flare.json")
    loaded = FLARE(index)
    loaded.load(tmp_path / "flare.json")
    assert loaded.think.think.signature.instructions == "Reason."


@pytest.mark.parametrize(
    ("tokens", "query"),
    [
        ([(" Ada", -0.1), (" Bro", -0.1), ("ok", -3.0), (" lived", -0.1)], "Ada lived"),
        ([(" Ada", -0.1), (" lived", -0.1)], ""),
        ([(" Ada", -3.0)], ""),
        ([], ""),
        ([("Ada", math.log(0.2)), (" lived", math.log(0.21))], "lived"),
    ],
)
def test_queries(tokens, query):
    assert doubted(tokens, 0.2) == query


@pytest.mark.parametrize(
    ("thought", "answer"),
    [("So the answer is: Velden.", "Velden"), ("The answer is unknown.", ""), ("The answer is", "")],
)
def test_stated_answers(thought, answer):
    assert stated(thought) == answer
