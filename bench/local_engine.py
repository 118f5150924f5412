"""How much faster the local engine answers eight requests together than one after another. Prints one JSON line."""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from cirag_dspy.lms import load_lm

WORDS = [
    "river",
    "mountain",
    "city",
    "author",
    "novel",
    "film",
    "born",
    "died",
    "capital",
    "population",
    "century",
    "king",
    "battle",
    "university",
    "song",
    "album",
    "award",
    "team",
    "league",
    "player",
    "bridge",
    "painter",
    "island",
    "senator",
    "physicist",
    "opera",
    "railway",
    "museum",
    "treaty",
    "harbour",
]


def main() -> int:
    """Run the comparison; exit status 1 if together is less than --least times as fast."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lm", default="embedded", help="embedded, local/MODEL or local/MODEL+ADAPTER")
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--prompt-words", type=int, default=85, help="85 words make about 150 tokens")
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype")
    parser.add_argument("--device")
    parser.add_argument("--max-batch", type=int, default=8)
    parser.add_argument("--least", type=float, default=2.0)
    args = parser.parse_args()

    from dspy.lm15 import Config, Message, Request

    engine = load_lm(args.lm, dtype=args.dtype, device=args.device, max_batch=args.max_batch).engine
    engine._eos = frozenset()  # every answer is to have the same length
    generator = random.Random(0)

    def ask(text: str, new_tokens: int = args.new_tokens) -> Request:
        return Request(model="m", messages=(Message.user(text),), config=Config(max_tokens=new_tokens))

    def text(words: int) -> str:
        return " ".join(generator.choices(WORDS, k=words))

    def timed(run) -> tuple[float, list]:
        started = time.perf_counter()
        answers = list(run())
        return time.perf_counter() - started, answers

    rates: dict[str, list[float]] = {"alone": [], "together": []}
    with ThreadPoolExecutor(args.requests) as pool:
        list(pool.map(engine.complete, [ask("warm up", 4)] * args.requests))
        for _ in range(args.rounds):
            # Prompts are new in every run, so that no prefix beyond the template's is reused.
            for name, each in (("alone", map), ("together", pool.map)):
                requests = [ask(text(args.prompt_words)) for _ in range(args.requests)]
                seconds, answers = timed(lambda each=each, requests=requests: each(engine.complete, requests))
                rates[name].append(sum(answer.usage.output_tokens for answer in answers) / seconds)
    alone, together = (statistics.median(rates[name]) for name in ("alone", "together"))

    # Four turns of one conversation, as a multi-hop question makes them: the history is sent again every time.
    turns = [(Message.user(text(300)), Message.assistant(text(25))) for _ in range(4)]
    conversation = [
        Request(
            model="m",
            messages=(*(message for turn in turns[:hop] for message in turn), turns[hop][0]),
            config=Config(max_tokens=16),
        )
        for hop in range(4)
    ]
    kept, _ = timed(lambda: map(engine.complete, conversation))
    fresh = 0.0
    for request in conversation:
        engine._decoder.forget_prefixes()
        fresh += timed(lambda request=request: map(engine.complete, [request]))[0]

    ratio = together / alone
    print(
        json.dumps(
            {
                "ratio": round(ratio, 2),
                "tokens_per_second_alone": round(alone, 1),
                "tokens_per_second_together": round(together, 1),
                "prefix_ratio": round(fresh / kept, 2),
                "four_turns_seconds": {"prefix kept": round(kept, 2), "prefix forgotten": round(fresh, 2)},
                "lm": args.lm,
                "dtype": str(engine.model.dtype).removeprefix("torch."),
                "device": str(engine.model.device),
                "machine": f"{platform.processor() or platform.machine()}, {_cores()} cores",
                "requests": args.requests,
                "new_tokens": args.new_tokens,
            }
        )
    )
    return 0 if ratio >= args.least else 1


def _cores() -> int:
    import torch

    return torch.get_num_threads()


if __name__ == "__main__":
    sys.exit(main())
