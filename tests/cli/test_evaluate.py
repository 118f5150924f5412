"""``eval`` with several systems: one table, a run folder each, nothing asked twice, each setting where it belongs."""

import csv
import json
import sqlite3

import pytest
from dspy.utils.exceptions import LMAuthError

from cirag_dspy import artifact
from cirag_dspy.evaluate import corpus
from cirag_dspy.systems import build_system
from tests.cli.conftest import good
from tests.fakes import fields_of

DEMO = ("eval", "--dataset", "demo", "--limit", "3", "--threads", "1", "--lm", "x")
BOTH = (*DEMO, "--system", "cirag,native_rag")


def asked(inside):
    """How many prompts of each kind there were."""
    kinds = {"extract": 0, "integrate": 0, "evidence": 0, "passages": 0}
    for prompt in inside.prompts:
        system, fields = prompt[0]["content"], fields_of(prompt[-1]["content"])
        kind = "extract" if "triples:" in system else "integrate" if "core:" in system else ""
        kinds[kind or ("evidence" if "evidence" in fields else "passages")] += 1
    return kinds


def rows(folder):
    return [json.loads(line) for line in (folder / "questions.jsonl").read_text().splitlines()]


def manifest(folder):
    return json.loads((folder / "run.json").read_text())


def assert_wrong(done, says):
    assert done.exit_code == 2, (done.stdout, done.stderr)
    assert says in done.stderr and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_two_systems_side_by_side(inside, tmp_path, monkeypatch):
    opened = []
    original = corpus.open_corpus

    def counting(*arguments, **options):
        opened.append(options["extractor"])
        return original(*arguments, **options)

    monkeypatch.setattr(corpus, "open_corpus", counting)
    done = inside(*BOTH, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    assert (inside.opened, opened) == (["x"], ["scripted/x (one)"])  # one LM, one index
    # All passages are extracted first, so that cirag pays for no more than its own questions.
    assert asked(inside) == {"extract": 89, "integrate": 3, "evidence": 3, "passages": 3}
    lines = done.stdout.splitlines()
    assert lines[0] == "demo dev, 3 questions, x"
    assert lines[3].split()[:5] == ["cirag", "10", "100.0", "[100.0,", "100.0]"]
    assert lines[4].split()[:5] == ["native_rag", "10", "0.0", "[0.0,", "0.0]"]
    assert "Note" not in done.stdout and "3 of 24 questions drawn at random, --seed 0 --limit 3" in done.stdout
    # Three losses of three: two of the eight choices of signs are as far out.
    assert lines[7].split() == [
        *["native_rag", "-100.0", "[-100.0,", "-100.0]", "0.250"],
        *["-100.0", "[-100.0,", "-100.0]", "0.250"],
    ]
    assert "cirag (1 of 2)\nnative_rag (2 of 2)\n" in done.stderr
    cirag, native = (tmp_path / "run" / name for name in ("cirag", "native_rag"))
    assert [row["id"] for row in rows(cirag)] == [row["id"] for row in rows(native)]
    assert all(len(row["triples"][0]) == 3 for row in rows(cirag)) and rows(native)[0]["triples"] == []
    same = ("dataset", "corpus", "lms", "metrics", "threads")
    assert all(manifest(cirag)[key] == manifest(native)[key] for key in same)
    assert manifest(cirag)["system"]["extract_when"] == "offline"


def test_a_run_is_the_same_alone_and_beside_others(inside, tmp_path):
    alone = inside(*DEMO, "--system", "native_rag", "--out", tmp_path / "run" / "native_rag")
    assert alone.exit_code == 0 and alone.stdout.startswith("demo dev, 3 questions, native_rag, x\n  EM 0.0")
    assert inside(*BOTH, "--out", tmp_path / "run", "--resume").exit_code == 0
    assert asked(inside)["passages"] == 0


def test_killed_half_way_only_the_rest_is_asked(inside, tmp_path):
    count = []

    def dies(messages):
        if "passages" in fields_of(messages[-1]["content"]):
            count.append(1)
            if len(count) == 2:
                return LMAuthError("the key has expired")
        return good(messages)

    inside.reply = dies
    done = inside(*BOTH, "--out", tmp_path / "run")
    assert done.exit_code == 2 and "the key has expired" in done.stderr
    assert (len(rows(tmp_path / "run" / "cirag")), len(rows(tmp_path / "run" / "native_rag"))) == (3, 1)
    inside.reply = good
    assert_wrong(inside(*BOTH, "--out", tmp_path / "run", "--quiet"), "already holds a run; --resume goes on with it")
    assert inside.prompts == []
    done = inside(*BOTH, "--out", tmp_path / "run", "--resume")
    assert done.exit_code == 0, done.stderr
    assert asked(inside) == {"extract": 0, "integrate": 0, "evidence": 0, "passages": 2}
    again = inside(*BOTH, "--out", tmp_path / "run", "--resume")
    assert inside.prompts == [] and again.stdout == done.stdout


def test_what_can_not_be_gone_on_with_is_said_before_anything_is_asked(inside, tmp_path):
    inside(*DEMO, "--system", "native_rag", "--out", tmp_path / "run" / "native_rag")
    done = inside(*BOTH, "--set", "native_rag.k=2", "--extract", "given", "--out", tmp_path / "run", "--resume")
    assert done.exit_code == 2 and "native_rag holds a run of other settings" in done.stderr
    assert inside.prompts == []


def test_online_each_system_pays_for_its_own_triples(inside, tmp_path, monkeypatch):
    twin = {"cirag": "cirag_dspy.systems.cirag:CIRAGModule", "twin": "cirag_dspy.systems.cirag:CIRAGModule"}
    monkeypatch.setattr("cirag_dspy.systems.SYSTEMS", twin)
    monkeypatch.setattr("cirag_dspy.evaluate.variants.SYSTEMS", twin)
    online = (*DEMO, "--system", "cirag,twin", "--extract", "online", "--out", tmp_path / "run")
    done = inside(*online, "--json")
    assert done.exit_code == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    calls = [runs[name]["summary"]["lm"]["calls"] for name in ("cirag", "twin")]
    assert calls[0] == calls[1] > 3 * 2
    assert runs["twin"]["extraction"]["done"] == runs["cirag"]["extraction"]["done"] == calls[0] - 6
    assert inside(*online, "--resume").exit_code == 0 and inside.prompts == []
    # A folder that holds triples but no answer yet would not pay for them: it is begun anew.
    (tmp_path / "run" / "twin" / "questions.jsonl").unlink()
    inside(*online, "--resume")
    assert len(inside.prompts) == calls[1]
    assert_wrong(inside(*online, "--index", tmp_path / "i", "--resume"), "extracts them anew: leave one out")


def test_settings_go_to_the_systems_that_have_them(inside, tmp_path):
    sets = ("--set", "levels=['sentences']", "--set", "native_rag.k=2", "--set", "cirag.rank=false", "--set", "k=6")
    done = inside(*BOTH, "-k", "4", "-n", "7", "--max-hops", "1", *sets, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    cirag, native = (manifest(tmp_path / "run" / name)["system"] for name in ("cirag", "native_rag"))
    assert {name: cirag[name] for name in ("k", "n", "max_hops", "levels", "rank")} == {
        "k": 6,
        "n": 7,
        "max_hops": 1,
        "levels": ["sentences"],
        "rank": False,
    }
    assert (native["k"], "n" in native) == (2, False)
    assert "Note: k is not the same (cirag 6, native_rag 2); -k sets it for all." in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--system", "cirag,native_rag", "--set", "beams=2"], "none of cirag, native_rag has a setting beams"),
        (["--system", "native_rag", "--max-hops", "2"], "system native_rag has no setting max_hops; it has k"),
        (["--set", "native_rag.n=2"], "system native_rag has no setting n; it has k"),
        (["--set", "kirag.k=2"], "--set kirag.k=2: kirag is not run; there are cirag, native_rag"),
        (["--set", "k"], "--set k: give NAME=VALUE, or SYSTEM.NAME=VALUE"),
        (["--set", "=2"], "--set =2: give NAME=VALUE, or SYSTEM.NAME=VALUE"),
        (["--set", "k=many"], 'cirag: k must be a positive integer, not "many"'),
        (["--set", "native_rag.k=0"], "native_rag: k must be a positive integer, not 0"),
        (["--set", "rank=1"], "cirag: rank must be true or false, not 1"),
        (["--levels", "words"], "levels must be some of triples, sentences, passages, not words"),
        (["--set", "extract=two"], "--set extract=two: --extract and --calls say that"),
        (["--set", "cirag.threads=2"], "--set cirag.threads=2: --threads says that"),
        (["--system", "cirag,magic"], "unknown system 'magic'; there are cirag, native_rag"),
        (["--system", "cirag,cirag"], "system cirag is named twice"),
        (["--against", "kirag"], "--against must be one of cirag, native_rag, not 'kirag'"),
        (["--csv", "/dev/null/x.csv"], "/dev/null/x.csv can't be written: /dev/null: File exists"),
        (["--markdown", "/tmp"], "/tmp can't be written: it is a folder; name another file"),
        (["--write-official", "/dev/null"], "/dev/null is no folder; name another folder"),
        (["--aligner", "/nowhere"], "/nowhere holds no aligner (it has no modules.json)"),
        (["--calls", "three"], "--calls must be one or two, not 'three'"),
    ],
)
def test_wrong_use(arguments, says, inside, tmp_path):
    assert_wrong(inside(*BOTH, *arguments, "--out", tmp_path / "run"), says)
    assert inside.prompts == [] and not (tmp_path / "run").exists()


