"""Gold chains taken apart by hand: a question of three hops, a comparison, and what is missing or in the way."""

import dspy
import pytest

from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import Document
from cirag_dspy.corpus.shelves import fact
from cirag_dspy.distill.links import Walk, passage_recall, rows, split, triple_recall, walk
from cirag_dspy.errors import RunError
from cirag_dspy.schema import Extraction, Hit, Triple
from tests.distill.questions import OLDER, WHICH
from tests.fakes import WordEncoder
from tests.systems.world import PASSAGES, TRIPLES, fill

CORPUS = {passage.id: passage for passage in PASSAGES.values()}
ALL = [triple for triples in TRIPLES.values() for triple in triples]
SONG_YEAR, DIRECTED = TRIPLES["Harbor Song"]
LIGHT_YEAR, LIGHT = TRIPLES["Harbor Light"]
DIRECTOR, BORN = TRIPLES["Ada Brook"]
TOWN, RIVER = TRIPLES["Velden"]


def ids(*titles):
    return [PASSAGES[title].id for title in titles]


def example(question, answer, titles, **gold):
    return dspy.Example(question=question, answer=answer, answers=[answer], gold_passages=ids(*titles), **gold)


def step(question, answer, title):
    return {"question": question, "answer": answer, "passage_id": PASSAGES[title].id}


THREE = example(
    WHICH,
    "the river Ree",
    ["Harbor Song", "Ada Brook", "Velden"],
    decomposition=[
        step("Harbor Song >> director", "Ada Brook", "Harbor Song"),
        step("#1 >> place of birth", "Velden", "Ada Brook"),
        step("Which river does #2 lie on?", "the river Ree", "Velden"),
    ],
)
YEARS = [("Harbor Song", "publication date", "1950"), ("Harbor Light", "publication date", "1961")]
TWO = example(
    OLDER,
    "Harbor Song",
    ["Harbor Song", "Harbor Light"],
    type="comparison",
    evidences=YEARS,
    gold_sentences=[(PASSAGES["Harbor Song"].id, 0), (PASSAGES["Harbor Light"].id, 0)],
)


@pytest.fixture
def index(tmp_path):
    with CorpusIndex.create(tmp_path / "index", WordEncoder()) as built:
        built.add(Document(passage.id, (passage,)) for passage in PASSAGES.values())
        fill(built)
        yield built


def without(*triples):
    return {triple for triple in ALL if triple not in triples}


def test_a_chain_of_three(index):
    found = walk(THREE, CORPUS, index, k=5)
    assert [look.chain for look in found.looks] == [(), (DIRECTED,), (DIRECTED, BORN)]
    assert [look.following for look in found.looks] == [((DIRECTED,),), ((BORN,),), ((RIVER,),)]
    assert [look.query for look in found.looks] == [
        WHICH,
        f"{WHICH}\nknowledge triples: {DIRECTED.text}.",
        f"{WHICH}\nknowledge triples: {DIRECTED.text}. {BORN.text}.",
    ]
    # The whole small corpus is retrieved: what is not known and does not come next is wrong, later links too.
    assert [set(look.offered) for look in found.looks] == [without(), without(DIRECTED), without(DIRECTED, BORN)]
    assert [set(look.wrong) for look in found.looks] == [
        without(DIRECTED),
        without(DIRECTED, BORN),
        without(DIRECTED, BORN, RIVER),
    ]
    assert found.path == list(found.looks)
    assert (found.steps, found.stated, found.missing, list(found.gold)) == (3, 3, 0, THREE.gold_passages)


def test_a_chain_that_compares_nothing_has_one_order(index):
    question = "Where was the director of Harbor Song, who followed the director of Harbor Light, born?"
    steps = [
        step("Harbor Song >> director", "Ada Brook", "Harbor Song"),
        step("Harbor Light >> director", "Tom Hale", "Harbor Light"),
        step("#1 >> place of birth", "Velden", "Ada Brook"),
    ]
    found = walk(
        example(question, "Velden", ["Harbor Song", "Harbor Light", "Ada Brook"], decomposition=steps),
        CORPUS,
        index,
        k=5,
    )
    assert [look.chain for look in found.looks] == [(), (DIRECTED,), (DIRECTED, LIGHT)]
    assert [look.following for look in found.looks] == [((DIRECTED,),), ((LIGHT,),), ((BORN,),)]


