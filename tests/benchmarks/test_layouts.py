import pytest

from cirag_dspy.benchmarks import load_benchmark
from cirag_dspy.errors import DataError
from cirag_dspy.schema import Passage

from .samples import (
    ALPHA,
    BAMBOOGLE,
    BETA,
    CONTEXT,
    EVIDENCES,
    FACTS,
    HOTPOT,
    HUB_HOTPOT,
    HUB_WIKI,
    MUSIQUE,
    NQ,
    STRING_WIKI,
    TITLES,
    WIKI,
    write,
)

HALL, OLT = Passage.create("Alpha Hall", ALPHA), Passage.create("Mira Olt", BETA)
SHORT_OLT = Passage.create("Mira Olt", "Mira Olt was born in Sund.")
SHORT_HALL = Passage.create("Alpha Hall", "Mira Olt designed Alpha Hall.")


def load(tmp_path, name, *rows, file="dev.json", **options):
    return load_benchmark(name, data_file=write(tmp_path / file, rows), **options)


@pytest.mark.parametrize("row", [HOTPOT, HUB_HOTPOT], ids=["official", "hub"])
def test_hotpotqa(tmp_path, row):
    benchmark = load(tmp_path, "hotpotqa", row)
    (example,) = benchmark.examples
    assert example.inputs().toDict() == {"question": HOTPOT["question"]}
    assert (example.id, example.answer, example.answers, example.type, example.hops, example.dataset) == (
        "h1", "Sund", ["Sund"], "bridge", 2, "hotpotqa",
    )  # fmt: skip
    assert example.supporting == [tuple(fact) for fact in FACTS]
    assert example.gold_passages == [HALL.id, OLT.id]
    assert example.gold_sentences == [(HALL.id, 1), (OLT.id, 1)]
    assert list(example.paragraphs.values()) == [0, 1, 2]
    assert [passage.title for passage in benchmark.passages] == [title for title, _ in CONTEXT]
    assert benchmark.passages[1].sentences[2] == ""
    assert benchmark.notes["setting"] == "distractor" and benchmark.notes["warnings"] == []


@pytest.mark.parametrize("row", [WIKI, HUB_WIKI, STRING_WIKI], ids=["official", "hub", "strings"])
def test_2wiki(tmp_path, row):
    benchmark = load(tmp_path, "2wikimultihopqa", row)
    assert benchmark.examples[0].evidences == [tuple(triple) for triple in EVIDENCES]
    assert benchmark.examples[0].evidence_golds == []
    assert benchmark.examples[0].gold_passages == [HALL.id, OLT.id]
    assert benchmark.notes["aliases"] == "without aliases"


@pytest.mark.parametrize("row", [WIKI, STRING_WIKI], ids=["official", "strings"])
def test_2wiki_aliases(tmp_path, row):
    write(tmp_path / "dev.json", [row])
    aliases = [
        {"Q_id": "Q3", "aliases": ["Sund Town"], "demonyms": ["Sundian"]},
        {"Q_id": "Q1", "aliases": ["The Hall"], "demonyms": []},
    ]
    write(tmp_path / "id_aliases.jsonl", aliases).rename(tmp_path / "id_aliases.json")
    benchmark = load_benchmark("2wikimultihopqa", data_dir=tmp_path)
    (example,) = benchmark.examples
    assert example.answers == ["Sund", "Sund Town", "Sundian"]
    assert example.evidence_golds[0] == [("Alpha Hall", "architect", "Mira Olt"), ("The Hall", "architect", "Mira Olt")]
    assert [form[2] for form in example.evidence_golds[1]] == ["Sund", "Sund Town", "Sundian"]
    assert benchmark.notes["aliases"] == "id_aliases.json"


@pytest.mark.parametrize(
    "name, row",
    [
        ("musique", MUSIQUE | {"answerable": False}),
        ("hotpotqa", HOTPOT | {"answer": ""}),
        ("hotpotqa", HOTPOT | {"answer": None}),
        ("2wikimultihopqa", WIKI | {"answer": " "}),
        ("nq", NQ | {"answers": []}),
        ("nq", NQ | {"answers": [""]}),
        ("bamboogle", BAMBOOGLE | {"answerable": False}),
    ],
)
def test_questions_without_an_answer(tmp_path, name, row):
    benchmark = load(tmp_path, name, row, unanswerable=True)  # all of a file may be
    (example,) = benchmark.examples
    assert (example.answerable, example.answer, example.answers) == (False, "", [])
    assert benchmark.notes["unanswerable"] == 1
    with pytest.raises(DataError):
        load(tmp_path, name, row)


