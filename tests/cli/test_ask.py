"""``ask``: an answer, or that there is none, in words, as JSON and by exit code."""

import json

import pytest

from tests.fakes import WordEncoder, fields_of

QUESTION = "Who built the Harbor?"


@pytest.fixture
def index(inside, tmp_path, monkeypatch):
    for module in ("embedder", "index"):
        monkeypatch.setattr(f"cirag_dspy.corpus.{module}.Embedder", lambda *given, **options: WordEncoder())
    (tmp_path / "Harbor.md").write_text("# Harbor\n\nThe Harbor was built in 1900 by Ada Brook.\n")
    assert inside("index", tmp_path / "Harbor.md", "--out", tmp_path / "index").exit_code == 0
    return tmp_path / "index"


def answers(gated, forced):
    """An LM that answers levels of the cascade with ``gated``, and readers that have to answer with ``forced``."""

    def reply(messages):
        system, fields = messages[0]["content"], fields_of(messages[-1]["content"])
        if "triples:" in system:
            return "triples:\nHarbor | was built in | 1900"
        if "core:" in system:
            return "core: 1\nnext_query: none"
        return f"answer: {gated if 'evidence' in fields else forced}"

    return reply


@pytest.mark.parametrize(
    "system, gated, forced, code, says",
    [
        ("cirag", "Ada Brook", "", 0, "Ada Brook"),
        ("cirag", "unanswerable", "Tom Hale", 3, "I do not know: the passages found do not say (best guess: Tom Hale)"),
        ("cirag", "unanswerable", "Ada Brook", 3, "(best guess: Ada Brook)"),
        ("cirag", "the bare answer, or unanswerable", "unknown", 3, "or the LM's replies are no answer"),
        ("native_rag", "", "Ada Brook", 0, "Ada Brook"),
        ("native_rag", "", "Tom Hale", 3, "(best guess: Tom Hale)"),
        ("native_rag", "", "the bare answer", 3, "or the LM's replies are no answer"),
        ("native_rag", "", QUESTION, 3, "or the LM's replies are no answer"),
    ],
)
def test_what_is_not_known_is_said(inside, index, system, gated, forced, code, says):
    inside.reply = answers(gated, forced)
    asked = ("ask", QUESTION, "--index", index, "--lm", "x", "--system", system)
    done = inside(*asked)
    first = done.stdout.splitlines()[0]
    assert done.exit_code == code and (
        first == says if code == 0 else first.startswith("I do not know") and says in first
    )
    told = json.loads(inside(*asked, "--json").stdout)
    assert told["answered"] is (code == 0)
    kept = json.loads(inside(*asked, "--json", "--abstain").stdout)
    assert kept["answer"] == (told["answer"] if code == 0 else "")
    if code:
        silent = inside(*asked, "--abstain")
        assert silent.exit_code == 3 and "guess" not in silent.stdout and "[1]" not in silent.stdout


def test_the_exit_code_is_in_the_help(inside):
    assert "Exit code 3" in " ".join(inside("ask", "--help").output.replace("│", " ").split())
