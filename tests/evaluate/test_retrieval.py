import unicodedata

import pytest
import regex

from cirag_dspy.evaluate.retrieval import all_recall_at, answer_recall_at, answer_tokens, has_answer, recall_at


def test_recall():
    ranked = ["p1", "p2", "p3", "p4"]
    assert recall_at(ranked, ["p2", "p4"], (1, 2, 4, 10)) == {1: 0, 2: 0.5, 4: 1, 10: 1}
    assert recall_at(["p2", "p2"], ["p2", "p3"], (2,)) == {2: 0.5}
    assert recall_at([], ["p1"]) == {2: 0, 5: 0, 10: 0}
    assert recall_at(["p1"], [], (2,)) == {2: 0}


def test_all_recall():
    assert all_recall_at(["p1", "p2", "p3"], ["p3", "p1"], (2, 3)) == {2: 0, 3: 1}
    assert all_recall_at(["p1"], [], (2,)) == {2: 0}


@pytest.mark.parametrize(
    ("answer", "text", "found"),
    [
        ("art", "a party", False),
        ("Art", "the ART of war", True),
        ("new york", "New, York", False),
        ("U.S.", "the U.S. army", True),
        ("U.S.", "the US army", False),
        ("Caf\u00e9", "at the Cafe\u0301 today", True),
        ("Cafe", "at the Caf\u00e9 today", False),
        ("北京", "在 北京 。", True),
        ("the end", "the\u00a0end", True),
        ("", "anything", False),
        ("  ", "anything", False),
    ],
)
def test_has_answer(answer, text, found):
    assert has_answer([answer], text) is found


def test_any_answer_counts():
    assert has_answer(["nowhere", "york"], "New York")


def test_answer_recall():
    texts = ["about cats", "about dogs", "about birds"]
    assert answer_recall_at(texts, ["birds"], (1, 2, 3, 10)) == {1: 0, 2: 0, 3: 1, 10: 1}
    assert answer_recall_at(texts, ["fish"], (2,)) == {2: 0}
    assert answer_recall_at([], ["fish"], (2,)) == {2: 0}


def test_tokens_are_those_of_the_regular_expression_in_scripts_with_blanks():
    known = "".join(chr(code) for code in range(0x1000) if unicodedata.category(chr(code)) not in ("Cn", "Cs"))
    text = unicodedata.normalize("NFD", regex.sub(r"[\p{Thai}\p{Lao}]", "", known))
    expected = [token.lower() for token in regex.findall(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]", text)]
    assert answer_tokens(text) == expected


@pytest.mark.parametrize(
    ("answer", "text", "found"),
    [
        ("北京", "北京是中国的首都。", True),
        ("京北", "北京是中国的首都。", False),
        ("東京", "日本の首都は東京です", True),
        ("เชียงใหม่", "เขาเกิดที่เชียงใหม่ในปี", True),
        ("서울", "수도는 서울이다", True),
        ("서", "설날이다", False),
        ("art", "party", False),
    ],
)
def test_answers_are_found_where_there_are_no_blanks(answer, text, found):
    assert has_answer([answer], text) is found
