"""The scripted LM of the benches, on an invented question: it knows what its prompt shows, and plays every system."""

import dspy
import pytest

from bench.chains import Chain
from bench.scripted import REPLIES, Script
from cirag_dspy.systems import SYSTEMS, build_system
from tests.fakes import openai_server, scripted_lm
from tests.systems.roles import ROLES, cited, queries
from tests.systems.world import FACTS, PASSAGES, world_index

QUESTION = "In which town was the director of the film Harbor Song born?"
OPENIE = [
    {"title": name, "text": passage.text, "entities": [name], "triples": [list(fact[:3]) for fact in FACTS[name]]}
    for name, passage in PASSAGES.items()
]
ROW = {
    "question": QUESTION,
    "question_decomposition": [
        {"question": "Harbor Song >> director", "answer": "Ada Brook", "paragraph_support_idx": 0},
        {"question": "Where was #1 born ?", "answer": "Velden", "paragraph_support_idx": 1},
    ],
    "paragraphs": [
        {"idx": place, "title": row["title"], "paragraph_text": row["text"]} for place, row in enumerate(OPENIE)
    ],
}
NOT_ASKED = {"FindEntities", "RelateEntities", "IntegrateByCopying", "RewriteQuery", "JudgeAnswer"}
SONG = "Harbor Song: The film Harbor Song was directed by Ada Brook."
BROOK = "Ada Brook was born in Velden."


@pytest.fixture
def script():
    return Script(OPENIE, [ROW])


@pytest.fixture
def chain():
    return Chain.read(ROW, {row["text"]: [" | ".join(triple) for triple in row["triples"]] for row in OPENIE})


def ask(script, index, name, **knobs):
    lm, _ = scripted_lm(script)
    with dspy.context(lm=lm):
        return build_system(name, index, **knobs)(question=QUESTION)


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_answers_what_it_finds(name, script, tmp_path):
    with world_index(tmp_path) as index:
        prediction = ask(script, index, name)
    assert prediction.answer == "Velden"
    assert ("Ada Brook", 1) in cited(prediction)


@pytest.mark.parametrize("name", SYSTEMS)
def test_no_system_answers_what_no_passage_says(name, script, tmp_path):
    """The passage on Velden is there, but nothing says that she was born in it."""
    there = [passage for title, passage in PASSAGES.items() if title != "Ada Brook"]
    with world_index(tmp_path, there) as index:
        assert ask(script, index, name).answer != "Velden"


def test_what_is_found_is_filled_in(script, tmp_path):
    with world_index(tmp_path) as index:
        prediction = ask(script, index, "react", k=1)
    assert queries(prediction) == ["Harbor Song, director", "Where was Ada Brook born", ""]


@pytest.mark.parametrize(
    ("texts", "held"),
    [
        ([], 0),
        ([f"Other: It rained.\n{SONG}"], 1),
        (["1. Harbor Song | is a film of | 1950\n2. Harbor Song | was directed by | Ada Brook"], 1),
        ([SONG, BROOK], 2),
        ([BROOK], 0),  # the first is not known yet
        ([SONG, "Velden: Velden is a town."], 1),
        ([SONG, "Ada Brook was born in Veldenburg."], 1),
        (["Ada Brook was a director."], 0),  # a coincidence
        (["So far: Harbor Song, director: Ada Brook. Where was Ada Brook born: Velden. Missing: nothing."], 2),
    ],
)
def test_links_are_known_in_order_from_whole_words_of_their_sources(chain, texts, held):
    assert chain.held(*texts) == held


def test_sub_questions_stand_alone(chain):
    assert chain.open(0) == ["Harbor Song, director", "Where was (Harbor Song, director) born"]
    assert chain.open(1) == ["Where was Ada Brook born"]
    assert [[link.answer for link in part.links] for part in chain.parts(0)] == [["Ada Brook"], ["Ada Brook", "Velden"]]
    assert [[link.answer for link in part.links] for part in chain.parts(1)] == [["Velden"]]


def test_every_prompt_of_the_systems_has_a_reply():
    assert {*REPLIES, "ExtractTriples"} == ROLES.keys() - NOT_ASKED


def test_probabilities_over_http(script, tmp_path):
    with world_index(tmp_path) as index, openai_server(script) as (address, requests):
        lm = dspy.LM("openai/scripted", api_base=address, api_key="none", cache=False)
        with dspy.context(lm=lm):
            prediction = build_system("flare", index)(question=QUESTION)
    assert (prediction.answer, prediction.level) == ("Velden", "thoughts")
    assert queries(prediction) == ["Harbor Song, director: .", "Where was Ada Brook born: .", ""]
    assert [bool(request.get("logprobs")) for request in requests] == [True, False, True, False, True]