def test_a_seed_is_not_negative(inside, tmp_path):
    done = inside(*BOTH, "--seed", "-1", "--out", tmp_path / "run")
    assert done.exit_code == 2 and "--seed" in done.stderr and inside.prompts == []


def test_reports(inside, tmp_path):
    files = ("--csv", tmp_path / "new" / "x.csv", "--markdown", tmp_path / "x.md")
    done = inside(*BOTH, "--extract", "given", "--against", "native_rag", *files, "--out", tmp_path / "run", "--json")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)  # and nothing else is on stdout
    assert list(document["runs"]) == list(document["comparison"]["runs"]) == ["cirag", "native_rag"]
    assert document["runs"]["cirag"]["out"] == str(tmp_path / "run" / "cirag")
    assert document["runs"]["cirag"]["summary"]["recall"].keys() == {"@2", "@3", "@5", "@10"}
    found = document["comparison"]["runs"]["cirag"]
    assert found["difference"]["f1"] == {"mean": 1.0, "low": 1.0, "high": 1.0, "p": 0.25}
    table = list(csv.DictReader((tmp_path / "new" / "x.csv").open()))
    assert [row["name"] for row in table] == ["cirag", "native_rag"]
    assert float(table[0]["recall@3"]) == found["scores"]["recall@3"]["mean"] and table[1]["em_difference"] == ""
    assert (
        (tmp_path / "x.md")
        .read_text()
        .startswith("demo dev, 3 questions, x\n\n|  | k | EM | F1 | Str-Acc | recall@3 | @5 |")
    )


