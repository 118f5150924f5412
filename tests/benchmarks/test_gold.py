from cirag_dspy.benchmarks import load_benchmark
from cirag_dspy.benchmarks.gold import Gold, Resolver, title_key
from cirag_dspy.schema import Passage

from .samples import ALPHA, BETA, CONTEXT, HOTPOT, MUSIQUE, write


def load(tmp_path, *rows, **options):
    return load_benchmark("hotpotqa", data_file=write(tmp_path / "dev.json", rows), **options)


def test_title_key():
    assert title_key("Tom &amp;  Jerry ") == title_key("tom & jerry")
    assert title_key("C++") != title_key("C#")


def test_titles_are_compared_tolerantly(tmp_path):
    row = HOTPOT | {"supporting_facts": [["alpha  hall", 1], ["MIRA OLT", 0]]}
    (example,) = load(tmp_path, row).examples
    assert len(example.gold_passages) == 2
    assert example.supporting == [("alpha  hall", 1), ("MIRA OLT", 0)]


def test_missing_gold_is_kept_out_and_counted(tmp_path):
    row = HOTPOT | {"supporting_facts": [["Alpha Hall", 1], ["Nowhere", 0], ["Nowhere", 1]]}
    benchmark = load(tmp_path, row)
    assert len(benchmark.examples[0].gold_passages) == 1
    assert benchmark.examples[0].gold_missing == 1
    assert (benchmark.notes["gold_total"], benchmark.notes["gold_missing"]) == (2, 1)
    assert benchmark.notes["warnings"][:1] == [
        "1 of 2 gold passages are not in the corpus; recall counts them as not found"
    ]


def test_fullwiki_gold_is_found_among_the_paragraphs_of_other_questions(tmp_path):
    row = HOTPOT | {"context": CONTEXT[:1]}
    other = HOTPOT | {"_id": "h2", "context": CONTEXT[1:], "supporting_facts": []}
    benchmark = load(tmp_path, row, other, setting="fullwiki")
    assert len(benchmark.examples[0].gold_passages) == 2
    assert benchmark.notes["gold_missing"] == 0


def test_sentences_beyond_the_end_are_skipped_but_stay_official(tmp_path):
    row = HOTPOT | {"supporting_facts": [["Alpha Hall", 2], ["Alpha Hall", -1], ["Mira Olt", 99], ["Mira Olt", 1]]}
    benchmark = load(tmp_path, row)
    (example,) = benchmark.examples
    assert [index for _, index in example.gold_sentences] == [1]
    assert len(example.gold_passages) == 2
    assert len(example.supporting) == 4
    assert benchmark.notes["gold_sentences_skipped"] == 3


def test_of_paragraphs_with_one_title_the_one_that_has_the_sentence(tmp_path):
    row = HOTPOT | {"context": [["Mira Olt", ["A disambiguation page."]], *CONTEXT]}
    (example,) = load(tmp_path, row).examples
    assert example.gold_passages[1] == Passage.create("Mira Olt", BETA).id


def test_a_given_corpus_matches_by_content_whatever_joins_the_sentences(tmp_path):
    glued = write(tmp_path / "corpus.json", [{"title": title, "text": "".join(body)} for title, body in CONTEXT])
    tight = [{"title": title.upper(), "text": "".join(text.strip() for text in body)} for title, body in CONTEXT]
    for corpus in (glued, write(tmp_path / "tight.jsonl", tight)):
        benchmark = load(tmp_path, HOTPOT, corpus=corpus)
        (example,) = benchmark.examples
        assert benchmark.notes["gold_missing"] == 0
        texts = {passage.id: passage for passage in benchmark.passages}
        assert "designed by Mira Olt" in texts[example.gold_sentences[0][0]].sentences[example.gold_sentences[0][1]]


def test_a_given_corpus_matches_by_title_only_when_one_passage_has_it(tmp_path):
    once = [
        Passage.create("Alpha Hall", "Another text."),
        Passage.create("Mira Olt", "One."),
        Passage.create("Mira Olt", "Two."),
    ]
    benchmark = load(tmp_path, HOTPOT, corpus=once)
    assert benchmark.examples[0].gold_passages == [once[0].id]
    assert benchmark.notes["gold_missing"] == 1


def test_musique_paragraphs_share_titles(tmp_path):
    corpus = [{"title": p["title"], "text": p["paragraph_text"]} for p in reversed(MUSIQUE["paragraphs"])]
    file = write(tmp_path / "dev.jsonl", [MUSIQUE])
    benchmark = load_benchmark("musique", data_file=file, corpus=write(tmp_path / "corpus.json", corpus))
    assert benchmark.examples[0].gold_passages == load_benchmark("musique", data_file=file).examples[0].gold_passages


def test_corpus_is_a_union_without_repetition(tmp_path):
    second = HOTPOT | {"_id": "h2", "context": [*CONTEXT[:2], ["Delta", ["Delta is a town."]]]}
    assert [p.title for p in load(tmp_path, HOTPOT, second).passages] == ["Alpha Hall", "Mira Olt", "Gamma", "Delta"]


def test_empty_passages_do_not_crash():
    empty = Passage.create("Empty", [])
    assert Resolver([empty]).resolve([Gold("Empty", 0)], [Passage.create("Empty", ALPHA)])[1] == []
    assert Resolver([]).resolve([Gold("Empty", 0)], [])[2] == 1


def test_a_fullwiki_file_is_recognised(tmp_path):
    bare = HOTPOT | {"context": HOTPOT["context"][1:]}
    warnings = load(tmp_path, bare).notes["warnings"]
    assert any("the file is in the fullwiki setting" in warning and "--corpus" in warning for warning in warnings)
    assert not any("fullwiki" in warning for warning in load(tmp_path, HOTPOT).notes["warnings"])
