"""What gives way where a prompt is too long, at inference as in training rows."""

import dspy
import pytest

from cirag_dspy import signatures
from cirag_dspy.modules.ask import ask
from cirag_dspy.modules.fit import giving_way, one_less, smaller
from tests.fakes import scripted_lm

EIGHT = "\n".join(f"{number}. fact {number}" for number in range(1, 9))


def test_the_last_quarter_of_the_lines_goes_at_a_time():
    less = smaller({"question": "q", "facts": EIGHT})
    assert less == {"question": "q", "facts": "\n".join(EIGHT.splitlines()[:6])}
    assert smaller({"question": "q", "passages": "a\nb"}) == {"question": "q", "passages": "a"}
    assert smaller({"question": "q", "passages": "a"}) is None


def test_the_oldest_turn_goes_first():
    turns = [{"question": "q", "query": str(n), "facts": "f"} for n in range(2)]
    given = {"history": dspy.History(messages=turns), "question": "q", "facts": EIGHT}
    less = smaller(given)
    assert less["history"].messages == turns[1:] and less["facts"] == EIGHT
    assert smaller(less)["history"].messages == []
    assert smaller(smaller(less))["facts"] == "\n".join(EIGHT.splitlines()[:6])


def test_of_one_line_sentences_go_and_a_single_sentence_only_where_it_is_long():
    assert smaller({"title": "t", "passage": "One. Two. Three."})["passage"] == "One. Two."
    assert smaller({"passage": "राम आया। सीता गई। लव हँसा।"})["passage"] == "राम आया। सीता गई।"
    assert smaller({"passage": "word " * 60})["passage"] == ("word " * 30).strip()
    assert smaller({"passage": "漢" * 300})["passage"] == "漢" * 150
    assert smaller({"passage": "word " * 20}) is None


def test_reasoning_loses_its_beginning_for_its_conclusion_stands_at_the_end():
    given = {
        "question": "q",
        "previous": "Song is by Ada. Ada is of Velden. The answer is: Velden",
        "subquestion": "s",
        "finding": "x",
    }
    assert smaller(given)["previous"] == "Ada is of Velden. The answer is: Velden"


def test_one_less_goes_line_by_line_then_by_the_sentences_of_the_first():
    steps = list(one_less({"question": "q", "passages": "T: One. Two.\nU: Three.\nV: Four."}))
    assert [less["passages"] for less, _, _ in steps] == ["T: One. Two.\nU: Three.", "T: One. Two.", "T: One."]
    assert [gone for _, gone, _ in steps] == ["V: Four.", "U: Three.", "Two."]
    assert steps[0][2] == ["T: One. Two.", "U: Three."]


@pytest.mark.parametrize(
    "signature",
    [kind for kind in vars(signatures).values() if isinstance(kind, type) and issubclass(kind, dspy.Signature)],
    ids=lambda kind: kind.__name__,
)
def test_what_a_signature_asks_with_never_gives_way(signature):
    """Through ``ask``, with an LM that finds every prompt too long."""
    if not signature.input_fields:
        return
    never = {"question", "query", "title", "chain", "advice", "feedback", "subquestion", "open_questions", "problems"}
    given = {name: f"{name}: {'word ' * 8}.\n{name}: b.\n{name}: c." for name in signature.input_fields}
    given = {name: text if name in giving_way(given) else name for name, text in given.items()}
    if "history" in given:
        given["history"] = dspy.History(messages=[{name: name for name in signature.fields if name != "history"}])
    from dspy.lm15 import ContextLengthError

    lm, engine = scripted_lm(lambda messages: ContextLengthError("too long"))
    with dspy.context(lm=lm), pytest.raises(dspy.ContextWindowExceededError):
        ask(dspy.Predict(signature), given)
    for prompt in engine.prompts:
        assert prompt[0] == engine.prompts[0][0]
        for name in never & given.keys():
            assert f"{name}: {name}" in prompt[-1]["content"]
    assert not never & set(giving_way(given))
    sizes = [sum(len(message["content"]) for message in prompt) for prompt in engine.prompts]
    assert sizes == sorted(sizes, reverse=True)
    context = {"facts", "passages", "passage", "evidence", "knowledge", "observation", "notes", "summary", "thoughts"}
    assert (len(sizes) > 1) >= bool(context & given.keys())
