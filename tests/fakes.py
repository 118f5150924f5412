"""Stand-ins for tests: an LM that answers from a script, an encoder of words, an OpenAI-compatible server."""

from __future__ import annotations

import json
import math
import re
import threading
import zlib
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import dspy
import numpy as np
from dspy.lm15 import Message, Request, Response, TokenLogprob, Usage

from cirag_dspy.text import words

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Refused:
    """A reply of ``openai_server`` that is an HTTP error."""

    status: int
    error: dict


class ScriptedEngine:
    """Answers by ``reply(messages)``; a tuple is (text, finish reason), a list the (token, probability) pairs of a text,
    an exception is raised. Keeps every prompt.
    """

    def __init__(self, reply: Callable[[Messages], str | tuple[str, str] | list[tuple[str, float]] | Exception]):
        self.reply = reply
        self.prompts: list[Messages] = []
        self.lock = threading.Lock()

    def complete(self, request: Request) -> Response:
        messages = [{"role": "system", "content": _text(request.system)}] if request.system else []
        messages += [{"role": message.role, "content": message.text or ""} for message in request.messages]
        with self.lock:
            self.prompts.append(messages)
            answer = self.reply(messages)
        if isinstance(answer, Exception):
            raise answer
        answer, scored = _spoken(answer)
        text, reason = answer if isinstance(answer, tuple) else (answer, "stop")
        asked = request.config.logprobs is not None
        count = sum(len(message["content"]) for message in messages) // 4
        return Response(
            id=None,
            model="scripted",
            message=Message.assistant(text),
            finish_reason=reason,
            usage=Usage(input_tokens=count, output_tokens=max(1, len(text) // 4)),
            logprobs=tuple(TokenLogprob(token, math.log(p)) for token, p in scored) if scored and asked else None,
        )

    def __deepcopy__(self, memo):
        return self


def _spoken(answer):
    """A reply, and its tokens with their probabilities where it is made of such pairs."""
    return ("".join(token for token, _ in answer), answer) if isinstance(answer, list) else (answer, [])


def _text(system) -> str:
    return system if isinstance(system, str) else "".join(part.text for part in system)


def scripted_lm(reply, name="scripted/lm", cache=False, num_retries=0):
    """An LM and its engine. ``reply`` is a function of the messages, or a list of replies in order."""
    if not callable(reply):
        script = iter(reply)

        def reply(messages):
            return next(script)

    engine = ScriptedEngine(reply)
    return dspy.LM(name, engine=engine, cache=cache, num_retries=num_retries), engine


def scored(text: str, unsure: str = "") -> list[tuple[str, float]]:
    """A reply with token probabilities: 0.1 for the words of ``unsure``, 0.9 for all others."""
    parts = re.findall(r"\s*\w+|\W", text)
    return [(part, 0.1 if part.strip() in unsure.split() else 0.9) for part in parts]


def fields_of(message: str) -> dict[str, str]:
    """The labelled lines of a user turn, as the model sees them."""
    pieces = re.split(r"^(\w+):[ \n]?", message, flags=re.M)
    return {name: text.strip() for name, text in zip(pieces[1::2], pieces[2::2], strict=True)}


class WordEncoder:
    """An encoder whose cosine is word overlap, so that rankings can be worked out by hand; counts what it is given."""

    dimension = 1024
    query_prompt = ""
    passage_prompt = ""

    def __init__(self, name="words"):
        self.name = name
        self.encoded: list[str] = []

    def encode_passages(self, texts: Sequence[str]) -> np.ndarray:
        self.encoded += texts
        rows = [self._vector(text) for text in texts]
        return np.stack(rows) if rows else np.zeros((0, self.dimension), dtype=np.float32)

    def encode_query(self, text: str) -> np.ndarray:
        return self._vector(text)

    def fingerprint(self) -> list[float]:
        return [round(float(value), 4) for value in self._vector(f"fingerprint of {self.name}")[:16]]

    def _vector(self, text: str) -> np.ndarray:
        vector = np.zeros(self.dimension, dtype=np.float32)
        for word in words(text):
            vector[zlib.crc32(word.encode()) % self.dimension] += 1
        norm = np.linalg.norm(vector)
        return vector / norm if norm else vector

    def __deepcopy__(self, memo):
        return self


@contextmanager
def openai_server(
    reply: Callable[[Messages], str | list[tuple[str, float]]],
    status: Callable[[int], tuple[int, dict[str, str]]] = lambda n: (200, {}),
):
    """An OpenAI-compatible chat server on loopback; yields (address, list of request bodies).

    A reply is a text, or the (token, probability) pairs of one, which are told to who asks for ``logprobs``.
    ``status(n)`` gives the HTTP status and headers of the n-th request (from 1).
    """
    requests: list[dict] = []
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet: two would wait for each other's acknowledgement

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                requests.append(body)
                number = len(requests)
            code, headers = status(number)
            answer = reply(body["messages"]) if code == 200 else None
            if isinstance(answer, Refused):
                code, payload = answer.status, {"error": answer.error}
            elif code == 200:
                text, scored = _spoken(answer)
                logs = [{"token": token, "logprob": math.log(p), "top_logprobs": []} for token, p in scored]
                told = {"logprobs": {"content": logs}} if scored and body.get("logprobs") else {}
                payload = {
                    "id": "x",
                    "object": "chat.completion",
                    "created": 0,
                    "model": body["model"],
                    "choices": [
                        {
                            "index": 0,
                            "finish_reason": "stop",
                            "message": {"role": "assistant", "content": text},
                            **told,
                        }
                    ],
                    "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
                }
            else:
                payload = {"error": {"message": "slow down", "type": "rate_limit", "code": "rate_limit_exceeded"}}
            data = json.dumps(payload).encode()
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, request, client_address):
            pass  # a client that was killed

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def answering(payload: dict, status: int = 200):
    """An LM over HTTP whose server sends ``payload`` to every request, whatever is asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            sent = {"id": "x", "object": "chat.completion", "created": 0, "model": "x", **payload}
            data = json.dumps(sent if status == 200 else payload).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield dspy.LM("openai/x", api_base=address, api_key="k", cache=False, num_retries=0)
    finally:
        server.shutdown()
        server.server_close()
