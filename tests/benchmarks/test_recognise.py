import gzip
import json

import pytest

from cirag_dspy.benchmarks import load_benchmark
from cirag_dspy.errors import DataError

from .samples import BAMBOOGLE, CONTEXT, HOTPOT, MUSIQUE, NQ, WIKI, write


def warned(path, name, row, **options):
    return load_benchmark(name, data_file=write(path, [row]), **options).notes["warnings"]


@pytest.mark.parametrize(
    ("name", "row", "right"),
    [
        ("hotpotqa", WIKI, "2wikimultihopqa"),
        ("2wikimultihopqa", HOTPOT, "hotpotqa"),
        ("nq", MUSIQUE, "musique"),
        ("hotpotqa", MUSIQUE, "musique"),
        ("musique", BAMBOOGLE, "bamboogle"),
        ("musique", NQ, "nq"),
        ("hotpotqa", NQ, "nq"),
    ],
)
def test_a_file_of_another_data_set_is_said(tmp_path, name, row, right):
    line = f"1 of 1 rows are in {right}'s layout, not {name}'s; give the data set {right}"
    assert line in warned(tmp_path / "dev.json", name, row)


@pytest.mark.parametrize(("name", "row"), [("hotpotqa", HOTPOT), ("2wikimultihopqa", WIKI), ("nq", NQ)])
def test_a_right_file_is_not_doubted(tmp_path, name, row):
    assert warned(tmp_path / "dev.json", name, row) == []


def test_a_training_file_used_as_dev_is_said(tmp_path):
    assert any("give --split train" in line for line in warned(tmp_path / "hotpot_train_v1.1.json", "hotpotqa", HOTPOT))
    assert warned(tmp_path / "train.json", "hotpotqa", HOTPOT, split="train") == []


def test_unknown_gold_is_said(tmp_path):
    row = HOTPOT | {"supporting_facts": []}
    assert any("1 of 1 rows have no supporting facts" in line for line in warned(tmp_path / "a.json", "hotpotqa", row))


def test_a_corpus_given_as_questions_is_refused(tmp_path):
    file = write(tmp_path / "corpus.json", [{"title": title, "text": " ".join(text)} for title, text in CONTEXT])
    with pytest.raises(DataError, match=r"no row has a question.*--corpus"):
        load_benchmark("hotpotqa", data_file=file)


def test_the_setting_says_what_a_fullwiki_file_is(tmp_path):
    file = write(tmp_path / "a.json", [HOTPOT | {"context": CONTEXT[1:]}])
    assert load_benchmark("hotpotqa", data_file=file).notes["setting"] == "fullwiki, at least in part"


@pytest.mark.parametrize("key", ["data", "rows", "questions"])
def test_an_object_that_holds_the_rows_is_read(tmp_path, key):
    file = tmp_path / "dev.json"
    file.write_text(json.dumps({"version": 1, key: [HOTPOT]}, indent=1))
    assert len(load_benchmark("hotpotqa", data_file=file).examples) == 1
    file.write_text(json.dumps(HOTPOT, indent=1))
    assert len(load_benchmark("hotpotqa", data_file=file).examples) == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (gzip.compress(b"[]"), "packed with gzip"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"PAR1rest", "a Parquet file"),
        (b"question,answer\nq,a\n", "a table \\(CSV, TSV\\) can't be read"),
        (b"", "no examples"),
        (b"[]", "no examples"),
    ],
)
def test_files_of_other_formats_are_said(tmp_path, content, says):
    file = tmp_path / "dev.json"
    file.write_bytes(content)
    with pytest.raises(DataError, match=says):
        load_benchmark("hotpotqa", data_file=file)
