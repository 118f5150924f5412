import datasets
import pytest

from cirag_dspy.benchmarks import load_benchmark
from cirag_dspy.errors import DataError

from .samples import HUB_HOTPOT, HUB_WIKI, MUSIQUE

REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(monkeypatch):
    """Stands in for ``datasets.load_dataset``: serves the rows put into it and records what was asked for."""
    served, asked = [], []

    def load_dataset(path, name=None, *, split):
        asked.append((path, name, split))
        table = datasets.Dataset.from_list(served)
        table.info.download_checksums = {f"hf://datasets/{path}@{REVISION}/data.parquet": {}}
        return table

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return served, asked


@pytest.mark.parametrize(
    ("name", "split", "setting", "row", "request_"),
    [
        ("hotpotqa", "dev", "distractor", HUB_HOTPOT, ("hotpotqa/hotpot_qa", "distractor", "validation")),
        ("hotpotqa", "train", "fullwiki", HUB_HOTPOT, ("hotpotqa/hotpot_qa", "fullwiki", "train")),
        ("2wikimultihopqa", "dev", "distractor", HUB_WIKI, ("framolfese/2WikiMultihopQA", None, "validation")),
        ("musique", "train", "distractor", MUSIQUE, ("dgslibisey/MuSiQue", None, "train")),
        (
            "nq",
            "dev",
            "distractor",
            {"question": "who", "answer": ["Olt"]},
            ("google-research-datasets/nq_open", None, "validation"),
        ),
        (
            "webquestions",
            "dev",
            "distractor",
            {"url": "u", "question": "who", "answers": ["Olt"]},
            ("stanfordnlp/web_questions", None, "test"),
        ),
        (
            "bamboogle",
            "test",
            "distractor",
            {"Question": "Who?", "Answer": "Olt"},
            ("chiayewken/bamboogle", None, "test"),
        ),
    ],
)
def test_hub_layouts(hub, name, split, setting, row, request_):
    served, asked = hub
    served.append(row)
    benchmark = load_benchmark(name, split, setting=setting)
    assert asked == [request_]
    assert benchmark.source == f"{request_[0]}@{REVISION}"
    assert benchmark.examples[0].answer in ("Sund", "Olt")
    if benchmark.passages:
        assert len(benchmark.examples[0].gold_passages) == 2
        assert benchmark.notes["gold_missing"] == 0


def test_hub_out_of_reach(monkeypatch):
    def load_dataset(*_, **__):
        raise ConnectionError("Couldn't reach 'x' on the Hub\nmore lines")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError) as error:
        load_benchmark("musique")
    message = str(error.value)
    assert "\n" not in message
    assert "Couldn't reach 'x' on the Hub" in message
    assert "pass --data-dir with the official files (musique_ans_v1.0_dev.jsonl" in message
    assert message.endswith("or unset HF_HUB_OFFLINE")


def test_no_labelled_split_is_not_even_asked_for(hub):
    with pytest.raises(DataError, match="hotpotqa: no test questions with answers are published"):
        load_benchmark("hotpotqa", "test")
    assert hub[1] == []
