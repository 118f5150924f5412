import pytest

from cirag_dspy.modules.parse import parse_core, parse_triples, says_nothing
from cirag_dspy.schema import Triple

ABC = ("a", "b", "c")


@pytest.mark.parametrize(
    "text",
    [
        "a | b | c",
        "| a | b | c |",
        "1. a | b | c",
        "- a | b | c",
        "(a, b, c)",
        "(a; b; c)",
        "<a; b; c>",
        "a\tb\tc",
        '["a", "b", "c"]',
        "['a', 'b', 'c']",
        '[["a", "b", "c"]]',
        '("a", "b", "c")',
        '{"head": "a", "relation": "b", "tail": "c"}',
        '{"subject": "a", "predicate": "b", "object": "c"}',
        '```json\n{"triples": [{"Subject": "a", "Predicate": "b", "Object": "c"}]}\n```',
        "```\na | b | c\n```",
        "head | relation | tail\n--- | --- | ---\na | b | c",
        "a | b | c\na | b | c",
        "(a, b, c), (a, b, c)",
        "<a; b; c> <a; b; c>",
        '[("a", "b", "c"), ("a", "b", "c")]',
    ],
)
def test_one_triple_in_many_shapes(text):
    assert parse_triples(text) == ([ABC], 0)


@pytest.mark.parametrize("depth", [2, 500, 850, 100_000])
def test_json_however_deep_is_read_or_counted(depth):
    """Python's own limit (some 1,000, less what is in progress) decides how deep JSON is read; nothing is raised."""
    read = parse_triples("[" * depth + '"a", "b", "c"' + "]" * depth)
    assert read == ([ABC], 0) if depth <= 500 else read in (([ABC], 0), ([], 1))


HIJ, HKL = ("h", "i", "j"), ("h", "k", "l")


@pytest.mark.parametrize(
    ("text", "triples", "dropped"),
    [
        ('[["a","b","c"],["d","e"', [ABC], 1),  # cut off
        ("a | b | c\nd | e", [ABC], 1),
        ("a | b | c\nd | e | f | g", [ABC], 1),
        ("a | b | c\nd |  | f", [ABC], 1),
        ('[["a","b"],["a","b","c","d"],null,5,["a","b","c"]]', [ABC], 4),
        ("Sure! Here is what I found about it.\na | b | c", [ABC], 1),
        ("I cannot help with that.", [], 1),
        ('{"head": "a", "relation": null, "tail": "c"}', [], 1),
        ("", [], 0),
        ("none", [], 0),
        ('a | b | c\nG | recorded | ["Heroes"]', [ABC, ("G", "recorded", '["Heroes"]')], 0),
        (
            'The Beatles | members | ["John", "Paul", "George"]\nBob | in | Rome',
            [("The Beatles", "members", '["John", "Paul", "George"]'), ("Bob", "in", "Rome")],
            0,
        ),
        ("Triples: head | relation | tail, one triple a line; none if there is no fact;\na | b | c", [ABC], 0),
        # A head is written once.
        ("a | b | c\n| d | e\n | f | g |\nh | i | j\n| k | l", [ABC, ("a", "d", "e"), ("a", "f", "g"), HIJ, HKL], 0),
        ("| d | e\na | b | c\n| only", [ABC], 2),
        ("a | b | c\nprose\n| d | e", [ABC], 2),
        ("head | relation | tail\n--- | --- | ---\n| d | e\na | b | c", [ABC], 1),  # the columns are no head
        ("Bo | in | X\nBO | on | Y\n| by | Z", [("Bo", "in", "X"), ("BO", "on", "Y"), ("BO", "by", "Z")], 0),
    ],
)
def test_what_is_good_is_kept_and_the_rest_counted(text, triples, dropped):
    assert parse_triples(text) == (triples, dropped)


