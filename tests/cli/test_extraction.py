"""Extraction by command: what is cut, refused or empty is said, and is paid for as long as it may help."""

import pytest

from cirag_dspy.corpus.index import CorpusIndex
from tests.fakes import WordEncoder, fields_of


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    for module in ("embedder", "index"):
        monkeypatch.setattr(f"cirag_dspy.corpus.{module}.Embedder", lambda *given, **options: WordEncoder())
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name in ("Harbor", "Tower", "Bridge"):
        (folder / f"{name}.md").write_text(f"# {name}\n\nThe {name} was built in 1900. It stands by the sea.\n")
    return folder


def good(messages):
    title = fields_of(messages[-1]["content"])["title"]
    return f"entities: x\ntriples:\n{title} | was built in | 1900"


def on_the_tower(reply):
    return lambda messages: reply if "title: Tower" in messages[-1]["content"] else good(messages)


def test_a_cut_reply_is_said_and_tried_with_more_room(inside, corpus, tmp_path):
    out = tmp_path / "index"
    inside.reply = on_the_tower(("triples:\nTower | was built in | 1900\nTower | stands by | the s", "length"))
    done = inside("index", corpus, "--out", out, "--lm", "x")
    assert done.exit_code == 0 and "extraction: 2 done, 1 cut, 0 empty, 0 failed, 0 pending" in done.output
    assert "replies on 1 passages were cut off" in done.output and "3 triples" in done.output
    dry = inside("index", corpus, "--out", out, "--lm", "x", "--dry-run")
    assert "extraction: 1 LM calls" in dry.output
    inside.reply = good
    done = inside("index", corpus, "--out", out, "--lm", "x")
    assert done.exit_code == 0 and "3 done, 0 cut" in done.output and len(inside.prompts) == 1
    assert inside("index", corpus, "--out", out, "--lm", "x").exit_code == 0 and not inside.prompts


def test_a_passage_without_facts_is_empty_and_done_with(inside, corpus, tmp_path):
    out = tmp_path / "index"
    inside.reply = on_the_tower("A tower indeed.")
    codes = [inside("index", corpus, "--out", out, "--lm", "x").exit_code for _ in range(2)]
    done = inside("index", corpus, "--out", out, "--lm", "x")
    assert codes == [1, 0] and done.exit_code == 0 and not inside.prompts
    assert "2 done, 0 cut, 1 empty, 0 failed" in done.output


def test_a_question_is_answered_from_the_passages_that_are_not_refused(inside, corpus, tmp_path):
    from dspy.lm15 import InvalidRequestError, RateLimitError

    out = tmp_path / "index"
    assert inside("index", corpus, "--out", out).exit_code == 0
    for error, state in ((RateLimitError("slow down"), "pending"), (InvalidRequestError("content_filter"), "failed")):

        def reply(messages, error=error):
            system, fields = messages[0]["content"], fields_of(messages[-1]["content"])
            if "triples:" in system:
                return on_the_tower(error)(messages)
            if "core:" in system:
                return "core: 1\nnext_query: none"
            return "answer: 1900" if "evidence" in fields else "answer: none of it"

        inside.reply = reply
        done = inside("ask", "When was the Harbor built?", "--index", out, "--lm", "x")
        assert done.exit_code == 0 and done.stdout.startswith("1900")
        assert "no facts could be extracted from 1 of 3 passages found" in done.output
        with CorpusIndex.open(out) as opened:
            assert opened.counts()[state] == 1 and opened.counts()["done"] == 2
