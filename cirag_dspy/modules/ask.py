"""One question to an LM: a useless reply is asked for once more, saying what was wrong with it.

Every module calls its predictors through ``ask``. It owns nothing but this policy: transport errors, rate limits and
their retries belong to ``dspy.LM``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError, LMError

from cirag_dspy.adapter import LineAdapter
from cirag_dspy.modules.failures import WITHHELD, is_too_long, why_no_text
from cirag_dspy.modules.fit import Inputs, smaller
from cirag_dspy.modules.refused import is_refused, without_refused
from cirag_dspy.replies.jsontext import as_text
from cirag_dspy.replies.thinking import without_thinking
from cirag_dspy.reply_cache import guard_reply_cache
from cirag_dspy.text import one_line


@dataclass
class Reply:
    """What came back: the output fields that could be read, what is wrong with them (empty: nothing), whether the LM
    was cut off by its token limit, the finish reason of a provider that ``withheld`` the rest (empty: it did not), and
    the whole text, without its thinking, where a field was missing (empty if there is no text: then ``problem`` says
    why). ``tokens`` are the tokens of the whole text, as bytes, with their log-probabilities: where these were asked
    for (``config={"logprobs": True}``), the LM gives them, and no field was missing.
    """

    fields: dict[str, str] = field(default_factory=dict)
    problem: str = ""
    truncated: bool = False
    withheld: str = ""
    raw: str = ""
    tokens: tuple[tuple[bytes, float], ...] = ()

    def __getitem__(self, name: str) -> str:
        return self.fields.get(name) or ""


@dataclass
class _Witness:
    """Stands among the calling modules so that DSPy records the calls of this context, and no others, in it."""

    history: list[dict[str, Any]] = field(default_factory=list)

    def response(self) -> Any:
        response = self.history[-1].get("response") if self.history else None
        return response[0] if isinstance(response, (list, tuple)) and response else response

    def truncated(self) -> bool:
        return self.finish() == "length"

    def withheld(self) -> str:
        return self.finish() if self.finish().lower() in WITHHELD else ""

    def finish(self) -> str:
        response = self.response()
        choices = getattr(response, "choices", None)
        return str(getattr(choices[0] if choices else response, "finish_reason", None) or "")


def ask(
    predict: dspy.Predict,
    inputs: Inputs,
    *,
    check: Callable[[Reply], str] = lambda reply: reply.problem,
    shrink: Callable[[Inputs], Inputs | None] = smaller,
    tries: int = 2,
    config: Inputs | None = None,
) -> Reply:
    """Call ``predict`` until its reply can be used, at most ``tries`` times.

    Args:
        predict: The predictor to call.
        inputs: Its input fields.
        check: Says in one line what is wrong with a reply, or nothing; ``problem`` tells it which fields are missing.
        shrink: Makes the inputs smaller when they exceed the LM's context; ``None`` when they can't be. By default
            evidence gives way (``modules.fit``).
        tries: LM calls at most, not counting those refused for the length of their prompt.
        config: Options of the LM call.

    Lines of the inputs that a content filter refuses, such as one passage of ten, are left out.

    Returns:
        The last reply. One that stayed useless has a ``problem`` and the fields that could be read.

    Raises:
        dspy.utils.exceptions.LMError: The LM could not be called.
    """
    problem = ""
    reply = Reply()
    for _ in range(tries):
        reply, inputs = _call(predict, inputs, shrink, problem, config or {})
        if reply.truncated:
            _report_cut()
        reply.problem = check(reply)
        if not reply.problem:
            return reply
        problem = reply.problem
    return reply


def _call(
    predict: dspy.Predict, inputs: Inputs, shrink: Callable[[Inputs], Inputs | None], problem: str, config: Inputs
) -> tuple[Reply, Inputs]:
    guard_reply_cache()
    while True:
        witness = _Witness()
        extra: Inputs = {}
        if problem:
            described = dspy.InputField(desc="what was wrong with the previous reply; reply again, better")
            extra = {"signature": predict.signature.append("problem", described, type_=str), "problem": problem}
        context = {
            "adapter": dspy.settings.adapter or LineAdapter(),
            "caller_modules": [*(dspy.settings.caller_modules or []), witness],
        }
        try:
            with dspy.context(**context):
                prediction = predict(**inputs, **extra, config=config)
        except AdapterParseError as error:
            return _unreadable(error, witness), inputs
        except LMError as error:
            if is_too_long(error):
                fewer = shrink(inputs)
            elif is_refused(error):
                fewer = without_refused(inputs, partial(_is_accepted, predict, extra, config, context))
            else:
                raise
            if fewer is None:
                raise
            inputs = fewer
            continue
        fields = {name: _text(prediction[name], name) for name in predict.signature.output_fields if name in prediction}
        return Reply(
            fields, truncated=witness.truncated(), withheld=witness.withheld(), tokens=_tokens(prediction)
        ), inputs


def _is_accepted(predict: dspy.Predict, extra: Inputs, config: Inputs, context: Inputs, inputs: Inputs) -> bool:
    """Whether no content filter refuses a call, whatever its reply."""
    try:
        with dspy.context(**context, trace=[]):
            predict(**inputs, **extra, config=config)
    except AdapterParseError:
        return True
    except LMError as error:
        if is_refused(error):
            return False
        raise
    return True


def _report_cut() -> None:
    """Tell the meters around this call that its reply ended at the limit of its tokens."""
    for callback in dspy.settings.get("callbacks") or []:
        if told := getattr(callback, "on_cut_reply", None):
            told()


def _tokens(prediction: dspy.Prediction) -> tuple[tuple[bytes, float], ...]:
    """DSPy passes on what a provider reports, as OpenAI has it: bytes only where a token is not whole characters."""
    content = getattr(prediction.get("logprobs"), "content", None) or ()
    return tuple(
        (
            bytes(given) if (given := getattr(token, "bytes", None)) else token.token.encode("utf-8", "replace"),
            float(token.logprob),
        )
        for token in content
    )


def _text(value: Any, name: str) -> str:
    """What a field says; a value that is no text, as other adapters can give, in the form of JSON."""
    return value if isinstance(value, str) else as_text(value, name) if value else ""


def _unreadable(error: AdapterParseError, witness: _Witness) -> Reply:
    partial = error.parsed_result if isinstance(error.parsed_result, dict) else {}
    if reason := why_no_text(error, witness.response()):
        problem, raw, partial = f"the reply has no text: {reason}", "", {}
    else:
        missing = [name for name in error.signature.output_fields if name not in partial]
        problem = f"the reply has no {' and no '.join(f'{name}:' for name in missing)}"
        raw = without_thinking(str(error.lm_response or ""))
    truncated = witness.truncated()
    if truncated:
        problem += "; it was cut off, be shorter"
    fields = {name: _text(value, name) for name, value in partial.items()}
    return Reply(fields, one_line(problem), truncated, witness.withheld() if raw else "", raw)