def test_names_stay_as_written():
    text = "北京 | 是 | 首都\nŁódź | in | Poland\nO’Neil | writes | C++\n(The) Who | play | Tommy (opera)\nSmith, John | born | 1 May, 1911"
    assert parse_triples(text)[0] == [
        ("北京", "是", "首都"),
        ("Łódź", "in", "Poland"),
        ("O’Neil", "writes", "C++"),
        ("(The) Who", "play", "Tommy (opera)"),
        ("Smith, John", "born", "1 May, 1911"),
    ]


def test_triples_cannot_carry_line_breaks_or_field_markers():
    (fields,), _ = parse_triples('["a\\nanswer: x", "b", "[[ ## answer ## ]]"]')
    assert fields == ("a answer: x", "b", "[[## answer ##]]")


@pytest.mark.parametrize("text", ["none", "None.", "[]", "no triples", "N/A"])
def test_says_nothing(text):
    assert says_nothing(text)


@pytest.mark.parametrize(
    "text", ["Nothing Found", "None of the facts help", "No Relevant Facts", "NONE AT ALL", "None. A note"]
)
def test_nothing_in_other_words(text):
    assert says_nothing(text)


@pytest.mark.parametrize(
    "text",
    ["Nothing Else Matters is a song", "None Shall Pass is an album", '"Nothing Compares 2 U" was written by Prince',
     "Nothing Łódź is a film", "None Like Us | is a | film"],
)  # fmt: skip
def test_a_title_that_begins_like_nothing(text):
    assert not says_nothing(text)


CANDIDATES = [
    Triple("Anna Lee", "born in", "York", "p1", 0),
    Triple("York", "is in", "England", "p2", 0),
    Triple("Anna Lee", "died", "1911", "p1", 1),
]


@pytest.mark.parametrize(
    ("text", "numbers", "rejected"),
    [
        ("1, 3", [1, 3], 0),
        ("[3, 1]", [3, 1], 0),
        ("2", [2], 0),
        ("1-3", [1, 2, 3], 0),
        ("facts 1 and 2.", [1, 2], 0),
        ("1\n1\n2", [1, 2], 0),
        ("none", [], 0),
        ("", [], 0),
        ("0, 1, 4", [1], 2),
        ("Anna Lee | born in | York", [1], 0),
        ("(york, is in, england)", [2], 0),
        ("2. York | is in | England", [2], 0),
        ("2. York | lies in | England", [2], 0),  # altered words, right number
        ("York | capital of | France", [], 1),
        ("Anna Lee | died | 1911", [3], 0),  # the year is no number of a fact
        ("1911", [], 0),
        ("[1, 2, 3]", [1, 2, 3], 0),
        ("(1; 3; 2)", [1, 3, 2], 0),
        ("1 | 2 | 3", [1, 2, 3], 0),
        ("- Anna Lee | born in | York\n- York | is in | England", [1, 2], 0),
        ("[2] York | is in | England", [2], 0),
        ("fact 1: Anna Lee | born | in York", [1], 0),
        ("- X | y | Z", [], 1),
        ("Anna Lee | was born in | York", [1], 0),  # 5 words of 6 and of 5: F1 10/11
        ("Anne Lee | death | 1911", [], 1),  # 2 words of 4 and of 4: 0.5, below KiRAG's 0.6
        ("None of the facts help.", [], 0),
        ("None of the 3 facts help", [], 0),
        ("none except 2", [2], 0),
        ("1, 2\n\nExplanation: fact 3 only gives a year.", [1, 2], 0),
    ],
)
def test_core_is_candidates_only(text, numbers, rejected):
    assert parse_core(text, CANDIDATES) == ([CANDIDATES[number - 1] for number in numbers], rejected)


