import subprocess
import sys
from pathlib import Path

import pytest

from cirag_dspy.benchmarks import load_benchmark
from cirag_dspy.errors import DataError

from .samples import BAMBOOGLE, HOTPOT, MUSIQUE, NQ, TITLES, WIKI, write

ROWS = [HOTPOT | {"_id": f"h{n}"} for n in range(20)]
SHARED = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "dev.json", ROWS)
    return tmp_path


def ids(benchmark):
    return [example.id for example in benchmark.examples]


def test_a_limit_draws_at_random_by_a_seed_in_file_order(folder):
    drawn = load_benchmark("hotpotqa", data_dir=folder, limit=3)
    assert ids(drawn) == ["h1", "h12", "h13"]  # random.Random(0).sample(range(20), 3)
    assert drawn.notes["draw"] == {"kind": "random", "seed": 0, "n": 3, "of": 20}
    other = load_benchmark("hotpotqa", data_dir=folder, limit=3, sample_seed=1)
    assert ids(other) != ids(drawn) and ids(other) == sorted(ids(other), key=lambda id: int(id[1:]))


def test_the_first_are_taken_when_asked_for_with_a_warning(folder):
    first = load_benchmark("hotpotqa", data_dir=folder, limit=3, first=True)
    assert ids(first) == ["h0", "h1", "h2"]
    assert first.notes["draw"]["kind"] == "first" and "are no sample" in first.notes["warnings"][0]
    whole = load_benchmark("hotpotqa", data_dir=folder, limit=99, first=True)
    assert (len(ids(whole)), whole.notes["draw"]["kind"], whole.notes["warnings"]) == (20, "all", [])


def test_ids(folder):
    assert ids(load_benchmark("hotpotqa", data_dir=folder, ids=["h7", "h2"])) == ["h2", "h7"]
    assert ids(load_benchmark("hotpotqa", data_dir=folder, ids=["h7", "h2"], limit=1, first=True)) == ["h2"]


@pytest.mark.parametrize("options", [{"limit": 0}, {"limit": -3}, {"ids": ["nonexistent"]}, {"ids": []}])
def test_a_choice_that_leaves_nothing(folder, options):
    with pytest.raises(DataError, match="no examples"):
        load_benchmark("hotpotqa", data_dir=folder, **options)


def test_no_rows(tmp_path):
    for content in ("[]", "", "\n"):
        (tmp_path / "dev.json").write_text(content)
        with pytest.raises(DataError, match="no examples"):
            load_benchmark("hotpotqa", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("name", "split", "setting", "file"),
    [
        ("hotpotqa", "dev", "distractor", "hotpot_dev_distractor_v1.json"),
        ("hotpotqa", "dev", "fullwiki", "hotpot_dev_fullwiki_v1.json"),
        ("hotpotqa", "train", "distractor", "hotpot_train_v1.1.json"),
        ("hotpotqa", "dev", "distractor", "hotpotqa/dev.jsonl"),
        ("2wikimultihopqa", "dev", "distractor", "dev.json"),
        ("musique", "dev", "distractor", "musique_ans_v1.0_dev.jsonl"),
        ("musique", "train", "distractor", "musique/train.jsonl"),
        ("nq", "dev", "distractor", "nq/dev.jsonl"),
    ],
)
def test_usual_file_names(tmp_path, name, split, setting, file):
    row = {"hotpotqa": HOTPOT, "2wikimultihopqa": WIKI, "musique": MUSIQUE, "nq": NQ}[name]
    path = write(tmp_path / file, [row])
    benchmark = load_benchmark(name, split, data_dir=tmp_path, setting=setting)
    assert (benchmark.name, benchmark.split, len(benchmark.examples)) == (name, split, 1)
    assert benchmark.source.startswith(f"{path} sha256:")


def test_missing_file_lists_what_was_looked_for(tmp_path):
    with pytest.raises(DataError, match=r"looked for hotpot_train_distractor_v1.json, .*train.json, train.jsonl"):
        load_benchmark("hotpotqa", "train", data_dir=tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        load_benchmark("hotpotqa", data_dir=tmp_path / "none")
    with pytest.raises(DataError, match="no such file"):
        load_benchmark("hotpotqa", data_file=tmp_path / "none.json")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "squad"}, "unknown data set 'squad'; known are hotpotqa"),
        ({"name": "nq", "split": "validation"}, "unknown split 'validation'"),
        ({"name": "hotpotqa", "setting": "open"}, "unknown setting 'open'"),
        ({"name": "musique", "setting": "fullwiki"}, "setting 'fullwiki' is HotpotQA's"),
        ({"name": "musique", "split": "test"}, "musique: no test questions with answers are published"),
        ({"name": "demo", "split": "test"}, "demo: has no test split"),
    ],
)
def test_asked_for_wrongly(arguments, message):
    with pytest.raises(DataError, match=message):
        load_benchmark(**arguments)


