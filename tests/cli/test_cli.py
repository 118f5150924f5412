"""The commands as a user types them: exit codes, clean stdout, one-line errors, work that is not done twice."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fakes import fields_of, openai_server

COMMAND = str(Path(sys.executable).parent / "cirag-dspy")
GOOD = {"OPENAI_API_KEY": "sk-test"}
README = str(Path(__file__).parents[2] / "README.md")


def cli(*arguments, env=None, cwd=None, timeout=120):
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", **GOOD, **(env or {})}
    return subprocess.run(
        [COMMAND, *map(str, arguments)], capture_output=True, text=True, env=environment, cwd=cwd, timeout=timeout
    )


def reply(messages):
    """An LM that extracts one triple a passage, keeps every fact and answers from the first one."""
    system, fields = messages[0]["content"], fields_of(messages[-1]["content"])
    if "triples:" not in system and "entities:" in system:
        return "entities: x"
    if "triples:" in system:
        return f"entities: x\ntriples:\n{fields['title']} | is about | {fields['title']}"
    if "core:" in system:
        return "thought: t\ncore: 1\nnext_query: none"
    return "answer: Harbor"


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name in ("harbor", "tower", "bridge"):
        (folder / f"{name}.md").write_text(f"# {name.title()}\n\nThe {name} was built in 1900. It stands by the sea.\n")
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def assert_one_line_error(done, code=2):
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ") and len(last) < 800
    return last


@pytest.mark.parametrize("arguments", [["--help"], ["index", "--help"], ["ask", "--help"], ["eval", "--help"]])
def test_help(arguments):
    done = cli(*arguments)
    assert done.returncode == 0 and "Usage" in done.stdout


@pytest.mark.slow
def test_index_and_ask(corpus, tmp_path):
    out = tmp_path / "index"
    with openai_server(reply) as (address, requests):
        lm = ["--lm", "openai/scripted", "--api-base", address, "--no-cache"]
        done = cli("index", corpus, "--out", out, *lm, "--json")
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert (result["passages"], result["added"], result["done"], result["triples"]) == (3, 3, 3, 3)
        assert len(requests) == 3
        again = json.loads(cli("index", corpus, "--out", out, *lm, "--json").stdout)
        assert (again["added"], again["unchanged"], len(requests)) == (0, 3, 3)
        asked = cli("ask", "When was the harbor built?", "--index", out, *lm, "--json")
        assert asked.returncode == 0, asked.stderr
        answer = json.loads(asked.stdout)
        assert (answer["answer"], answer["level"], answer["lm"]["calls"]) == ("Harbor", "triples", 2)
        assert answer["citations"][0]["title"] == "Harbor"
        assert answer["citations"][0]["sources"] == [f"{corpus.name}/harbor.md"]
        shown = cli("ask", "When was the harbor built?", "--index", out, *lm)
        assert shown.stdout.splitlines()[0] == "Harbor"
        assert shown.stdout.splitlines()[1].startswith("  [1] Harbor: ")
        assert "2 LM calls" in shown.stderr
    (corpus / "tower.md").write_text("# Tower\n\nThe tower fell in 1950.\n")
    (corpus / "bridge.md").unlink()
    changed = json.loads(cli("index", corpus, "--out", out, "--json").stdout)
    assert (changed["added"], changed["removed"], changed["passages"]) == (1, 2, 2)
    other = cli("index", corpus, "--out", out, "--embedder", "some/other-model")
    assert "--embedder" in assert_one_line_error(other)


@pytest.mark.slow
def test_failed_extraction_is_counted_listed_and_retried(corpus, tmp_path):
    out = tmp_path / "index"
    with openai_server(lambda messages: "I would rather chat.") as (address, requests):
        done = cli("index", corpus, "--out", out, "--lm", "openai/scripted", "--api-base", address, "--no-cache")
    assert done.returncode == 1
    assert "0 triples" in done.stdout and "3 failed" in done.stdout
    assert "3 passages failed; the next run tries them again" in done.stderr
    assert len(requests) == 6
    with openai_server(reply) as (address, requests):
        done = cli("index", corpus, "--out", out, "--lm", "openai/scripted", "--api-base", address, "--no-cache")
    assert done.returncode == 0 and len(requests) == 3


@pytest.mark.slow
def test_kill_half_way_pays_only_the_calls_in_flight_again(tmp_path):
    rows = [{"title": f"T{number}", "text": f"Fact number {number} is here."} for number in range(40)]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join(map(json.dumps, rows)))

    def slow(messages):
        time.sleep(0.05)
        return reply(messages)

    with openai_server(slow) as (address, requests):
        command = [COMMAND, "index", str(corpus), "--out", str(tmp_path / "index"), "--lm", "openai/scripted"]
        command += ["--api-base", address, "--no-cache", "--threads", "2"]
        process = subprocess.Popen(command, env={**os.environ, **GOOD}, stderr=subprocess.DEVNULL)
        while len(requests) < 20 and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        done = subprocess.run(command, env={**os.environ, **GOOD}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(requests) <= 40 + 2
    assert "40 passages" in done.stdout and "40 done" in done.stdout


def interruptible(command, **options):
    """A process that hears Ctrl-C, also where the tests run in a shell's background, which ignores it."""
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    return subprocess.Popen(command, env={**os.environ, **GOOD}, **heard, **options)