def test_seconds_are_told_of_a_latency_run_only(inside, tmp_path):
    timed = inside(*BOTH, "--threads", "4", "--latency", "--out", tmp_path / "timed", "--csv", tmp_path / "x.csv")
    assert timed.exit_code == 0, timed.stderr
    assert timed.stdout.splitlines()[2].split()[-1] == "s" and ",seconds," in (tmp_path / "x.csv").read_text()
    # Triples first; then each system answers one question that does not count.
    assert asked(inside) == {"extract": 89, "integrate": 4, "evidence": 4, "passages": 4}
    assert manifest(tmp_path / "timed" / "cirag")["latency"].startswith("one question at a time, no cache")
    plain = inside(*DEMO, "--system", "native_rag", "--out", tmp_path / "plain", "--json")
    assert '"seconds' not in plain.stdout and all("seconds" in row for row in rows(tmp_path / "plain"))
    other = inside(*BOTH, "--out", tmp_path / "timed", "--resume")
    assert other.exit_code == 2 and "latency" in other.stderr


@pytest.mark.parametrize("extract", [(), ("--extract", "offline"), ("--extract", "given")])
def test_the_seconds_of_a_system_alone_hold_no_extraction(extract, inside, tmp_path):
    done = inside(*DEMO, "--system", "cirag", "--latency", *extract, "--out", tmp_path / "run")
    assert done.exit_code == 0 and done.stdout.rstrip().endswith("s (median, one at a time)")
    assert asked(inside)["extract"] == (0 if "given" in extract else 89)
    wrong = inside(*DEMO, "--system", "cirag", "--latency", "--extract", "online", "--out", tmp_path / "other")
    assert_wrong(wrong, "--latency: cirag would extract triples while it is timed; --extract offline does so before")


