"""What a user is told of an LM's error: what to do, and never a key or a password."""

from __future__ import annotations

import dspy
import pytest
from dspy.utils import exceptions as dspy_errors

from cirag_dspy.advice import lm_advice, without_secrets
from cirag_dspy.lms import load_lm
from tests.lms.test_remote import reply, server

LOCAL = "http://localhost:8000"


def error(kind, message="x", address=None, **options):
    made = getattr(dspy_errors, kind)(message=message, **options)
    if address:
        made.address = address
    return made


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (error("LMTimeoutError"), "--timeout"),
        (error("LMRateLimitError", status=429), "--threads"),
        (error("LMBillingError", status=402), "credit"),
        (error("LMServerError", status=503), "--tries"),
        (error("ContextWindowExceededError"), "-k"),
        (error("LMNotConfiguredError", model="openai/gpt-4o"), "set OPENAI_API_KEY"),
        (error("LMNotConfiguredError", model="together_ai/x"), "set TOGETHER_AI_API_KEY"),
        (error("LMAuthError", "Incorrect API key provided", model="anthropic/x"), "check ANTHROPIC_API_KEY"),
        (error("LMAuthError", "no API key given", model="groq/x"), "set GROQ_API_KEY"),
        (error("LMTransportError", "[Errno 111] Connection refused", LOCAL), f"at {LOCAL}; nothing answers there: start the server"),
        (error("LMTransportError", "All connection attempts failed", LOCAL), "start the server"),
        (error("LMTransportError", "[Errno -2] Name or service not known", "http://nowhere"), "no such host"),
        (error("LMUnsupportedModelError", "404 page not found", "http://localhost:11434", status=404), "--api-base http://localhost:11434/v1"),
        (error("LMInvalidRequestError", "Not Found", LOCAL, status=404), f"--api-base {LOCAL}/v1"),
        (error("LMInvalidRequestError", "Not Found", LOCAL + "/v1/", status=404), "check --api-base"),
        (error("LMUnsupportedModelError", "The model `x` does not exist", LOCAL + "/v1", status=404), f"GET {LOCAL}/v1/models"),
        (error("LMUnsupportedModelError", "model 'x' not found", "http://localhost:11434/v1", status=404), "`ollama list`"),
    ],
)  # fmt: skip
def test_what_to_do(given, says):
    told = lm_advice(given)
    assert says in told and "\n" not in told


@pytest.mark.parametrize(
    ("text", "hidden", "kept"),
    [
        ("http://user:secret@host:1/v1 is down", ("user", "secret"), "http://host:1/v1 is down"),
        ("https://us%40er:se:c/ret@host/v1", ("se:c", "ret"), "https://host/v1"),
        ("https://host/v1?api_key=abc123&version=2", ("abc123",), "https://host/v1?api_key=…&version=2"),
        ("https://host/?api-key=abc&token=def;sig=ghi", ("abc", "def", "ghi"), "https://host/?api-key=…&token=…;sig=…"),
        ("https://host/x?subscription-key=abc", ("abc",), "https://host/x?subscription-key=…"),
        ("Incorrect API key provided: sk-proj-abcdef123", ("abcdef",), "Incorrect API key provided: …"),
        ("header Authorization: Bearer eyJhbGciOi.x", ("eyJ",), "header Authorization: …"),
        ("mail me@home.org about http://host/v1", (), "mail me@home.org about http://host/v1"),
        ("see https://host/a/b?page=2", (), "see https://host/a/b?page=2"),
    ],
)
def test_secrets_are_left_out(text, hidden, kept):
    told = without_secrets(text)
    assert told == kept and not any(part in told for part in hidden)
    given = error("LMTransportError", text, "http://u:pw@h/v1")
    assert not any(part in lm_advice(given) for part in (*hidden, "pw"))


def test_a_server_that_is_not_there():
    lm = load_lm(
        "openai/m",
        api_base="http://127.0.0.1:9/v1",
        api_key="sk-abcdefgh",
        cache=False,
        num_retries=0,
        timeout=5.0,
    )
    with pytest.raises(dspy.LMError) as caught:
        lm("q")
    told = lm_advice(caught.value)
    assert "http://127.0.0.1:9/v1" in told and "start the server" in told
    assert "abcdefgh" not in told


@pytest.mark.parametrize("model", ["openai/m", "hosted_vllm/m"])
def test_a_password_in_the_address(model):
    lm = load_lm(
        model, api_base="http://me:pw12@127.0.0.1:9/v1", api_key="sk-abcdefgh", cache=False, num_retries=0, timeout=5.0
    )
    with pytest.raises(dspy.LMError) as caught:
        lm("q")
    told = lm_advice(caught.value)
    assert "127.0.0.1:9" in told and "pw12" not in told and "abcdefgh" not in told


def test_a_server_that_answers_below_v1_only():
    with server(lambda handler, number, body: reply(handler, status=404)) as (address, _, _over):
        lm = load_lm(
            "openai/m", api_base=address.removesuffix("/v1"), api_key="x", cache=False, num_retries=0, timeout=5.0
        )
        with pytest.raises(dspy.LMError) as caught:
            lm("q")
    assert f"--api-base {address}" in lm_advice(caught.value)


def test_other_errors_are_told_as_they_are():
    assert lm_advice(ValueError("two\nlines")) == "two lines"
    assert lm_advice(ValueError()) == "ValueError"
