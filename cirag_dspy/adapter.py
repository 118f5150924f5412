"""How a signature becomes chat messages: labelled lines instead of DSPy's marker blocks, parsed leniently."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import dspy
from dspy.adapters.utils import apply_output_field_defaults, format_field_value, parse_value
from dspy.utils.exceptions import AdapterParseError

from cirag_dspy.replies.fields import label_pattern, read_fields, tagged_fields
from cirag_dspy.replies.thinking import without_thinking


class LineAdapter(dspy.ChatAdapter):
    """A ``dspy.ChatAdapter`` whose fields are labelled lines (``thought: ...``).

    A turn costs a label a field instead of marker blocks and a format reminder, and earlier turns of a
    ``dspy.History`` are rendered exactly as they were sent, so that a conversation's prefix repeats from hop to hop.
    One LM call a request: a reply that cannot be parsed raises ``AdapterParseError`` and is never sent through
    another adapter behind the caller's back.

    It is the adapter of this package's modules unless the caller sets another one (``dspy.context(adapter=...)``).
    """

    def __init__(self, callbacks: list[Any] | None = None) -> None:
        super().__init__(callbacks=callbacks, use_json_adapter_fallback=False)

    def format(
        self, signature: type[dspy.Signature], demos: list[dict[str, Any]], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """System message, demonstrations, the turns of a ``dspy.History``, the present turn. Text only.

        As the base class has it, without the signature that it makes anew for each call to leave the history out.
        """
        messages = [{"role": "system", "content": self.format_system_message(signature)}]
        messages += self.format_demos(signature, demos)
        histories = [inputs[name] for name in inputs if _is_history(signature, name) and inputs[name] is not None]
        for turn in histories[0].messages if histories else []:
            messages.append({"role": "user", "content": self.format_user_message_content(signature, turn)})
            messages.append({"role": "assistant", "content": self.format_assistant_message_content(signature, turn)})
        content = self.format_user_message_content(signature, inputs, main_request=True)
        messages.append({"role": "user", "content": content})
        return [message for message in messages if message["content"]]

    def format_system_message(self, signature: type[dspy.Signature]) -> str:
        """Instructions, then one line a field."""
        given = [
            _describe(name, field) for name, field in signature.input_fields.items() if not _is_history(signature, name)
        ]
        reply = [_describe(name, field) for name, field in signature.output_fields.items()]
        return "\n".join([signature.instructions.strip(), "", "Given:", *given, "", "Reply with exactly:", *reply])

    def format_user_message_content(
        self,
        signature: type[dspy.Signature],
        inputs: dict[str, Any],
        prefix: str = "",
        suffix: str = "",
        main_request: bool = False,
    ) -> str:
        """The input fields that are there, in the signature's order."""
        lines = [
            _labelled(name, format_field_value(field_info=field, value=inputs[name]), signature)
            for name, field in signature.input_fields.items()
            if name in inputs and not _is_history(signature, name)  # earlier turns of a demonstration are left out
        ]
        return "\n".join(part for part in (prefix, *lines, suffix) if part)

    def format_assistant_message_content(
        self, signature: type[dspy.Signature], outputs: dict[str, Any], missing_field_message: str | None = None
    ) -> str:
        """The output fields, in the signature's order; one the outputs lack is shown as ``missing_field_message``."""
        return "\n".join(
            _labelled(name, format_field_value(field_info=field, value=value), signature)
            for name, field in signature.output_fields.items()
            if (value := outputs.get(name, missing_field_message if field.is_required() else None)) is not None
        )

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """Fields of a reply written as labelled lines, as a JSON object, with DSPy's markers or between tags.

        ``replies.fields`` says which of these counts, ``replies.thinking`` what is no part of the reply.

        Raises:
            AdapterParseError: A field without a default is missing; ``parsed_result`` holds those that are there.
        """
        fields = signature.output_fields
        required = [name for name, field in fields.items() if field.is_required()]
        texts = [name for name, field in fields.items() if field.annotation is str]
        whole, completion = completion, without_thinking(completion)
        found = read_fields(completion, list(fields), required, texts)
        if set(required) - found.keys():  # a field between tags that are named as a wrapper of thinking is
            found = {**tagged_fields(whole, list(fields)), **found}
        fields = apply_output_field_defaults(signature, _typed(signature, found))
        if missing := [name for name in signature.output_fields if name not in fields]:
            raise AdapterParseError(
                adapter_name=type(self).__name__,
                signature=signature,
                lm_response=completion,
                message=f"no line that starts with {' or '.join(f'{name}:' for name in missing)}",
                parsed_result=fields,
            )
        return fields


def _is_history(signature: type[dspy.Signature], name: str) -> bool:
    field = signature.input_fields.get(name)
    return field is not None and field.annotation is dspy.History


def _describe(name: str, field: Any) -> str:
    return f"{name}: {(field.json_schema_extra or {}).get('desc') or ''}".rstrip()


def _labelled(name: str, value: Any, signature: type[dspy.Signature]) -> str:
    """``name: value``; a value of several lines starts on the next one and cannot open another field."""
    first, *rest = str(value).splitlines() or [""]
    if not rest:
        return f"{name}: {first}".rstrip()
    label = label_pattern(signature.fields)
    return "\n".join([f"{name}:", *(f"… {line}" if label.match(line) else line for line in (first, *rest))])


def _typed(signature: type[dspy.Signature], texts: Mapping[str, Any]) -> dict[str, Any]:
    """The texts as their fields' types; one that is none of its type counts as missing."""
    fields: dict[str, Any] = {}
    for name, text in texts.items():
        with suppress(ValueError):
            fields[name] = parse_value(text, signature.output_fields[name].annotation)
    return fields
