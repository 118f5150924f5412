"""What indexing and asking cost, counted by a server: the passages and questions of ``shared/peers.md``.

The LM is the one of ``bench.scripted`` behind an OpenAI-compatible server on loopback, which counts every request.
Tokens are cl100k.

    python -m bench.cost [--passages 200] [--data ../shared/data]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import dspy
from dspy.utils.callback import BaseCallback

from bench.scripted import Reply, Script
from cirag_dspy.corpus.embedder import Embedder
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.evaluate.manifest import machine, versions
from cirag_dspy.systems import build_system
from cirag_dspy.text import one_line
from tests.fakes import openai_server

REMEMBERED_QUERIES = 64


class Server:
    """The scripted LM behind HTTP in a process of its own, so that it takes no time from the one that is measured."""

    def __init__(self, script: Script, seconds: float = 0.0) -> None:
        self.pipe, other = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=_serve, args=(script, seconds, other), daemon=True)
        self.process.start()
        self.address = self.pipe.recv()

    def count(self) -> int:
        """Requests since the last ``take``."""
        self.pipe.send("count")
        return self.pipe.recv()

    def take(self) -> tuple[list[dict], list[str]]:
        """The requests since the last ``take``, and the replies in the order in which they were made."""
        self.pipe.send("take")
        return self.pipe.recv()


def _serve(script: Script, seconds: float, pipe: Connection) -> None:
    replies: list[str] = []

    def reply(messages: list[dict[str, str]]) -> Reply:
        time.sleep(seconds)
        answer = script(messages)
        replies.append(answer if isinstance(answer, str) else "".join(token for token, _ in answer))
        return answer

    with openai_server(reply) as (address, requests):
        pipe.send(address)
        while True:
            if pipe.recv() == "count":
                pipe.send(len(requests))
            else:
                pipe.send((list(requests), list(replies)))
                requests.clear()
                replies.clear()


class Waiting(BaseCallback):
    """Seconds spent in LM calls."""

    def __init__(self) -> None:
        self.started: dict[str, float] = {}
        self.total = 0.0

    def on_lm_start(self, call_id: str, instance: object, inputs: dict) -> None:
        """Note the time."""
        self.started[call_id] = time.perf_counter()

    def on_lm_end(self, call_id: str, outputs: dict | None, exception: Exception | None = None) -> None:
        """Add the time."""
        self.total += time.perf_counter() - self.started.pop(call_id)


def cl100k(text: str) -> int:
    """Tokens of a text."""
    import litellm

    return len(litellm.encode(model="gpt-4", text=text))


def prompt_tokens(requests: list[dict]) -> int:
    """Tokens of the prompts of requests."""
    return sum(cl100k(message["content"]) for request in requests for message in request["messages"])


def load(data: Path, count: int) -> tuple[list[dict], list[dict]]:
    """The first passages of openie/ and the MuSiQue questions whose support lies in them."""
    lines = (data / "openie/musique_train_gpt-3.5-turbo.jsonl").read_text().splitlines()[:count]
    openie = [json.loads(line) for line in lines]
    there = {one_line(row["text"]) for row in openie}
    rows = [json.loads(line) for line in (data / "musique/train.jsonl").read_text().splitlines()]
    questions = [
        row
        for row in rows
        if all(one_line(p["paragraph_text"]) in there for p in row["paragraphs"] if p["is_supporting"])
    ]
    return openie, questions[:10]


def write_corpus(openie: list[dict], folder: Path) -> Path:
    """The file of the passages."""
    corpus = folder / "corpus.jsonl"
    corpus.write_text("\n".join(json.dumps({"title": row["title"], "text": row["text"]}) for row in openie))
    return corpus


def run_index(corpus: Path, out: Path, address: str) -> float:
    """Seconds that ``cirag-dspy index`` takes, imports included."""
    started = time.perf_counter()
    subprocess.run(index_command(corpus, out, address), check=True, capture_output=True, env=environment())
    return time.perf_counter() - started


def index_command(corpus: Path, out: Path, address: str) -> list[str]:
    """The command that builds the index."""
    command = [str(Path(sys.executable).parent / "cirag-dspy"), "index", str(corpus), "--out", str(out)]
    return [*command, "--lm", "openai/scripted", "--api-base", address, "--no-cache", "--threads", "4", "--quiet"]


def environment() -> dict[str, str]:
    """A key for the scripted server."""
    return {**os.environ, "OPENAI_API_KEY": "none"}


def killed_half_way(corpus: Path, out: Path, server: Server, half: int) -> int:
    """Requests in all when the index command is killed after ``half`` of them and run again."""
    process = subprocess.Popen(
        index_command(corpus, out, server.address),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while server.count() < half and process.poll() is None:
        time.sleep(0.002)
    process.kill()
    process.wait()
    run_index(corpus, out, server.address)
    return len(server.take()[0])


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passages", type=int, default=200)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    openie, questions = load(options.data, options.passages)
    script = Script(openie, questions)
    work = Path(tempfile.mkdtemp())
    corpus = write_corpus(openie, work)
    server, slow = Server(script), Server(script, seconds=0.02)
    seconds = run_index(corpus, work / "index", server.address)
    first, _ = server.take()
    run_index(corpus, work / "index", server.address)
    second = len(server.take()[0])
    total = killed_half_way(corpus, work / "killed", slow, len(first) // 2)
    with CorpusIndex.open(work / "index", Embedder()) as index:
        counts, passages = index.counts(), len(index)
        asked = ask(index, questions, server)
    size = sum(file.stat().st_size for file in (work / "index").rglob("*"))
    words = sum(cl100k(f"{row['title']} {row['text']}") for row in openie)
    result = {
        "bench": "cost",
        "indexing": {
            "passages": passages,
            "calls_per_passage": round(len(first) / passages, 3),
            "prompt_tokens_per_passage": round(prompt_tokens(first) / passages, 1),
            "prompt_tokens_over_corpus_tokens": round(prompt_tokens(first) / words, 2),
            "calls_of_a_second_run": second,
            "paid_again_after_kill": total - len(first),
            "triples": counts["triples"],
            "disk_mb": round(size / 1e6, 2),
            "seconds": round(seconds, 1),
        },
        "asking": asked,
        "machine": machine(),
        "versions": versions(),
    }
    shutil.rmtree(work)
    print(json.dumps(result, indent=1))


@dataclass(frozen=True)
class Answered:
    """What one question took: requests, their tokens and those of the replies, seconds outside of LM calls."""

    question: dict
    calls: int
    prompt_tokens: int
    completion_tokens: int
    own: float
    prediction: dspy.Prediction

    @property
    def right(self) -> bool:
        """Whether the answer is the gold one."""
        return self.prediction.answer == self.question["answer"]


def answer(name: str, index: CorpusIndex, questions: list[dict], server: Server) -> list[Answered]:
    """Ask a system the questions, one after the other."""
    lm = dspy.LM("openai/scripted", api_base=server.address, api_key="none", cache=False, max_tokens=512)
    program = build_system(name, index)
    with dspy.context(lm=lm):
        program(question=questions[0]["question"])  # imports, connections
    for number in range(REMEMBERED_QUERIES):
        index.embedder.encode_query(f"warm up {number}")  # no query of a question is remembered
    rows = []
    for question in questions:
        server.take()
        waiting = Waiting()
        started = time.perf_counter()
        with dspy.context(lm=lm, callbacks=[waiting]):
            prediction = program(question=question["question"])
        own = time.perf_counter() - started - waiting.total
        requests, replies = server.take()
        spoken = sum(map(cl100k, replies))
        rows.append(Answered(question, len(requests), prompt_tokens(requests), spoken, own, prediction))
    return rows


def ask(index: CorpusIndex, questions: list[dict], server: Server) -> dict:
    """Calls, tokens and own overhead of the package's system and of plain RAG on the questions."""
    found = {}
    for name in ("cirag", "native_rag"):
        rows = answer(name, index, questions, server)
        two_hop = [row for row in rows if row.question["id"].startswith("2hop")]
        found[name] = {
            "questions": len(rows),
            "calls": statistics.mean(row.calls for row in rows),
            "calls_over_hops": statistics.mean(row.calls - len(row.prediction.hops) for row in rows),
            "prompt_tokens": round(statistics.mean(row.prompt_tokens for row in rows)),
            "prompt_tokens_two_hop_max": max((row.prompt_tokens for row in two_hop), default=0),
            "completion_tokens": round(statistics.mean(row.completion_tokens for row in rows)),
            "own_overhead_ms_median": round(1000 * statistics.median(row.own for row in rows), 1),
            "own_overhead_ms_median_two_hop": round(1000 * statistics.median(row.own for row in two_hop), 1),
            "levels": sorted({row.prediction.level for row in rows}),
            "right": sum(row.right for row in rows),
            "citations": round(statistics.mean(len(row.prediction.citations) for row in rows), 1),
        }
    return found


if __name__ == "__main__":
    main()
