"""``cirag-dspy ask``: one answer over an index, with the sentences it rests on."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cirag_dspy.cli import common
from cirag_dspy.errors import RunError

if TYPE_CHECKING:
    from cirag_dspy.corpus.index import CorpusIndex


NOT_ANSWERED = 3  # exit code


def ask(
    question: Annotated[str, typer.Argument(help="The question.")],
    index: Annotated[Path, typer.Option(help="Index folder made by `cirag-dspy index`.")],
    system: Annotated[
        str | None, typer.Option(help="Any of eval's systems; default: the program's, else cirag.")
    ] = None,
    program: common.Program = None,
    aligner: common.Aligner = None,
    lm: common.LM = None,
    api_base: common.ApiBase = None,
    max_tokens: common.MaxTokens = None,
    tries: common.Tries = 4,
    timeout: common.Timeout = 120.0,
    no_cache: common.NoCache = False,
    k: Annotated[int | None, typer.Option("-k", min=1, help="Passages per search.")] = None,
    n: Annotated[int | None, typer.Option("-n", min=1, help="Candidate triples per hop.")] = None,
    max_hops: Annotated[int | None, typer.Option(min=1, help="Hops at most.")] = None,
    abstain: Annotated[bool, typer.Option("--abstain", help="Where the passages do not say, print no guess.")] = False,
    cache_dir: common.CacheDir = None,
    as_json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Answer a question and cite the sentences.

    Exit code 3 where it is not answered: the LM found the passages insufficient, its reply is no answer, or its guess
    stands in none of them. Then "I do not know" is printed, with the best guess if there is one.
    """
    if not question.strip():
        raise RunError("the question is empty")
    common.prepare(cache_dir)
    import dspy

    from cirag_dspy.artifact import EXTRACTION, READER, triples_writer
    from cirag_dspy.corpus.index import CorpusIndex
    from cirag_dspy.lms.meter import LMMeter
    from cirag_dspy.modules.extract import Extract
    from cirag_dspy.systems import build_system

    saved = common.read_program(program)
    knobs = common.given(k=k, n=n, max_hops=max_hops)
    with CorpusIndex.open(index) as opened:
        common.use_aligner(opened, aligner)
        asked = saved.program(opened, system, **knobs) if saved else build_system(system or "cirag", opened, **knobs)
        options = common.LMOptions(api_base, max_tokens, tries, timeout, cache=not no_cache)
        model = options.open_saved(saved, READER) if saved and lm is None else options.open(lm or "embedded")
        extractor = options.open_saved(saved, EXTRACTION) if saved and lm is None else model
        extracts = [module for _, module in asked.named_sub_modules(Extract)]
        for module in extracts:
            module.set_lm(extractor)
        before = opened.counts()
        meter = LMMeter()
        with dspy.context(lm=model), meter.context():
            prediction = asked(question=question)
        if extracts and opened.counts() != before:
            common.extracted_by(opened, triples_writer(extractor, extracts[0]))
        if extracts:
            _say_what_lacks(opened, prediction.passages)
        sources = opened.sources_of(citation.passage_id for citation in prediction.get("citations") or [])
    if as_json:
        common.print_json(_as_dict(prediction, meter.snapshot(), sources, abstain))
    else:
        _show(prediction, meter.snapshot(), quiet, abstain)
    common.say_cut(meter.snapshot(), max_tokens)
    if not prediction.answered:
        raise typer.Exit(NOT_ANSWERED)


def _say_what_lacks(index: CorpusIndex, ids: list[str]) -> None:
    """Which of the passages found have no facts, or not all, and why."""
    states = index.states(ids)
    reasons = index.errors(ids)
    open_ones = [id for id in ids if states.get(id) in ("failed", "pending")]
    if open_ones:
        why = next((f" ({reasons[id]})" for id in open_ones if id in reasons), "")
        common.say(f"note: no facts could be extracted from {len(open_ones)} of {len(ids)} passages found{why}")
    if cut := sum(state == "cut" for state in states.values()):
        common.say(f"note: the facts of {cut} of {len(ids)} passages found are cut off; index --max-tokens gives more")


def _as_dict(prediction: Any, lm: dict[str, Any], sources: dict[str, list[str]], abstain: bool) -> dict[str, Any]:
    return {
        "answer": prediction.answer if prediction.answered or not abstain else "",
        "answered": prediction.answered,
        "level": prediction.get("level"),
        "citations": [
            {**dataclasses.asdict(citation), "sources": sources.get(citation.passage_id, [])}
            for citation in prediction.get("citations") or []
        ],
        "passages": prediction.passages,
        "hops": [
            {
                "query": hop.query,
                "thought": hop.thought,
                "core": [triple.text for triple in hop.core],
                "next_query": hop.next_query,
            }
            for hop in prediction.hops
        ],
        "lm": lm,
    }


def _not_known(prediction: Any, abstain: bool) -> str:
    """What is printed in an answer's place."""
    if not prediction.passages:
        return "I do not know: no passages were found"
    if prediction.answer:
        return f"I do not know: the passages found do not say{'' if abstain else f' (best guess: {prediction.answer})'}"
    return "I do not know: the passages found do not say, or the LM's replies are no answer"


def _show(prediction: Any, lm: dict[str, Any], quiet: bool, abstain: bool) -> None:
    typer.echo(prediction.answer if prediction.answered else _not_known(prediction, abstain))
    shown = prediction.answered or (prediction.answer and not abstain)
    for number, citation in enumerate((prediction.get("citations") or []) if shown else [], 1):
        typer.echo(
            f"  [{number}] {citation.title}: {citation.text}" if citation.title else f"  [{number}] {citation.text}"
        )
    common.say(
        f"{prediction.get('level')} level, {len(prediction.hops)} hop(s), {lm['calls']} LM calls, "
        f"{lm['cached']} cached, {lm['prompt_tokens']} + {lm['completion_tokens']} tokens",
        quiet,
    )
