"""Which words of a sentence the LM is unsure of, from the tokens of the whole reply."""

import math

import pytest

from cirag_dspy.modules.draft import masked_query

SURE, UNSURE = math.log(0.9), math.log(0.1)


def tokens(*pieces):
    """Bytes or texts; those in a list are unsure."""
    flat = [(piece[0], UNSURE) if isinstance(piece, list) else (piece, SURE) for piece in pieces]
    return [(piece.encode() if isinstance(piece, str) else piece, value) for piece, value in flat]


def query(sentence, *pieces):
    return masked_query(sentence, tokens(*pieces), 0.2)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (("thought:", " Ada", " Brook", " was", " born", " in", " Vel", "den", "."), ""),
        (("thought:", " Ada", " Brook", " was", " born", " in", [" Vel"], "den", "."), "Ada Brook was born in ."),
        (("thought:", " Ada", " Brook", " was", " born", " in", " Vel", ["den"], "."), "Ada Brook was born in ."),
        (("thought:", [" Ada"], " Brook", " was", " born", " in", " Vel", "den", "."), "Brook was born in Velden."),
        (("thought: ", "Ada Brook", " was", " born", " in", " Velden", ["."]), "Ada Brook was born in Velden"),
        ((["thought:"], " Ada Brook was born in Velden.", [" It is a town."]), ""),
        ((["thought: Ada"], " Brook was born in Velden."), "Brook was born in Velden."),
        (("thought: Ada", [" "], "Brook was born in Velden."), "Ada Brook was born in Velden."),
        (("thought: ", ["Ada Brook was born in Velden."]), ""),
    ],
)
def test_words_with_an_unsure_token_are_left_out(pieces, expected):
    assert query("Ada Brook was born in Velden.", *pieces) == expected


def test_only_the_sentence_counts():
    assert query("Ada was born.", "<think>", ["Ada was born."], "</think>", "thought: Ada was born.") == ""
    assert query("Ada was born.", "thought:", " Ada\n ", "was\u00a0", "born.", [" Brook"]) == ""


def test_tokens_may_end_within_a_character():
    first, second = "é".encode()[:1], "é".encode()[1:]
    assert query("Zoé was born.", "thought: Zo", first, second, " was born.") == ""
    assert query("Zoé was born.", "thought: Zo", first, [second], " was born.") == "was born."


def test_a_sentence_that_cannot_be_scored_is_searched_for_as_it_is():
    assert query('"Ada" was born.', '{"thought": "\\"Ada\\"', ' was born."}') == '"Ada" was born.'
