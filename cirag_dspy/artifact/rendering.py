"""What a program sends to an LM, and the name of an LM with its prompts as the author of triples."""

from __future__ import annotations

import hashlib
import json

import dspy

from cirag_dspy.adapter import LineAdapter
from cirag_dspy.lms import split_spec
from cirag_dspy.lms.weights import MARK
from cirag_dspy.modules.extract import Extract
from cirag_dspy.modules.state import predictors


def prompts(program: dspy.Module) -> dict[str, str]:
    """What each predictor sends before its inputs: instructions, fields and demonstrations, as text."""
    adapter = LineAdapter()
    return {
        name: json.dumps(adapter.format(predictor.signature, predictor.demos, {}), ensure_ascii=False)
        for name, predictor in predictors(program).items()
    }


def triples_writer(lm: dspy.LM, extract: Extract) -> str:
    """What an index calls the author of its triples: the LM, the calls a passage, and prompts that are not ours.

    A local student goes by its content, not by the folder that it lies in today.
    """
    own, plain = prompts(extract), prompts(Extract(extract.calls))
    mark = "" if own == plain else f"; prompts {hashlib.sha256(json.dumps(own).encode()).hexdigest()[:8]}"
    content = MARK.search(lm.model)
    base, adapter = split_spec(lm.model)
    name = f"{base}+adapter{content[0]}" if adapter and content else lm.model
    return f"{name} ({extract.calls}{mark})"