def test_split_without_labels(tmp_path):
    write(tmp_path / "test.json", [{key: value for key, value in HOTPOT.items() if key != "answer"}])
    with pytest.raises(DataError, match=r"hotpotqa test has no answers.*use dev"):
        load_benchmark("hotpotqa", "test", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (HOTPOT | {"question": None}, "row 2: field 'question' is missing"),
        (HOTPOT | {"question": 5}, "row 2: field 'question' is int, expected a string"),
        (HOTPOT | {"answer": ""}, "row 2: field 'answer' is missing or empty"),
        (HOTPOT | {"answer": {"text": "x"}}, "row 2: field 'answer' is no list of strings"),
        (
            HOTPOT | {"context": [["Only a title"]]},
            r"row 2: field 'context\[0\]' is no list of 2 \(title / sentences\)",
        ),
        (HOTPOT | {"context": {"title": ["A"]}}, "row 2: field 'context' lacks 'sentences' or 'content'"),
        (HOTPOT | {"context": {"title": ["A"], "sentences": []}}, "row 2: field 'context' has columns of different"),
        (HOTPOT | {"context": [["A", [1]]]}, "row 2: field 'context' holds int where a string belongs"),
        (HOTPOT | {"context": "no json"}, "row 2: field 'context' is a string, but no JSON"),
        (HOTPOT | {"context": 7}, "row 2: field 'context' is int, expected a list"),
        (HOTPOT | {"supporting_facts": [["A", "0"]]}, "row 2: field 'supporting_facts' holds '0' where an index"),
        (MUSIQUE | {"paragraphs": [{"title": "A"}]}, r"row 2, paragraphs\[0\]: field 'text' is missing"),
        (MUSIQUE | {"paragraphs": ["A"]}, "row 2: field 'paragraphs' is no list of objects"),
        (NQ | {"sub_questions": ["Who?"]}, "row 2: field 'sub_answers' has 0 entries for 1 sub_questions"),
        (WIKI | {"_id": "h1"}, "two questions have the id 'h1'"),
        (["a list"], "row 2: is list, expected an object"),
    ],
)
def test_layout_errors_name_file_row_and_field(tmp_path, row, message):
    with pytest.raises(DataError, match=message) as error:
        load_benchmark("hotpotqa", data_file=write(tmp_path / "mine.jsonl", [HOTPOT, row]))
    assert "mine.jsonl" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "row", [HOTPOT, WIKI, MUSIQUE, NQ, BAMBOOGLE, TITLES], ids=lambda row: next(iter(row.values()))
)
@pytest.mark.parametrize("junk", [None, "", "text", "[]", 3, [], [[]], [None], [3], {}, [{}], {"title": 1}], ids=repr)
def test_junk_in_any_field_is_read_or_reported(tmp_path, row, junk):
    for key in row:
        try:
            load_benchmark("2wikimultihopqa", data_file=write(tmp_path / "dev.json", [row | {key: junk}]))
        except DataError as error:
            assert "\n" not in str(error)


def test_files_that_are_no_json(tmp_path):
    file = tmp_path / "dev.json"
    file.write_text('[{"a": 1},\n oops]')
    with pytest.raises(DataError, match="not valid JSON, line 2"):
        load_benchmark("hotpotqa", data_file=file)
    file.write_text('{"a": 1}\n{oops\n')
    with pytest.raises(DataError, match="neither a JSON list nor JSON lines, line 2"):
        load_benchmark("hotpotqa", data_file=file)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="cannot be read"):
        load_benchmark("hotpotqa", data_file=file)


def test_damaged_corpus(folder):
    with pytest.raises(DataError, match=r"corpus.json row 1: field 'text' is missing"):
        load_benchmark("hotpotqa", data_dir=folder, corpus=write(folder / "corpus.json", [{"title": "A"}]))
    with pytest.raises(DataError, match="the corpus is empty"):
        load_benchmark("hotpotqa", data_dir=folder, corpus=write(folder / "corpus.json", []))


def test_corpus_keeps_ids_and_sentences(folder):
    rows = [{"id": 7, "title": "A", "sentences": ["One.", "Two."]}, {"title": "B", "paragraph_text": "Three."}]
    first, second = load_benchmark("hotpotqa", data_dir=folder, corpus=write(folder / "c.jsonl", rows)).passages
    assert (first.id, first.sentences, second.text) == ("7", ("One.", "Two."), "Three.")


def test_the_paragraphs_of_a_question_have_the_ids_of_the_corpus(tmp_path):
    paragraphs = MUSIQUE["paragraphs"]
    rows = [{"id": f"p{one['idx']}", "title": one["title"], "text": one["paragraph_text"]} for one in paragraphs]
    file, corpus = write(tmp_path / "dev.jsonl", [MUSIQUE]), write(tmp_path / "c.jsonl", rows)
    example = load_benchmark("musique", data_file=file, corpus=corpus).examples[0]
    assert example.paragraphs == {"p0": 0, "p1": 1, "p2": 2, "p3": 3}
    assert set(example.gold_passages) == {"p1", "p2"}


def test_datasets_is_imported_late():
    code = "import sys, cirag_dspy.benchmarks; sys.exit('datasets' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(not SHARED.exists(), reason="no shared question sets here")
@pytest.mark.parametrize(
    ("name", "split", "questions"),
    [
        ("hotpotqa", "train", 1091),
        ("hotpotqa", "dev", 800),
        ("2wikimultihopqa", "train", 500),
        ("2wikimultihopqa", "dev", 315),
        ("musique", "train", 299),
        ("musique", "dev", 110),
        ("nq", "dev", 269),
        ("bamboogle", "dev", 125),
    ],
)
def test_real_files(name, split, questions):
    benchmark = load_benchmark(name, split, data_dir=SHARED)
    known = {passage.id for passage in benchmark.passages}
    assert len(benchmark.examples) == questions
    assert all(known.issuperset(example.gold_passages) for example in benchmark.examples)
    assert benchmark.notes["gold_missing"] == 0


@pytest.mark.skipif(not SHARED.exists(), reason="no shared question sets here")
def test_real_hipporag_corpus():
    folder = SHARED / "2wikimultihopqa"
    files = {"data_file": folder / "hipporag_questions.json", "corpus": folder / "hipporag_corpus.json"}
    benchmark = load_benchmark("2wikimultihopqa", **files)
    assert (len(benchmark.examples), len(benchmark.passages), benchmark.notes["gold_missing"]) == (460, 6119, 0)
