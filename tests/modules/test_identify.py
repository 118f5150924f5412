import pytest

from cirag_dspy.modules.identify import OTHER, parse_needs

ADA = ("Ada Brook", ["Where was Ada Brook born?", "birthplace of Ada Brook"])


@pytest.mark.parametrize(
    "text",
    [
        "Ada Brook | Where was Ada Brook born? | birthplace of Ada Brook",
        "1. **Ada Brook** | Where was Ada Brook born? | birthplace of Ada Brook | a third",
        "| Entity | Query |\n|---|---|\n| Ada Brook | Where was Ada Brook born? | birthplace of Ada Brook |",
        "Here they are:\nAda Brook: Where was Ada Brook born?\nADA BROOK: birthplace of Ada Brook",
        '[{"entity": "Ada Brook", "queries": ["Where was Ada Brook born?", "birthplace of Ada Brook"]}]',
        '{"Name": "Ada Brook", "queries": ["Where was Ada Brook born?", "birthplace of Ada Brook"]}',
        '{"Ada Brook": ["Where was Ada Brook born?", "birthplace of Ada Brook"]}',
        '["Ada Brook | Where was Ada Brook born? | birthplace of Ada Brook"]',
    ],
)
def test_one_entity_in_many_shapes(text):
    assert parse_needs(text, 4) == [ADA]


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("Ada Brook", [("Ada Brook", ["Ada Brook"])]),
        ("Ada Brook | none", [("Ada Brook", ["Ada Brook"])]),
        ("Which town lies on the river Ree?", [(OTHER, ["Which town lies on the river Ree?"])]),
        ("other | towns on the river Ree", [(OTHER, ["towns on the river Ree"])]),
        ('{"entity": "A", "queries": ["x"]}\n{"entity": "B", "queries": "y"}', [("A", ["x"]), ("B", ["y"])]),
        ("A | x\nB | y\nC | z", [("A", ["x"]), ("B", ["y"])]),  # two at most
        ("none", []),
        ("", []),
        ("[" * 900 + "]" * 900, []),
        ('{"entity": null, "queries": 7}', []),
    ],
)
def test_what_is_searched_for_what(text, needs):
    assert parse_needs(text, 2) == needs