@pytest.mark.slow
def test_ctrl_c_is_heard_while_a_server_hangs_and_eval_resumes(tmp_path, cache):
    asked = []

    def hanging(messages):
        asked.append(messages)
        if len(asked) > 2:
            time.sleep(30)
        return reply(messages)

    options = ["eval", "--dataset", "demo", "--limit", "4", "--extract", "given", "--cache-dir", str(cache)]
    options += ["--out", str(tmp_path / "run"), "--lm", "openai/scripted", "--no-cache", "--threads", "2"]
    with openai_server(hanging) as (address, requests):
        command = [COMMAND, *options, "--api-base", address]
        process = interruptible(command, stderr=subprocess.PIPE, text=True)
        while len(requests) < 4 and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=10)
    assert process.returncode == 130, stderr
    assert "interrupted" in stderr and "Traceback" not in stderr
    with openai_server(reply) as (address, _):
        done = cli(*options, "--api-base", address, "--resume")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("demo dev, 4 questions")


@pytest.mark.slow
def test_the_two_ways_of_extracting_do_not_share_an_index(tmp_path, cache):
    options = [
        "eval",
        "--dataset",
        "demo",
        "--limit",
        "1",
        "--cache-dir",
        cache,
        "--no-cache",
        "--lm",
        "openai/scripted",
    ]
    with openai_server(reply) as (address, requests):
        for calls, expected in (("one", 10), ("two", 20)):
            requests.clear()
            done = cli(*options, "--calls", calls, "--api-base", address, "--out", tmp_path / calls)
            assert done.returncode == 0, done.stderr
            prompts = [request["messages"][-1]["content"] for request in requests]
            assert sum(prompt.startswith("title:") for prompt in prompts) == expected


def demo_run(cache, out):
    """Options of ``eval``: three demo questions over the triples that come with them."""
    return ["--dataset", "demo", "--limit", "3", "--extract", "given", "--cache-dir", cache, "--out", out]


@pytest.mark.slow
def test_eval_demo(tmp_path, cache):
    with openai_server(reply) as (address, _):
        options = demo_run(cache, tmp_path / "run")
        options += ["--lm", "openai/scripted", "--api-base", address, "--no-cache", "--json"]
        done = cli("eval", *options)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert result["summary"]["n"] == 3
        assert result["summary"]["lm"]["calls"] == 6
        assert result["manifest"]["system"]["k"] == 10
        assert result["manifest"]["corpus"]["sha256"] == result["manifest"]["index"]["sha256"]
        assert "sk-test" not in done.stdout
        assert_one_line_error(cli("eval", *options))
        resumed = json.loads(cli("eval", *options, "--resume").stdout)
        assert resumed["summary"] == result["summary"]
        assert "other settings" in assert_one_line_error(cli("eval", *options, "--resume", "-k", "3"))
        plain = cli("eval", *options[:-1], "--system", "native_rag", "--out", tmp_path / "rag")
        assert plain.returncode == 0 and plain.stdout.startswith("demo dev, 3 questions, native_rag")