def test_unanswerable_says_nothing_of_other_rows(tmp_path):
    (example,) = load(tmp_path, "hotpotqa", HOTPOT, unanswerable=True).examples
    assert "answerable" not in example and example.answers == ["Sund"]
    hidden = {key: value for key, value in HOTPOT.items() if key != "answer"}
    with pytest.raises(DataError, match="answer"):
        load(tmp_path, "hotpotqa", hidden, unanswerable=True)
    with pytest.raises(DataError, match="1 questions, such as '2hop__1_2', come twice, with an answer and without"):
        load(tmp_path, "musique", MUSIQUE, MUSIQUE | {"answerable": False}, unanswerable=True)


def test_musique(tmp_path):
    unanswerable = MUSIQUE | {"answerable": False}
    benchmark = load(tmp_path, "musique", MUSIQUE, unanswerable, file="musique_full_v1.0_dev.jsonl")
    (example,) = benchmark.examples
    assert benchmark.notes["skipped_unanswerable"] == 1
    assert (example.answers, example.type, example.hops) == (["Sund", "Sund Town"], "2hop", 2)
    assert example.gold_passages == [SHORT_OLT.id, SHORT_HALL.id]
    assert example.support_idxs == [1, 2]
    assert example.supporting == []
    assert example.paragraphs[SHORT_HALL.id] == 2
    assert example.decomposition == [
        {"question": "Alpha Hall >> architect", "answer": "Mira Olt", "passage_id": SHORT_HALL.id},
        {"question": "#1 >> place of birth", "answer": "Sund", "passage_id": SHORT_OLT.id},
    ]


def test_hipporag_copies_look_like_musique(tmp_path):
    paragraphs = [
        {"title": "Mira Olt", "text": "Mira Olt was born in Sund.", "is_supporting": True},
        {"title": "Gamma", "text": "Gamma is a river.", "is_supporting": False},
    ]
    row = {
        "id": "n1",
        "question": "where was mira olt born",
        "reference": ["Sund", "Sund Town"],
        "paragraphs": paragraphs,
    }
    (example,) = load(tmp_path, "nq", row).examples
    assert (example.id, example.answers, example.gold_passages) == ("n1", ["Sund", "Sund Town"], [SHORT_OLT.id])


def test_titles_of_a_corpus(tmp_path):
    corpus = write(tmp_path / "corpus.json", [{"title": title, "text": "".join(body)} for title, body in CONTEXT])
    benchmark = load(tmp_path, "2wikimultihopqa", TITLES, corpus=corpus)
    assert benchmark.examples[0].gold_passages == [HALL.id, OLT.id]
    assert benchmark.examples[0].gold_sentences == []
    assert len(benchmark.passages) == 3
    assert benchmark.notes["corpus"].startswith(f"{corpus} sha256:")


def test_nq(tmp_path):
    benchmark = load(tmp_path, "nq", NQ, NQ | {"passages": None}, file="dev.jsonl")
    first, second = benchmark.examples
    assert (first.id, second.id) == ("nq-dev-0", "nq-dev-1")
    assert (first.answer, first.answers) == ("Mira Olt", ["Mira Olt", "Olt"])
    assert first.gold_passages == [Passage.create("Alpha Hall", "Mira Olt designed it.").id]
    assert second.gold_passages == []


def test_webquestions(tmp_path):
    benchmark = load(tmp_path, "webquestions", {"url": "u", "question": "who?", "answers": ["Mira Olt"]})
    assert benchmark.examples[0].answer == "Mira Olt"
    assert benchmark.passages == []
    assert "webquestions dev has no passages of its own: give a corpus to retrieve from" in benchmark.notes["warnings"]


def test_bamboogle(tmp_path):
    write(tmp_path / "bamboogle" / "test.json", [BAMBOOGLE, {"Question": "Who?", "Answer": "Olt"}])
    benchmark = load_benchmark("bamboogle", data_dir=tmp_path)
    first, second = benchmark.examples
    assert [step["answer"] for step in first.decomposition] == ["Mira Olt", "Sund"]
    assert (first.hops, second.answer) == (2, "Olt")
    assert "bamboogle has no dev split: these are its test questions" in benchmark.notes["warnings"]
