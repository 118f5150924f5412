"""Triples by pattern, on sentences in the manner of an encyclopaedia."""

import time

import pytest

from cirag_dspy.lms.patterns import pattern_triples


@pytest.mark.parametrize(
    ("title", "sentence", "triples"),
    [
        (
            "Ada Brook",
            "Ada J. Brook (3 May 1901 – June 9, 1980) was a Danish film director, best known for Harbor Song.",
            [
                ("Ada Brook", "date of birth", "3 May 1901"),
                ("Ada Brook", "date of death", "June 9, 1980"),
                ("Ada Brook", "was", "Danish film director"),
                ("Ada Brook", "known for", "Harbor Song"),
            ],
        ),
        (
            "Tom Hale (painter)",
            "Tom Hale (born 8 July 1920 in Mora) is a painter who lived in Velden.",
            [
                ("Tom Hale", "date of birth", "8 July 1920"),
                ("Tom Hale", "place of birth", "Mora"),
                ("Tom Hale", "is", "painter"),
                ("Tom Hale", "lived in", "Velden"),
            ],
        ),
        (
            "Harbor Song",
            "Harbor Song is a 1950 drama film directed by Ada J. Brook and starring Una Ray, Tom Hale and Bo Lind.",
            [
                ("Harbor Song", "is", "1950 drama film"),
                ("Harbor Song", "directed by", "Ada J. Brook"),
                ("Harbor Song", "starring", "Una Ray"),
                ("Harbor Song", "starring", "Tom Hale"),
                ("Harbor Song", "starring", "Bo Lind"),
            ],
        ),
        (
            "Jon Brook",
            "Jon Brook was a Danish film and stage actor and the son of Una Ray and Bo Lind.",
            [
                ("Jon Brook", "was", "Danish film and stage actor"),
                ("Jon Brook", "son of", "Una Ray"),
                ("Jon Brook", "son of", "Bo Lind"),
            ],
        ),
        ("Velden", "Elsewhere a man sang.", []),
        ("Velden", "", []),
    ],
)
def test_a_lead_sentence(title, sentence, triples):
    assert pattern_triples(title, [sentence]) == triples


def test_later_sentences_are_about_the_title_or_passed_over():
    sentences = [
        "Ada Brook was a director.",
        "She was born in Velden.",
        "Her father was Jon Brook.",
        "Tom Hale was born in Mora.",
        "Ada Brook married Tom Hale in 1930.",
    ]
    assert pattern_triples("Ada Brook", sentences) == [
        ("Ada Brook", "was", "director"),
        ("Ada Brook", "was born in", "Velden"),
        ("Ada Brook", "father", "Jon Brook"),
        ("Ada Brook", "married", "Tom Hale in 1930"),
    ]


def test_a_title_without_words_is_not_everywhere():
    found = pattern_triples("!!!", ["!!! is a band.", "Tom Hale was born in Mora."])
    assert found == [("!!!", "is", "band")]


def test_an_open_bracket_of_many_years_takes_no_time():
    began = time.process_time()
    assert pattern_triples("X", ["X (" + "1900 – " * 400]) == []
    assert time.process_time() - began < 1


def test_no_more_than_asked_for():
    assert len(pattern_triples("X", ["X is a film starring A B, C D, E F and G H."], most=2)) == 2
