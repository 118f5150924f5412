"""How many training rows of a recipe are too long, and what they lose.

python -m bench.row_lengths programs/demo.toml [--data-dir DIR] [--limit 10] [--set lm.extraction=annotations]

Makes the recipe's rows and prints a Markdown row per predictor. BEFORE is the rule of commit 08da912, which cut prompts
of more than 1,024 tokens from the left; AFTER is the rule of `distill.encode` at the recipe's `lora.max_length`.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from cirag_dspy.cli import common, stages
from cirag_dspy.distill.encode import _Encoder, encode_rows
from cirag_dspy.distill.rows import read_rows
from cirag_dspy.errors import DataError
from cirag_dspy.lms import trainable

OLD_LENGTH = 1024
COLUMNS = (
    ("rows", "rows"),
    ("longest", "longest"),
    ("cut", "cut before"),
    ("no_instructions", "without instructions"),
    ("no_question", "without question"),
    ("shortened", "shortened after"),
    ("lost", "tokens lost"),
    ("dropped", "dropped"),
)


def main() -> None:
    """Make the rows, count, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--limit", type=int, help="Questions a data set, as --set data.limit=N.")
    parser.add_argument("--set", action="append", default=[], dest="changes")
    options = parser.parse_args()
    changes = [*options.changes, *([f"data.limit={options.limit}"] if options.limit else [])]
    lm_options = common.LMOptions(None, None, 4, 120.0, cache=True)
    with tempfile.TemporaryDirectory() as work:
        pipeline = stages.open_pipeline(
            options.recipe, changes, lm_options, work=Path(work), data_dir=options.data_dir, quiet=True
        )
        pipeline.traces()
        pipeline.export()
        rows = read_rows(pipeline.rows_file)
        recipe = pipeline.recipe
    tokenizer = AutoTokenizer.from_pretrained(trainable(recipe.lm.student)[1], local_files_only=True)
    print("\n".join(table(count(rows, tokenizer, recipe.lora_settings.max_length))))


def count(rows: Sequence[dict[str, Any]], tokenizer: Any, max_length: int) -> dict[str, Counter[str]]:
    """What becomes of rows under both rules, by predictor and in all.

    Raises:
        AssertionError: A row of today's rule lacks its instructions or its question.
    """
    found: dict[str, Counter[str]] = {}
    encoder = _Encoder(tokenizer, [tokenizer.eos_token_id])
    for row in rows:
        turns, joined = encoder.turns(row["messages"], str(row["id"]))
        asked = [encoder.chat.neutral(text) for text in must_stay(row)]
        longest = max([len(prompt) + len(reply) for _, prompt, reply in turns])
        counts = Counter(rows=1)
        if joined is None or len(joined.ids) > OLD_LENGTH:
            for _, prompt, reply in turns:
                kept = cut_left(prompt, len(reply), OLD_LENGTH)
                if kept is not None and len(kept) < len(prompt):
                    text = tokenizer.decode(kept, clean_up_tokenization_spaces=False)
                    counts["cut"] += 1
                    counts["no_instructions"] += asked[0] not in text
                    counts["no_question"] += any(line not in text for line in asked[1:])
        try:
            encoded, report = encode_rows([row], tokenizer, [tokenizer.eos_token_id], max_length=max_length)
        except DataError:  # nothing is left of it
            encoded, dropped = [], len(turns)
        else:
            dropped = report.dropped
            counts.update(shortened=report.shortened, lost=report.lost)
        counts["dropped"] = dropped
        for one in encoded:
            text = tokenizer.decode(one.ids, clean_up_tokenization_spaces=False)
            assert all(line in text for line in asked), f"{row['id']} ({row['predictor']}) lost what it asks"
        for name in (row["predictor"], "in all"):
            total = found.setdefault(name, Counter())
            total["longest"] = max(total["longest"], longest)
            total.update(counts)
    return found


def must_stay(row: dict[str, Any]) -> list[str]:
    """The instructions of a row, then the line of its last question, if it has one."""
    users = [one["content"] for one in row["messages"] if one["role"] == "user"]
    lines = re.findall(r"(?m)^(?:question|title): ?.*$", users[-1])
    return [row["messages"][0]["content"], *lines[:1]]


def cut_left(prompt: list[int], reply: int, max_length: int) -> list[int] | None:
    """The end of a prompt, as rows were cut at commit 08da912; None where its reply alone was too long."""
    return None if reply >= max_length else prompt[-(max_length - reply) :]


def table(found: dict[str, Counter[str]]) -> list[str]:
    """A Markdown row per predictor, the total last."""
    names = [*sorted(name for name in found if name != "in all"), "in all"]
    head = "| predictor | " + " | ".join(title for _, title in COLUMNS) + " |"
    body = [f"| {name} | " + " | ".join(f"{found[name][key]:,}" for key, _ in COLUMNS) + " |" for name in names]
    return [head, "|---" * (len(COLUMNS) + 1) + "|", *body]


if __name__ == "__main__":
    main()