def test_a_comparison_has_no_order(index):
    found = walk(TWO, CORPUS, index, k=5)
    assert [look.chain for look in found.looks] == [(), (SONG_YEAR,), (LIGHT_YEAR,)]
    assert [look.following for look in found.looks] == [
        ((SONG_YEAR,), (LIGHT_YEAR,)),
        ((LIGHT_YEAR,),),
        ((SONG_YEAR,),),
    ]
    assert set(found.looks[0].wrong) == without(SONG_YEAR, LIGHT_YEAR)  # either may come next
    assert [look.chain for look in found.path] == [(), (SONG_YEAR,)]
    texts = [(row.query, row.positive) for row in rows([found], negatives=7, most=8, seed=0)]
    assert sorted(texts) == sorted(
        [
            (OLDER, fact(SONG_YEAR)),
            (OLDER, fact(LIGHT_YEAR)),
            (f"{OLDER}\nknowledge triples: {SONG_YEAR.text}.", fact(LIGHT_YEAR)),
            (f"{OLDER}\nknowledge triples: {LIGHT_YEAR.text}.", fact(SONG_YEAR)),
        ]
    )


def test_a_director_is_named_before_the_birthplace(index):
    """Two bridges that are compared: in any order, but each link after the one that names it."""
    four = example(
        "Were the directors of Harbor Song and Harbor Light born in the same town?",
        "no",
        ["Harbor Song", "Ada Brook", "Harbor Light", "Tom Hale"],
        type="bridge_comparison",
        evidences=[
            ("Harbor Song", "director", "Ada Brook"),
            ("Ada Brook", "place of birth", "Velden"),
            ("Harbor Light", "director", "Tom Hale"),
            ("Tom Hale", "place of birth", "Mora"),
        ],
        gold_sentences=[(id, 1) for id in ids("Harbor Song", "Ada Brook", "Harbor Light", "Tom Hale")],
    )
    found = walk(four, CORPUS, index, k=5)
    orders = {look.chain for look in found.looks}
    assert {chain[:1] for chain in orders} == {(), (DIRECTED,), (LIGHT,)}
    assert all(BORN not in chain or chain.index(DIRECTED) < chain.index(BORN) for chain in orders)
    assert sum(len(look.following) for look in found.looks) == 2 + 4 + 6 + 6
    assert len(rows([found], negatives=1, most=8, seed=0)) == 8


def test_rows_by_hand(index):
    found = walk(THREE, CORPUS, index, k=5)
    made = rows([found], negatives=7, most=8, seed=0)
    by_query = {row.query: row for row in made}
    assert [by_query[look.query].positive for look in found.looks] == [
        "Harbor Song was directed by Ada Brook",
        "Ada Brook was born in Velden",
        "Velden lies on the river Ree",
    ]
    for look in found.looks:
        negatives = by_query[look.query].negatives
        assert len(set(negatives)) == 7 and set(negatives) <= set(map(fact, look.wrong))
    assert set(by_query[found.looks[2].query].negatives) == set(map(fact, found.looks[2].wrong))  # there are seven
    assert rows([found], negatives=7, most=8, seed=0) == made != rows([found], negatives=7, most=8, seed=1)
    assert len(rows([found], negatives=7, most=2, seed=0)) == 2


def test_too_few_wrong_triples_come_again_and_none_is_no_row(index):
    found = walk(THREE, CORPUS, index, k=5)
    last = found.looks[2]
    few = Walk(WHICH, (type(last)((), WHICH, (RIVER, TOWN), ((RIVER,),), (TOWN,)),), (), 0, 1, 1)
    (row,) = rows([few], negatives=3, most=8, seed=0)
    assert row.negatives == ("Velden is a town",) * 3
    none = Walk(WHICH, (type(last)((), WHICH, (RIVER,), ((RIVER,),), ()),), (), 0, 1, 1)
    assert rows([none], negatives=3, most=8, seed=0) == []


def test_each_look_retrieves_as_kirag_does(index, monkeypatch):
    found_for = {
        WHICH: ["Harbor Song"],
        f"{WHICH} {DIRECTED.text}": ["Harbor Light"],  # not Ada Brook: her passage is never retrieved
        f"{WHICH} {BORN.text}": ["Velden", "Harbor Song"],
    }
    monkeypatch.setattr(index, "search", lambda query, k: [Hit(PASSAGES[title], 1.0) for title in found_for[query]][:k])
    looks = walk(THREE, CORPUS, index, k=2).looks
    assert [set(look.offered) for look in looks] == [
        {*TRIPLES["Harbor Song"]},
        {SONG_YEAR, *TRIPLES["Harbor Light"]},
        {SONG_YEAR, *TRIPLES["Harbor Light"], *TRIPLES["Velden"]},
    ]
    # What no passage offers is learnt all the same.
    assert looks[1].following == ((BORN,),)


