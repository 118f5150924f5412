"""A remote LM: one deadline a reply, tries that don't multiply, prompts that its server cuts. All on 127.0.0.1."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import dspy
import pytest

from cirag_dspy.lms import LMMeter, load_lm
from cirag_dspy.lms.remote import ReplyTimeoutError, least_tokens


@contextmanager
def server(behave):
    """A server on loopback; ``behave(handler, n, body)`` answers the n-th request. Yields (address, requests, over)."""
    requests, over, lock = [], threading.Event(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                requests.append(body)
                number = len(requests)
            behave(self, number, body)

        def log_message(self, *args):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request, client_address):
            pass

    made = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{made.server_port}/v1", requests, over
    finally:
        over.set()
        made.shutdown()
        made.server_close()


def reply(handler, text="answer: yes", read=10, status=200):
    data = {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": read, "completion_tokens": 5, "total_tokens": read + 5},
    }
    if status != 200:
        data = {"error": {"message": "not now", "type": "x", "code": "x"}}
    body = json.dumps(data).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def trickle(part, over):
    """Blanks, five a second, before the reply, or within what comes before it; for ten seconds at most."""

    def behave(handler, number, body):
        if part == "body":
            handler.send_response(200)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", "100000")
            handler.end_headers()
        else:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        for _ in range(50):
            if over.wait(0.2):
                return
            try:
                handler.wfile.write(b" ")
                handler.wfile.flush()
            except OSError:
                return

    return behave


def asked(lm, text="q", asynchronous=False):
    return asyncio.run(lm.acall(text)) if asynchronous else lm(text)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("part", ["body", "head"])
@pytest.mark.parametrize("model", ["openai/m", "hosted_vllm/m"])
def test_a_reply_that_trickles_is_over_at_its_deadline(model, part, asynchronous):
    ended = threading.Event()
    with server(trickle(part, ended)) as (address, requests, _):
        lm = load_lm(model, api_base=address, api_key="x", cache=False, timeout=1.0, num_retries=3)
        started = time.monotonic()
        with pytest.raises(dspy.LMError) as caught:
            asked(lm, asynchronous=asynchronous)
        seconds = time.monotonic() - started
        ended.set()
    assert isinstance(caught.value, ReplyTimeoutError) and "within 1 s" in str(caught.value)
    assert seconds < 6 and len(requests) == 1


def test_in_threads_each_reply_has_its_own_deadline():
    ended = threading.Event()
    slow = trickle("body", ended)

    def behave(handler, number, body):
        slow(handler, number, body) if "slow" in json.dumps(body["messages"]) else reply(handler)

    with server(behave) as (address, _, _over):
        lm = load_lm("openai/m", api_base=address, api_key="x", cache=False, timeout=2.0, num_retries=0)

        def one(text):
            try:
                return lm(text)[0]
            except ReplyTimeoutError:
                return "late"

        from cirag_dspy.modules.threads import each_in_threads

        found = dict(each_in_threads(one, ["slow", "quick", "slow too", "quick too"], 4))
        ended.set()
    assert found == {"slow": "late", "slow too": "late", "quick": "answer: yes", "quick too": "answer: yes"}


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("timeout", [{}, {"timeout": 30.0}])
@pytest.mark.parametrize("model", ["openai/m", "hosted_vllm/m"])
@pytest.mark.parametrize("status", [500, 429])
def test_tries_are_requests_and_never_multiply(status, model, timeout, asynchronous, monkeypatch):
    monkeypatch.setattr("cirag_dspy.lms.remote._pause", lambda error, attempt: 0.0)
    monkeypatch.setattr("dspy.clients.execution._delay", lambda error, attempt: 0.0)
    with server(lambda handler, number, body: reply(handler, status=status)) as (address, requests, _):
        lm = load_lm(model, api_base=address, api_key="x", cache=False, num_retries=2, **timeout)
        meter = LMMeter()
        with pytest.raises(dspy.LMError), meter.context():
            asked(lm, asynchronous=asynchronous)
    assert len(requests) == 3
    assert (meter.snapshot()["failed"], meter.snapshot()["calls"]) == (1, 0)


def test_a_try_that_succeeds_is_one_call(monkeypatch):
    monkeypatch.setattr("cirag_dspy.lms.remote._pause", lambda error, attempt: 0.0)
    with server(lambda handler, number, body: reply(handler, status=200 if number == 3 else 503)) as (address, _, _o):
        lm = load_lm("openai/m", api_base=address, api_key="x", cache=True, timeout=30.0)
        meter = LMMeter()
        with meter.context():
            assert lm("q") == lm("q") == ["answer: yes"]
    told = meter.snapshot()
    assert (told["calls"], told["cached"], told["failed"], told["prompt_tokens"]) == (1, 1, 0, 10)


def test_it_is_saved_as_dspys_own():
    state = load_lm("openai/m", api_key="secret", timeout=3.0).dump_state()
    loaded = dspy.LM.load_state(dict(state))
    assert type(dspy.clients.base_lm.BaseLM.load_state(dict(state))) is dspy.LM
    assert loaded.kwargs["timeout"] == 3.0 and "secret" not in json.dumps(state)


WORDS = "harbor tower bridge river "  # 4 words


@pytest.mark.parametrize(
    ("text", "read", "cut"),
    [
        (WORDS * 1500, 2050, True),  # 6,000 words, of which 2,050 tokens were read
        (WORDS * 1500, 7800, False),  # as a tokenizer counts them
        (WORDS * 1500, 3700, False),  # 62 % of the lowest count
        (WORDS * 1500, 3500, True),  # 58 %
        (WORDS * 500, 2050, False),
        (WORDS * 1500, 10, False),  # a server that doesn't count
        ("北京市位于华北平原" * 400, 2050, False),  # 3,600 letters in two a token
        ("北京市位于华北平原" * 2000, 2050, True),  # 18,000 letters are 6,000 tokens at least
        ("ภาษาไทยไม่มีช่องว่าง" * 200, 1500, False),
        ("Donaudampfschifffahrtsgesellschaft " * 1000, 5000, False),
        ("a | b | c\n" * 1000, 5000, False),
        ("short", 2050, False),
    ],
)
def test_a_prompt_that_its_server_cuts(text, read, cut, caplog):
    with server(lambda handler, number, body: reply(handler, read=read)) as (address, _, _o):
        lm = load_lm("openai/m", api_base=address, api_key="x", cache=False, timeout=30.0)
        meter = LMMeter()
        with caplog.at_level(logging.WARNING, "cirag_dspy"), meter.context():
            lm(text)
            lm.copy()(text + " again")
    told = [record.getMessage() for record in caplog.records if "reads only" in record.getMessage()]
    assert len(told) == cut  # once a model
    assert meter.snapshot()["cut_prompts"] == 2 * cut
    if cut:
        assert "num_ctx" in told[0] and "--max-model-len" in told[0]


def test_a_prompt_from_the_servers_cache_is_no_cut_one(caplog):
    """Old Ollamas report only what was read anew."""
    with server(lambda handler, number, body: reply(handler, read=7800 if number == 1 else 600)) as (address, _, _o):
        lm = load_lm("openai/m", api_base=address, api_key="x", cache=False, timeout=30.0)
        with caplog.at_level(logging.WARNING, "cirag_dspy"):
            lm(WORDS * 1500)
            lm(WORDS * 1500 + "x")
    assert not [record for record in caplog.records if "reads only" in record.getMessage()]


def test_the_lowest_count_of_messages():
    assert least_tokens([{"role": "system", "content": "one two"}, {"role": "user", "content": "three, four."}]) == 4
    assert least_tokens([{"role": "user", "content": [{"type": "text", "text": "x"}]}]) == 0
    assert least_tokens("北京市") == 1
    assert least_tokens(None) == 0
