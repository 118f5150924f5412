from collections import Counter
from importlib import resources

import pytest

from cirag_dspy.benchmarks import load_benchmark
from cirag_dspy.benchmarks.demo import demo_passages, demo_triples
from cirag_dspy.text import words

DATA = resources.files("cirag_dspy.benchmarks") / "data"
pytestmark = pytest.mark.skipif(not (DATA / "demo_questions.jsonl").is_file(), reason="the demo set is not here yet")

SPLITS = ("train", "dev")
TYPES = {"bridge", "comparison", "compositional", "yes_no"}


@pytest.fixture(scope="module")
def examples():
    return {split: load_benchmark("demo", split).examples for split in SPLITS}


def test_size(examples):
    assert 70 <= len(demo_passages()) <= 100
    assert 50 <= sum(map(len, examples.values())) <= 80


def test_ids_titles_and_questions_are_unique(examples):
    passages = demo_passages()
    both = [example for split in SPLITS for example in examples[split]]
    for values in (
        [passage.id for passage in passages],
        [passage.title.casefold() for passage in passages],
        [example.id for example in both],
        [example.question.casefold() for example in both],
    ):
        assert [value for value, count in Counter(values).items() if count > 1] == []


def test_types_in_both_splits(examples):
    for split in SPLITS:
        assert {example.type for example in examples[split]} == TYPES


def test_gold_is_in_the_corpus(examples):
    passages = {passage.id: passage for passage in demo_passages()}
    for split in SPLITS:
        benchmark = load_benchmark("demo", split, limit=1)
        assert len(benchmark.passages) == len(passages)
        assert benchmark.notes["gold_missing"] == benchmark.notes["gold_sentences_skipped"] == 0
        for example in examples[split]:
            assert example.answer.strip()
            assert len(example.gold_sentences) == len(set(example.supporting)) > 0
            for passage_id, index in example.gold_sentences:
                assert passages[passage_id].sentences[index]


def test_evidence_is_in_the_gold_passages(examples):
    passages = {passage.id: passage for passage in demo_passages()}
    for split in SPLITS:
        for example in examples[split]:
            held = {word for id in example.gold_passages for word in words(f"{passages[id].title} {passages[id].text}")}
            for head, _, tail in example.evidences:
                assert held.issuperset(words(f"{head} {tail}")), (example.id, head, tail)


def test_every_passage_has_triples():
    triples = demo_triples()
    passages = demo_passages()
    assert set(triples) == {passage.id for passage in passages}
    for passage in passages:
        assert triples[passage.id], passage.title
        for triple in triples[passage.id]:
            assert triple.passage_id == passage.id
            assert triple.head and triple.relation and triple.tail
            assert passage.sentences[triple.sentence]
