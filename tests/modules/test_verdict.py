import pytest

from cirag_dspy.modules.ask import Reply
from cirag_dspy.modules.verdict import parse_yes_no, unclear


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("yes", True),
        ("Yes.", True),
        ("**Yes**, no fact is missing", True),
        ("The answer is yes", True),
        ("true", True),
        ("Yes, it names the director.", True),
        ("They are sufficient", True),
        ("relevant", True),
        ("It is relevant.", True),
        ("The same person", True),
        ("no", False),
        ("No, although yes would be nice", False),
        ("not sufficient", False),
        ("insufficient", False),
        ("irrelevant", False),
        ("It is not relevant.", False),
        ("It isn't relevant", False),
        ("They don't mean the same", False),
        ("A different person", False),
        ("They aren't enough", False),
        ("They aren’t enough", False),
        ("\n\nno\nyes", False),
        ("I know another Norwegian", None),  # no word of it is "no"
        ("yesterday", None),
        ("hard to say\nyes", None),
        ("unknown", None),
        ("unclear", None),
        ("", None),
    ],
)
def test_yes_and_no_are_words(text, verdict):
    assert parse_yes_no(text) is verdict


def test_what_is_wrong_is_said():
    assert unclear(Reply({"known": "yes"}), "known") == ""
    assert unclear(Reply({"known": "perhaps"}), "known") == "known is neither yes nor no"
    assert unclear(Reply(problem="the reply has no known:"), "known") == "the reply has no known:"


@pytest.mark.parametrize(
    ("text", "verdict"),
    [("是", True), ("**Ja**", True), ("Oui.", True), ("y", True), ("✅", True), ("不", False), ("Nein", False),
     ("n", False), ("❌", False), ("non", False), ("ja nein", None), ("Sim City", None)],
)  # fmt: skip
def test_a_whole_line_in_another_language(text, verdict):
    assert parse_yes_no(text) is verdict
