"""Actions as LMs write them."""

import pytest

from cirag_dspy.modules.act import read_action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("search[Ada Brook]", ("search", "Ada Brook")),
        ("Search [ Ada Brook ].", ("search", "Ada Brook")),
        ("Action 1: Finish[1950]", ("finish", "1950")),
        ("finish[Washington, D.C.]", ("finish", "Washington, D.C.")),
        ("search[list [of] towns] and more", ("search", "list [of] towns")),
        ("search[Mora (town)]\nobservation: none\naction: finish[Mora]", ("search", "Mora (town)")),
        ("I need her birthplace. search[Ada Brook born", ("search", "Ada Brook born")),
        ("I will search for it first. Search[Ada Brook]", ("search", "Ada Brook")),
        ('search("Ada Brook")', ("search", "Ada Brook")),
        ("`search: Ada Brook`", ("search", "Ada Brook")),
        ("finish(Velden)", ("finish", "Velden")),
        ("finish: Harbor Song (film)", ("finish", "Harbor Song (film)")),
        ('{"search": "Ada Brook"}', ("search", "Ada Brook")),
        ('finish["Velden"]', ("finish", "Velden")),
        ("search[]", ("search", "")),
        ("finish", ("finish", "")),
        ("research[Ada]", ("", "")),
        ("I will search for it.", ("", "")),
        ("lookup[Ada]", ("", "")),
        ("", ("", "")),
    ],
)
def test_read_action(text, action):
    assert read_action(text) == action


def test_an_endless_reply_is_read_in_no_time():
    assert read_action("search[" + "[x" * 20_000)[0] in ("", "search")
    assert read_action("search " * 20_000)[0] == "search"


@pytest.mark.parametrize(
    "text", ['search(query="Ada")', "<search>Ada</search>", "search <Ada>", "search「Ada」", "search［Ada］"]
)
def test_rarer_brackets_of_an_action(text):
    assert read_action(text) == ("search", "Ada")


def test_a_json_boolean_finishes():
    assert read_action('{"action": "finish", "answer": true}') == ("finish", "yes")
