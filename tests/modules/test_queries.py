import pytest

from cirag_dspy.modules.queries import parse_queries

ONE, TWO = "Who directed Harbor Song?", "Where was Ada Brook born?"


@pytest.mark.parametrize(
    "text",
    [
        f"{ONE}\n{TWO}",
        f"1. {ONE}\n2. {TWO}",
        f"- {ONE}\n\n* {TWO}",
        f"Sub-question 1: {ONE}\nQ2: {TWO}",
        f'"{ONE}",\n"{TWO}"',
        f'["{ONE}", "{TWO}"]',
        f'[\n  "{ONE}",\n  "{TWO}"',  # cut off
        f"Here are the questions:\n{ONE}\n{TWO}",
        f"{ONE}\n{TWO}\n{ONE.upper()}",
        f"{ONE}\nnone\n{TWO}",
        f'{{"questions": ["{ONE}", "{TWO}"]}}',
        f'{{"id": 1, "question": "{ONE}"}}\n{{"id": 2, "question": "{TWO}"}}',
    ],
)
def test_two_queries_in_many_shapes(text):
    assert parse_queries(text) == [ONE, TWO]


@pytest.mark.parametrize("text", ["", "none", "None.", "[]", '{"a": 1}', "No queries.", "[" * 900 + "]" * 900])
def test_nothing_is_no_query(text):
    assert parse_queries(text) == []


def test_no_more_than_wanted():
    assert parse_queries("\n".join(f"query about {number}" for number in range(100)), most=3) == [
        "query about 0",
        "query about 1",
        "query about 2",
    ]


def test_a_title_that_begins_as_none_does_is_a_query():
    assert parse_queries("Nothing (2003 film) director") == ["Nothing (2003 film) director"]