def test_failed_questions_exit_1_and_are_told_by_system(inside, tmp_path):
    def fails(messages):
        return RuntimeError("overloaded") if "passages" in fields_of(messages[-1]["content"]) else good(messages)

    inside.reply = fails
    done = inside(*BOTH, "--extract", "given", "--out", tmp_path / "run")
    assert done.exit_code == 1
    assert (
        "3 questions of native_rag failed; --resume tries them again" in done.stderr and "of cirag" not in done.stderr
    )
    assert done.stdout.splitlines()[2].split()[-1] == "errors" and done.stdout.splitlines()[4].split()[-1] == "3"


def test_dry_run(inside):
    done = inside(*BOTH, "--dry-run", "--json")
    cost = json.loads(done.stdout)
    assert inside.opened == []
    assert {name: parts["lm_calls"] for name, parts in cost["answering_at_most"].items()} == {
        "cirag": 3 * (4 + 3 + 1),
        "native_rag": 3,
    }
    assert (cost["extraction_at_most"]["lm_calls"], cost["known_at_most"]["lm_calls"]) == (89, 24 + 3 + 89)
    lines = inside(*BOTH, "--extract", "given", "--dry-run").stdout.splitlines()
    assert lines[0] == "3 questions over 89 passages" and lines[2].startswith(
        "  native_rag, answering at most: 3 LM calls"
    )
    assert lines[3].startswith("  in all at most: 27 LM calls") and len(lines) == 4


def test_dry_run_of_a_system_whose_cost_is_not_known(inside, monkeypatch):
    monkeypatch.delitem(__import__("cirag_dspy.evaluate.cost", fromlist=["x"]).QUESTION_COSTS, "native_rag")
    lines = inside(*BOTH, "--dry-run").stdout.splitlines()
    assert lines[2] == "  native_rag, answering at most: unknown"
    assert lines[4].startswith("  in all at most: 113 LM calls") and lines[4].endswith(", and native_rag")
    alone = inside(*DEMO, "--system", "native_rag", "--dry-run").stdout.splitlines()
    assert alone == ["3 questions over 89 passages", "  answering at most: unknown"]
    assert json.loads(inside(*BOTH, "--dry-run", "--json").stdout)["answering_at_most"]["native_rag"] is None


@pytest.fixture
def program(tmp_path):
    """A saved program of plain RAG alone, with a prompt and a k of its own."""
    native = build_system("native_rag", None)
    native.reader.read.signature = native.reader.read.signature.with_instructions("Answer like a pirate.")
    return artifact.save(native, tmp_path / "pirate", settings={"k": 3}, lm="openai/teacher", called={"max_tokens": 99})