def test_a_chain_ends_where_no_triple_states_what_comes_next(index):
    index.keep(PASSAGES["Ada Brook"].id, Extraction("done", (DIRECTOR,)))
    found = walk(THREE, CORPUS, index, k=5)
    assert [look.chain for look in found.looks] == [()] and found.looks[0].following == ((DIRECTED,),)
    assert (found.steps, found.stated) == (3, 2)
    index.keep(PASSAGES["Harbor Song"].id, Extraction("empty"))
    (only,) = walk(THREE, CORPUS, index, k=5).looks
    assert only.following == () and rows([walk(THREE, CORPUS, index, k=5)], negatives=7, most=8, seed=0) == []
    # Of a comparison the other side is left.
    assert walk(TWO, CORPUS, index, k=5).looks[0].following == ((LIGHT_YEAR,),)


def test_of_several_that_state_a_step_the_shortest_goes_into_the_chain(index):
    long = Triple("Harbor Song", "is a film that was made by", "Ada Brook and others", DIRECTED.passage_id, 1)
    index.keep(DIRECTED.passage_id, Extraction("done", (long, SONG_YEAR, DIRECTED)))
    first, second, *_ = walk(THREE, CORPUS, index, k=5).looks
    assert first.following == ((DIRECTED, long),) and second.chain == (DIRECTED,)
    assert long not in first.wrong


def test_gold_words_in_another_passage_are_no_gold_triple_and_not_wrong_either(index):
    copied = Triple(*DIRECTED.text.split(" | "), PASSAGES["Tom Hale"].id, 0)
    index.keep(PASSAGES["Tom Hale"].id, Extraction("done", (copied,)))
    reworded = Triple("Ada Brook", "directed", "Harbor Song", BORN.passage_id, 0)  # the gold of another step
    index.keep(BORN.passage_id, Extraction("done", (reworded, BORN)))
    (first, *_) = walk(THREE, CORPUS, index, k=5).looks
    assert first.following == ((DIRECTED,),)
    assert reworded in first.offered and reworded not in first.wrong


def test_a_split_is_by_question_and_seed():
    walks = [Walk(f"q{n}", (), (), 0, 0, 0) for n in range(20)]
    train, val = split(walks, 0.1, seed=3)
    assert (
        len(train) == 18
        and len(val) == 2
        and sorted(w.question for w in train + val) == sorted(w.question for w in walks)
    )
    assert split(walks, 0.1, seed=3) == (train, val) != split(walks, 0.1, seed=4)
    assert [len(part) for part in split(walks[:2], 0.9, seed=0)] == [1, 1]
    with pytest.raises(RunError, match=r"1 question\(s\) are too few"):
        split(walks[:1], 0.1, seed=0)


def test_recalls_by_hand(index):
    found = walk(THREE, CORPUS, index, k=5)
    places = {
        DIRECTED: [0.9, 0, 0],  # first at the first look
        BORN: [0.1, 0.5, 0],  # third at the second
        RIVER: [0.1, 0.1, 0.1],  # last at the third
        LIGHT: [0.8, 0.8, 0.8],
        DIRECTOR: [0.2, 0.6, 0.6],
    }
    looks = [look.query for look in found.looks]

    def rank(query, triples):
        scored = [(t, places.get(t, [0.2, 0.2, 0.2])[looks.index(query)]) for t in triples]
        return sorted(scored, key=lambda pair: -pair[1])

    assert triple_recall([found], rank, n=1) == pytest.approx(1 / 3)
    assert triple_recall([found], rank, n=3) == pytest.approx(2 / 3)
    # Passages by their best triple: Harbor Song .9, Harbor Light .8, Ada Brook .6.
    assert [passage_recall([found], rank, k=k, n=3) for k in (1, 2, 3)] == pytest.approx([1 / 3, 1 / 3, 2 / 3])
    lacking = Walk(found.question, found.looks, found.gold, 1, 3, 3)
    assert passage_recall([lacking], rank, k=3, n=3) == pytest.approx(2 / 4)
    assert triple_recall([], rank, n=1) == passage_recall([], rank, k=5, n=1) == 0.0