@pytest.mark.slow
def test_eval_judged_by_another_lm(tmp_path, cache):
    def judged(messages):
        return "same: no" if "same:" in messages[0]["content"] else reply(messages)

    with openai_server(judged) as (address, requests):
        options = ["--dataset", "demo", "--limit", "3", "--system", "native_rag", "--cache-dir", cache]
        options += [
            "--lm",
            "openai/scripted",
            "--judge-lm",
            "openai/judge",
            "--api-base",
            address,
            "--no-cache",
            "--json",
        ]
        options += ["--out", tmp_path / "run"]
        done = cli("eval", *options)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert result["summary"]["lm"]["calls"] == 3
        assert result["summary"]["llm_acc"] == result["summary"]["em"] == 0
        assert result["summary"]["judging"]["calls"] == 3
        assert result["manifest"]["judge"]["model"] == "openai/judge"
        resumed = json.loads(cli("eval", *options, "--resume").stdout)
        assert resumed["summary"] == result["summary"] and len(requests) == 6
    cost = json.loads(cli("eval", *options[:-1], tmp_path / "other", "--dry-run").stdout)
    assert cost["judging_at_most"]["lm_calls"] == 3


@pytest.mark.slow
def test_eval_of_the_gold_itself(tmp_path, cache):
    """The upper bound: annotations answer the very questions they annotate, and no LM is called."""
    options = demo_run(cache, tmp_path / "run")
    done = cli("eval", *options, "--lm", "annotations", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)["summary"]
    assert summary["em"] > 0.5
    assert summary["lm"]["prompt_tokens"] == summary["lm"]["completion_tokens"] == 0


@pytest.mark.slow
def test_eval_failures_exit_1_and_keep_the_rest(tmp_path, cache):
    def status(n):
        return (500, {}) if n == 1 else (200, {})

    with openai_server(reply, status) as (address, _):
        options = demo_run(cache, tmp_path / "run")
        options += ["--lm", "openai/scripted", "--api-base", address, "--no-cache", "--tries", "1", "--threads", "1"]
        done = cli("eval", *options)
        assert done.returncode == 1, done.stderr
        assert "errors 1" in done.stdout and "1 questions failed; --resume tries them again" in done.stderr
        done = cli("eval", *options, "--resume")
        assert done.returncode == 0 and "errors 0" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["eval", "--dataset", "nothing"], "unknown data set 'nothing'"),
        (["eval", "--dataset", "demo", "--limit", "0"], "no examples"),
        (["eval", "--dataset", "demo", "--ids", "nonexistent"], "nonexistent"),
        (["eval", "--dataset", "demo", "--system", "magic"], "unknown system 'magic'"),
        (["eval", "--dataset", "demo", "--extract", "maybe"], "--extract must be"),
        (
            ["eval", "--dataset", "demo", "--system", "native_rag", "--max-hops", "2", "--extract", "given"],
            "no setting max_hops",
        ),
        (["eval", "--dataset", "demo", "--levels", "words", "--extract", "given"], "levels must be some of"),
        (["eval", "--dataset", "demo", "--lm", "nonsense"], "nonsense"),
        (["eval", "--dataset", "hotpotqa"], "--data-dir"),
        (["eval", "--dataset", "hotpotqa", "--data-dir", "/nowhere"], "/nowhere"),
        (["index", README, "--out", "{tmp}/i", "--lm", "annotations"], "annotations is no model"),
        (["ask", "q", "--index", "/nowhere"], "/nowhere"),
        (["ask", " ", "--index", "/nowhere"], "the question is empty"),
        (["index", "/nowhere", "--out", "{tmp}/i"], "/nowhere"),
        (["eval", "--dataset", "demo", "--ids", ""], "no examples"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(arguments, says, tmp_path, cache):
    arguments = [argument.replace("{tmp}", str(tmp_path)) for argument in arguments]
    if arguments[0] == "eval":
        arguments += ["--out", str(tmp_path / "run"), "--cache-dir", str(cache)]
    assert says in assert_one_line_error(cli(*arguments))


def test_the_corpus_is_no_place_for_the_index(corpus):
    assert "is the corpus itself" in assert_one_line_error(cli("index", corpus, "--out", corpus))


def test_dry_run_needs_no_model(corpus, tmp_path):
    done = cli("index", corpus, "--out", tmp_path / "i", "--lm", "openai/x", "--dry-run", "--json")
    assert json.loads(done.stdout)["lm_calls"] == 3 and not (tmp_path / "i").exists()
    done = cli("eval", "--dataset", "demo", "--limit", "5", "--dry-run", "--json")
    cost = json.loads(done.stdout)
    assert (cost["questions"], cost["answering_at_most"]["lm_calls"], cost["extraction_at_most"]["lm_calls"]) == (
        5,
        40,
        89,
    )