def test_a_program_lends_its_lm_to_systems_that_it_does_not_hold(program, inside, tmp_path):
    options = ("--dataset", "demo", "--limit", "2", "--threads", "1", "--program", program, "--extract", "given")
    done = inside("eval", *options, "--system", "native_rag,cirag", "--out", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    assert inside.opened == ["openai/teacher"] and done.stdout.startswith("demo dev, 2 questions, pirate\n")
    pirates = [prompt for prompt in inside.prompts if "like a pirate" in prompt[0]["content"]]
    assert len(pirates) == 2 and all("passages" in fields_of(prompt[-1]["content"]) for prompt in pirates)
    native, cirag = (manifest(tmp_path / "run" / name) for name in ("native_rag", "cirag"))
    assert native["program"].keys() == {"name", "sha256"} and native["system"]["k"] == 3
    assert cirag["program"]["prompts"] == "not the program's: those of the system itself" and cirag["system"]["k"] == 10
    alone = inside("eval", *options, "--system", "cirag", "--out", tmp_path / "alone")
    assert alone.exit_code == 0 and "like a pirate" not in str(inside.prompts)


def test_triples_of_one_index_are_written_with_the_program_s_prompt(inside, tmp_path, monkeypatch):
    cirag = build_system("cirag", None)
    predictor = cirag.construct.extract.triples
    predictor.signature = predictor.signature.with_instructions("List what you see.")
    folder = artifact.save(cirag, tmp_path / "seer", settings={}, lm="openai/teacher")
    twins = dict.fromkeys(("cirag", "twin"), "cirag_dspy.systems.cirag:CIRAGModule")
    for module in ("systems", "evaluate.variants"):
        monkeypatch.setattr(f"cirag_dspy.{module}.SYSTEMS", twins)
    options = ("--limit", "1", "--threads", "1", "--program", folder, "--system", "twin", "--out", tmp_path / "run")
    assert inside("eval", "--dataset", "demo", *options).exit_code == 0
    extracting = [prompt for prompt in inside.prompts if "triples:" in prompt[0]["content"]]
    assert extracting and all("List what you see." in prompt[0]["content"] for prompt in extracting)
    assert "prompts " in manifest(tmp_path / "run")["index"]["extractor"]
    wrong = inside("eval", "--dataset", "demo", *options, "--calls", "two")
    assert_wrong(wrong, "seer extracts in one call(s) a passage: leave --calls out")


def test_official_files(inside, tmp_path):
    done = inside(*BOTH, "--extract", "given", "--out", tmp_path / "run", "--write-official", tmp_path / "off")
    assert done.exit_code == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "off").iterdir()) == ["cirag.json", "native_rag.json"]
    content = json.loads((tmp_path / "off" / "cirag.json").read_text())
    gold = [row["gold"][0] for row in rows(tmp_path / "run" / "cirag")]
    assert set(content) == {"answer", "sp"} and list(content["answer"].values()) == gold
    title, sentence = next(iter(content["sp"].values()))[0]
    assert isinstance(title, str) and isinstance(sentence, int)
    alone = inside(*DEMO, "--system", "native_rag", "--out", tmp_path / "a", "--write-official", tmp_path / "b")
    assert alone.exit_code == 0 and [path.name for path in (tmp_path / "b").iterdir()] == ["native_rag.json"]


