"""What is an answer, and when a system may say that it has one: values worked out by hand."""

import pytest

from cirag_dspy.modules.answers import concluded, is_answer

QUESTION = "Where was the director of Harbor Song born?"
LINES = ["Ada Brook: Ada Brook was born in Velden.", "李明: 李明出生于上海。"]


@pytest.mark.parametrize(
    "text",
    ["Velden", "yes", "No", "42", "C++", "$5", "1,000", "Ada Brook, Tom Hale", "上海", "वेल्डेन", "Duran Duran",
     "The Who", "Unknown Pleasures", "I Don't Know How to Love Him", "New York, New York", "B-52", "+44 20 7946",
     "Fact Checking Unit", "the river Ree", "Sorry, Wrong Number", "Einstein on the Beach"],
)  # fmt: skip
def test_answers(text):
    assert is_answer(text, QUESTION)


@pytest.mark.parametrize(
    "text",
    ["", "...", "unanswerable", "I don't know.", "I do not know the answer", "The passages do not mention it.",
     "It is not mentioned in the passages.", "There is no information about that.", "Sorry, but I cannot say.",
     "Cannot be determined from the passages", "我不知道", "无法回答", "Je ne sais pas", "Ich weiß es nicht",
     "the bare answer", "the bare answer, or unanswerable", "bare answer", "answer", "Answer:", "<answer>", "[answer]",
     "{answer}", "your answer here", "[[ ## answer ## ]]", "a name, a date, a number, yes or no", "yes or no",
     "one or two sentences", "in as few words as possible", "The evidence is not enough to answer",
     "Where was the director of Harbor Song born?", "where was the director of harbor song born",
     "Question: Where was the director of Harbor Song born?", "Where was the director of Harbor",
     "<unk>", "</s>", "<|im_end|>", "the the the the the", "}}]]{{:", "�����", '{"answer": "', "null", "None", "N/A"],
)  # fmt: skip
def test_no_answers(text):
    assert not is_answer(text, QUESTION)


def test_a_name_that_looks_like_the_prompt_stands_in_the_evidence():
    assert is_answer("Evidence", "Which film?", ["Evidence: Evidence is a film of 2012."])
    assert not is_answer("evidence", "Which film?", ["Evidence: Evidence is a film of 2012, evidence enough."])
    assert not is_answer("Evidence", "Which film?", ["Velden: a town."])


@pytest.mark.parametrize(
    "answer, forced, refused, answered",
    [
        ("Velden", True, False, True),
        ("Mora", True, False, False),
        ("Mora", False, False, True),
        ("Velden", True, True, False),
        ("Velden", False, True, False),
        ("上海", True, False, True),
        ("北京", True, False, False),
        ("yes", True, False, True),
        ("Harbor Song", True, False, True),  # what the question itself offers
        ("Velden and 上海", True, False, True),
        ("Velden and Mora", True, False, False),
    ],
)
def test_when_it_is_answered(answer, forced, refused, answered):
    assert concluded(answer, QUESTION, LINES, forced=forced, refused=refused) == {
        "answer": answer, "answered": answered,
    }  # fmt: skip


def test_what_is_no_answer_is_left_out():
    assert concluded("unanswerable", QUESTION, LINES, forced=False) == {"answer": "", "answered": False}


@pytest.mark.parametrize(
    "text",
    ["The text doesn't mention it", "unclear", "unsure", "I do not have enough information", "not in the passages",
     "No relevant passages", "I apologize, but I cannot answer", "As an AI language model, I cannot say", "TBD", "idk",
     "It is impossible to say", "not available", "unbekannt", "Inconnu", "None of the passages mention it",
     "The documents do not explicitly say"],
)  # fmt: skip
def test_refusals_in_other_words(text):
    assert not is_answer(text, QUESTION, LINES)


@pytest.mark.parametrize(
    ("text", "line"),
    [("Unknown", "Unknown (2011 film): Unknown is a thriller."), ("None", "Ada Brook | wrote | None"),
     ("No One Knows", "3. No One Knows | performer | The Velds")],
)  # fmt: skip
def test_a_refusals_word_that_names_a_title_or_an_end_of_a_fact_is_an_answer(text, line):
    assert is_answer(text, "Which one?", [line])
    assert not is_answer(text.lower(), "Which one?", [line])
    assert not is_answer(text, "Which one?", [f"Velden: {text} of them came."])
