import dspy
import pytest
from dspy.lm15 import ContextLengthError, InvalidRequestError, RateLimitError, ServerError
from dspy.utils.exceptions import ContextWindowExceededError, LMInvalidRequestError, LMRateLimitError, LMUnexpectedError

from cirag_dspy.modules.ask import ask
from cirag_dspy.modules.failures import is_too_long
from cirag_dspy.signatures import AnswerIfSufficient
from tests.fakes import scripted_lm


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4500 in the messages, 500 "
        "in the completion). Please reduce the length of the messages or completion.",
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "'max_tokens' or 'max_completion_tokens' is too large: 512. This model's maximum context length is 4096 tokens and "
        "your request has 4000 input tokens",
        "the request exceeds the available context size. try increasing the context size or enable context shift",
        "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
        "input is too large to process. increase the physical batch size",
        "prompt is too long: 205000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 199000 + 4096 > 200000, decrease input length or `max_tokens`",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 and 500",
        "Input validation error: `inputs` must have less than 1024 tokens. Given: 1500",
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        "Requested token count exceeds the model's maximum context length of 4096 tokens.",
        "Input length 5000 exceeds the maximum allowed length 4096",
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length "
        "of only 4096 tokens",
        "The number of tokens to keep from the initial prompt is greater than the context length",
        "The input token count (40000) exceeds the maximum number of tokens allowed (32768).",
        "Input is too long for requested model.",
        "too many tokens: size limit exceeded by 1000 tokens",
        "This endpoint's maximum context length is 8192 tokens",
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        "The prompt is too long: 5000, model maximum context length: 4096",
        "inputs tokens + max_new_tokens must be <= 8193",
        "litellm.BadRequestError: OpenAIException - Error code: 400 - {'error': {'code': 'context_length_exceeded'}}",
        "exceed_context_size_error",
        "model requires more context than n_ctx: prompt exceeds n_ctx",
    ],
)
def test_servers_say_too_long_in_many_words(words):
    assert is_too_long(LMInvalidRequestError(words, status=400))
    assert is_too_long(LMUnexpectedError("engine failed")) is False
    wrapped = LMUnexpectedError("engine failed")
    wrapped.__cause__ = ValueError(words)
    assert is_too_long(wrapped)


@pytest.mark.parametrize(
    "error",
    [
        LMInvalidRequestError("Unknown parameter: 'logprobs'", status=400),
        LMInvalidRequestError("max_tokens must be at least 1", status=400),
        LMInvalidRequestError("The response was filtered by the content policy", status=400),
        LMInvalidRequestError("Invalid value for 'temperature': must be less than 2", status=400),
        LMInvalidRequestError("context is not a valid field", status=422),
        LMRateLimitError("Request too large for gpt on tokens per min (TPM): Limit 30000, Requested 45000", status=429),
        LMRateLimitError("Too many tokens per minute", status=429),
        LMUnexpectedError("boom"),
        ValueError("x"),
    ],
)
def test_other_refusals_are_none_for_length(error):
    assert not is_too_long(error)


def test_a_length_refused_by_status_or_type():
    assert is_too_long(ContextWindowExceededError())
    assert is_too_long(LMInvalidRequestError("Payload Too Large", status=413))
    assert is_too_long(LMInvalidRequestError("", status=400))  # words that DSPy could not read


@pytest.mark.parametrize(
    "error",
    [
        InvalidRequestError("the request exceeds the available context size", status=400),
        ServerError("the request exceeds the available context size", status=500),
        RuntimeError("prompt is too long: 5 tokens > 4 maximum"),
        ContextLengthError("x"),
    ],
)
def test_a_question_is_not_lost_to_a_prompt_that_is_too_long(error):
    lm, engine = scripted_lm(lambda messages: error if "two" in messages[-1]["content"] else "answer: ok")
    with dspy.context(lm=lm):
        reply = ask(
            dspy.Predict(AnswerIfSufficient),
            {"question": "Q", "evidence": "one\ntwo"},
            shrink=lambda inputs: {**inputs, "evidence": "one"},
            tries=1,
        )
    assert reply["answer"] == "ok"
    assert len(engine.prompts) == 2


def test_a_rate_limit_is_raised_as_it_is():
    lm, _ = scripted_lm(lambda messages: RateLimitError("too many tokens per minute", status=429))
    with dspy.context(lm=lm), pytest.raises(LMRateLimitError):
        ask(dspy.Predict(AnswerIfSufficient), {"question": "Q", "evidence": "e"}, shrink=lambda inputs: inputs)


@pytest.mark.parametrize(
    "words",
    ["Range of input length should be [1, 30720]", "Token limit exceeded",
     "string too long. Expected a string with maximum length 1048576", "max_tokens must be at least 1, got -50."],
)  # fmt: skip
def test_more_words_for_too_long(words):
    assert is_too_long(LMInvalidRequestError(words, status=400))