def test_official_files_of_2wiki_have_the_evidence_and_musique_s_the_order_of_the_gold(inside, tmp_path):
    files = {"2wikimultihopqa": two_wiki(tmp_path), "musique": musique(tmp_path)}
    for dataset, file in files.items():
        # The last question is answered first: rows stand in another order than the gold file.
        inside.reply = lambda messages: good(messages) if "evidence" not in str(messages[-1]) else "answer: Velden"
        options = ("--data-file", file, "--lm", "x", "--threads", "1", "--out", tmp_path / dataset)
        done = inside("eval", "--dataset", dataset, *options, "--system", "cirag", "--write-official", tmp_path / "off")
        assert done.exit_code == 0, done.stderr
        kept = tmp_path / dataset / "questions.jsonl"
        kept.write_text("".join(reversed(kept.read_text().splitlines(keepends=True))))
        inside(
            "eval",
            "--dataset",
            dataset,
            *options,
            "--system",
            "cirag",
            "--write-official",
            tmp_path / "off",
            "--resume",
        )
        assert inside.prompts == []
    content = json.loads((tmp_path / "off" / "cirag.json").read_text())
    assert content["evidence"] == {
        "w1": [["Harbor Song", "is about", "Harbor Song"]],
        "w2": [["Tom Hale", "is about", "Tom Hale"]],
    }
    lines = [json.loads(line) for line in (tmp_path / "off" / "cirag.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == ["m2", "m1"]
    assert lines[0].keys() == {"id", "predicted_answer", "predicted_support_idxs", "predicted_answerable"}
    assert lines[0]["predicted_support_idxs"] == [4]


def two_wiki(folder):
    context = [
        ["Harbor Song", ["The film Harbor Song was directed by Ada Brook."]],
        ["Tom Hale", ["Tom Hale was born."]],
    ]
    questions = {"w1": "Who made the film Harbor Song?", "w2": "Was Tom Hale born?"}
    content = [
        {"_id": id, "type": "compositional", "question": question, "answer": "Velden", "context": context,
         "supporting_facts": [["Tom Hale", 0]], "evidences": [["Tom Hale", "born", "Velden"]]}
        for id, question in questions.items()
    ]  # fmt: skip
    (folder / "2wiki.json").write_text(json.dumps(content))
    return folder / "2wiki.json"


def musique(folder):
    texts = {
        3: ("Harbor Song", "The film Harbor Song was directed by Ada Brook."),
        4: ("Tom Hale", "Tom Hale was born."),
    }
    paragraphs = [
        {"idx": idx, "title": title, "paragraph_text": text, "is_supporting": idx == 4}
        for idx, (title, text) in texts.items()
    ]
    content = [
        {"id": id, "question": question, "answer": "Velden", "answer_aliases": [], "answerable": True,
         "paragraphs": paragraphs, "question_decomposition": []}
        for id, question in (("m2", "Was Tom Hale born?"), ("m1", "Who made the film Harbor Song?"))
    ]  # fmt: skip
    (folder / "musique.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
    return folder / "musique.jsonl"


def test_a_file_of_unanswerable_questions_alone(inside, tmp_path):
    row = json.loads(musique(tmp_path).read_text().splitlines()[0]) | {"answer": "", "answerable": False}
    (tmp_path / "own.jsonl").write_text(json.dumps(row) + "\n")
    inside.reply = lambda messages: "answer: unanswerable"
    asked = ("eval", "--dataset", "musique", "--data-file", tmp_path / "own.jsonl", "--lm", "x", "--threads", "1",
             "--system", "native_rag", "--unanswerable")  # fmt: skip
    done = inside(*asked, "--out", tmp_path / "run", "--write-official", tmp_path / "off", "--csv", tmp_path / "t.csv")
    assert done.exit_code == 0, done.stderr
    assert "unanswerable: rightly left open 1 of 1" in done.stdout
    header, first = (tmp_path / "t.csv").read_text().splitlines()
    assert dict(zip(header.split(","), first.split(","), strict=True))["em_unanswerable"] == "1.0"
    assert json.loads((tmp_path / "off" / "native_rag.jsonl").read_text())["predicted_answerable"] is False


def test_no_official_format_is_said_before_anything_is_loaded(inside, tmp_path):
    done = inside("eval", "--dataset", "nq", "--lm", "x", "--write-official", tmp_path / "off")
    assert_wrong(done, "nq: its authors define no prediction file (hotpotqa, demo, 2wikimultihopqa, musique have one)")
    assert not (tmp_path / "off").exists()


def test_the_copied_index_starts_without_triples(inside, tmp_path):
    ablation = ("ablate", "extraction", "--dataset", "demo", "--limit", "1", "--lm", "x", "--threads", "1")
    assert inside(*ablation, "--out", tmp_path / "run").exit_code == 0
    with sqlite3.connect(tmp_path / "run" / "online" / "index" / "corpus.sqlite") as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {name: database.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone()[0] for name in tables}
    assert 0 < found["triples"] < 89
