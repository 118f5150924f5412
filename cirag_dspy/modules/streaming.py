"""What a program says while it works, by DSPy's own means: status messages, and the text of a field as it is written.

stream = dspy.streamify(program, status_message_provider=StepMessages(), stream_listeners=listeners(program))
async for item in stream(question="..."):
...  # StatusMessage, StreamResponse, at last the Prediction
"""

from __future__ import annotations

from typing import Any

import dspy
from dspy.streaming import StatusMessage, StatusMessageProvider, StreamListener, StreamResponse
from dspy.streaming.messages import sync_send_to_stream

from cirag_dspy.adapter import LineAdapter
from cirag_dspy.errors import RunError
from cirag_dspy.replies.fields import behind_label, label_pattern

_LONGEST_LABEL = 60


class StepMessages(StatusMessageProvider):
    """Status messages of a system's steps, beside those of modules, LMs and tools that DSPy knows.

    Override a method to word a message otherwise; ``None`` says nothing.
    """

    def hop_status_message(self, query: str) -> str | None:
        """Before a search."""
        return f"hop: searching for {query}"

    def facts_status_message(self, facts: int, passages: int) -> str | None:
        """When the facts of the passages found are there."""
        return f"facts: {facts} of {passages} passages"

    def gate_status_message(self, level: str, sufficient: bool) -> str | None:
        """When a level of evidence was tried."""
        return f"gate: {level} {'suffice' if sufficient else 'do not suffice'}"

    def answer_status_message(self, answer: str, level: str) -> str | None:
        """At the end."""
        return f"answer: {answer or 'none'}" + (f" ({level})" if level else "")


def tell(step: str, **said: Any) -> None:
    """Send the status message of a step, if the program is being streamed to somebody who wants it.

    Args:
        step: ``hop``, ``facts``, ``gate`` or ``answer``.
        said: Arguments of the method of ``StepMessages``.
    """
    stream = dspy.settings.send_stream
    for callback in dspy.settings.callbacks if stream is not None else ():
        words = getattr(getattr(callback, "status_message_provider", None), f"{step}_status_message", None)
        if words is not None and (message := words(**said)):
            sync_send_to_stream(stream, StatusMessage(message))


class LineListener(StreamListener):
    """Streams a field of the labelled lines that LMs reply with here, as ``StreamListener`` does for DSPy's formats.

    Every call of the predictor is streamed, the second try at a useless reply included, and so is an answer that a
    later step does not accept: the prediction at the end says what counts.

    Args:
        signature_field_name: The field.
        predict: Its predictor.
        predict_name: The predictor's name.
    """

    def __init__(self, signature_field_name: str, predict: Any = None, predict_name: str | None = None) -> None:
        super().__init__(signature_field_name, predict=predict, predict_name=predict_name, allow_reuse=True)
        self.stream_start: bool = False
        self.stream_end: bool = False
        self._line = ""  # what may still become a label
        self._blank = ""  # what may be the blanks behind the field
        self._inside = False

    def receive(self, chunk: Any) -> StreamResponse | None:
        """The part of the field in the next piece of a reply; none where it holds nothing of it."""
        choice = chunk.choices[0]
        text = self._blank + self._read(choice.delta.content or "")
        if choice.finish_reason is not None:
            text += self._end()
        text = text if self.stream_start else text.lstrip()
        text, self._blank = text.rstrip(), text[len(text.rstrip()) :]
        self.stream_start = bool(text) or self.stream_start
        if self.stream_end or not self._inside:
            self._blank = ""
        if not text and not self.stream_end:
            return None
        return StreamResponse(self.predict_name, self.signature_field_name, text, is_last_chunk=self.stream_end)

    def finalize(self) -> StreamResponse | None:
        """Nothing: every reply has an end of its own."""
        return None

    def _read(self, text: str) -> str:
        if self.stream_end:
            self.stream_end = self.stream_start = False
        found = ""
        for piece in text.splitlines(keepends=True):
            self._line += piece
            found += self._settle(whole=piece.endswith("\n"))
        return found

    def _settle(self, whole: bool) -> str:
        """What of the line so far is the field's, once it can't be a label any more."""
        label = label_pattern(self.predict.signature.output_fields).match(self._line)
        unsure = len(self._line) < _LONGEST_LABEL if label is None else not self._line[label.end() :].strip("*_ ")
        if unsure and not whole:
            return ""
        line, self._line = self._line, ""
        if label is not None:
            name = (label["label"] or label["heading"]).lower().replace(" ", "_").replace("-", "_")
            self._inside = name.endswith(self.signature_field_name.lower())
            line = behind_label(line, label)
        return line if self._inside else ""

    def _end(self) -> str:
        rest = self._settle(whole=True) if self._line else ""
        self.stream_end, self._inside = self.stream_start or bool(rest), False
        return rest


def listeners(program: dspy.Module, field: str = "answer") -> list[StreamListener]:
    """A listener to a field of every predictor of a program that replies with it."""
    named = [(name, one) for name, one in program.named_predictors() if field in one.signature.output_fields]
    return [LineListener(field, predict=one, predict_name=name) for name, one in named]


def check_listeners() -> None:
    """Refuse listeners that would stay silent.

    Raises:
        RunError: A ``dspy.streaming.StreamListener`` listens to replies of labelled lines.
    """
    deaf = [one for one in dspy.settings.stream_listeners or () if not isinstance(one, LineListener)]
    if deaf and isinstance(dspy.settings.adapter or LineAdapter(), LineAdapter):
        raise RunError(
            f"dspy.streaming.StreamListener({deaf[0].signature_field_name!r}) can't read the labelled lines that LMs "
            "reply with here: use cirag_dspy.listeners(program), or dspy.context(adapter=dspy.ChatAdapter())"
        )
