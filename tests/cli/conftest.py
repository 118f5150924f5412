"""The command line in this process, over the demo set, with words for vectors and a scripted LM: no model is loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from cirag_dspy.benchmarks import load_benchmark
from cirag_dspy.cli import app, common, preflight
from tests.fakes import ScriptedEngine, WordEncoder, fields_of, scripted_lm

ANSWERS = {example.question: example.answer for example in load_benchmark("demo").examples}


def good(messages: list[dict[str, str]]) -> str:
    """Extracts a triple a passage, keeps the first fact, and knows the answer; plain RAG, which shows passages, does not."""
    system, fields = messages[0]["content"], fields_of(messages[-1]["content"])
    if "triples:" in system:
        return f"entities: x\ntriples:\n{fields['title']} | is about | {fields['title']}"
    if "core:" in system:
        return "thought: t\ncore: 1\nnext_query: none"
    if "evidence" in fields:
        return f"thought: t\nanswer: {ANSWERS[fields['question']]}"
    return "answer: something else"


class Inside:
    """Runs commands; ``reply`` answers for the LM, whatever it is called. Keeps what was opened and asked."""

    def __init__(self, reply: Callable[[list[dict[str, str]]], Any]) -> None:
        self.reply = reply
        self.engines: list[ScriptedEngine] = []
        self.opened: list[str] = []

    def open(self, options: Any, spec: str, **settings: Any) -> Any:
        """Stands for ``LMOptions.open``."""
        self.opened.append(spec)
        lm, engine = scripted_lm(lambda messages: self.reply(messages), name=f"scripted/{spec}")
        self.engines.append(engine)
        return lm

    @property
    def prompts(self) -> list[list[dict[str, str]]]:
        """All prompts so far."""
        return [prompt for engine in self.engines for prompt in engine.prompts]

    def __call__(self, *arguments: Any) -> Any:
        """Run a command; what it opens and asks is counted from here."""
        self.engines.clear()
        self.opened.clear()
        return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def inside(tmp_path, monkeypatch):
    command = Inside(good)
    monkeypatch.setenv("CIRAG_DSPY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(common.LMOptions, "open", lambda *given, **settings: command.open(*given, **settings))
    checked = preflight.check_lms
    monkeypatch.setattr(preflight, "check_lms", lambda specs: checked(spec for spec in specs if spec != "x"))
    monkeypatch.setattr("cirag_dspy.evaluate.corpus.Embedder", lambda name: WordEncoder())
    return command