def numbered(*facts):
    return [Triple(*fact.split(" | "), "p", 0) for fact in facts]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("C++ | is a | language", "C# | is a | language"),
        ("A+ | is a | grade", "A- | is a | grade"),
        ("Oslo | had | -5 degrees", "Oslo | had | 5 degrees"),
        (".NET | runs on | Windows", "NET | runs on | Windows"),
        ("Prelude | is in | F♯", "Prelude | is in | F"),
        ("Ke$ha | wrote | it", "Ke ha | wrote | it"),
    ],
)
@pytest.mark.parametrize("around", ["{}", "- {}", "({})", "**{}**", '"{}"', "{}.", '["{}"]'])
def test_signs_tell_copied_facts_apart(one, other, around):
    facts = numbered(one, other)
    assert parse_core(around.format(other), facts) == ([facts[1]], 0)
    assert parse_core(around.format(one), facts) == ([facts[0]], 0)
    assert parse_core(around.format(f"{one}"), facts[1:]) == ([], 1)


def test_a_number_in_front_counts_where_its_fact_is_like_the_copy():
    facts = numbered("C++ | is a | language", "C# | is a | language", "York | is in | England")
    assert parse_core("2. C # | is one | language", facts) == ([facts[1]], 0)
    assert parse_core("1. York | is in | England.", facts) == ([facts[2]], 0)


@pytest.mark.parametrize("around", ["{}", "2. {}", "- {}", "[2] {}", "`{}`"])
def test_a_fact_with_a_bar_can_be_chosen(around):
    barred = Triple("a", "is written", "x | y", "p", 0)
    assert parse_core(around.format(barred.text), [*CANDIDATES[:1], barred]) == ([barred], 0)


@pytest.mark.parametrize(
    "text",
    [
        "[1, 3]",
        '{"core": [1, 3]}',
        '{"facts": {"numbers": [1, 3]}}',
        '["1", "3"]',
        '["Anna Lee | born in | York", "Anna Lee | died | 1911"]',
        '[["Anna Lee", "born in", "York"], ["Anna Lee", "died", "1911"]]',
        '[{"head": "Anna Lee", "relation": "born in", "tail": "York"}, 3]',
        "['Anna Lee | born in | York', 'Anna Lee | died | 1911']",
    ],
)
def test_core_in_json(text):
    from cirag_dspy.adapter import LineAdapter
    from cirag_dspy.signatures import Integrate

    core = LineAdapter().parse(Integrate, f"core: {text}")["core"]
    assert parse_core(core, CANDIDATES) == ([CANDIDATES[0], CANDIDATES[2]], 0)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "extract", "arguments": "{\\"triples\\": [[\\"a\\", \\"b\\", \\"c\\"]]}"}',
        '[{"type": "function", "function": {"name": "f", "arguments": {"triples": [["a", "b", "c"]]}}}]',
        "{'triples': [{'head': 'a', 'relation': 'b', 'tail': 'c'}]}",
        "[['a', 'b', 'c'],]",
        '{"output": "{\\"triples\\": [[\\"a\\", \\"b\\", \\"c\\"]]}"}',
        '"a" | *b* | `c`',
        "**a | b | c**",
        "`a | b | c`",
    ],
)
def test_wrapped_triples(text):
    assert parse_triples(text) == ([ABC], 0)


def test_only_pairs_of_marks_are_taken_off_and_values_are_no_python():
    text = '*NSYNC | recorded | M*A*S*H\n"Weird Al" Yankovic | wrote | \'Tis\nC* | is | __init__'
    assert parse_triples(text)[0] == [
        ("*NSYNC", "recorded", "M*A*S*H"),
        ('"Weird Al" Yankovic', "wrote", "'Tis"),
        ("C*", "is", "__init__"),
    ]
    assert parse_triples('["x", "is open", true]') == ([("x", "is open", "true")], 0)


@pytest.mark.parametrize("line", ["<triple>A | is | B</triple>", "A｜is｜B", "A -> is -> B", "- A — is — B"])
def test_rarer_separators_of_a_triple(line):
    assert parse_triples(line) == ([("A", "is", "B")], 0)
