"""With and without distillation (the paper's table 2), on questions that nothing was trained on.

python -m bench.distillation [--data ../shared/data] [--program optimized/cirag-smollm2] [--limit 100] [--only base]

Each system is asked with the base model, the base model with bootstrapped demonstrations, the student of a saved
program, and the gold annotations (an upper bound), over the joint corpus of the questions and the triples that the
student extracted from it. Runs are kept in --out and gone on with. Prints a Markdown table, then JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cirag_dspy.artifact import EXTRACTION, Saved, triples_writer
from cirag_dspy.benchmarks import load_benchmark
from cirag_dspy.evaluate.corpus import open_corpus
from cirag_dspy.evaluate.manifest import machine, versions
from cirag_dspy.modules.extract import extract_missing

SYSTEMS = ("native_rag", "cirag")
# What eval says with options of its own.
OPTIONS = ("extract", "threads")
LMS = ("base", "demos", "student", "annotations")
# One set of demonstrations, and few questions to score it by: the base model takes seconds a question.
DEMOS = """
system = "{system}"
optimizer = "bootstrap_random_search"
[settings]
{settings}
[lm]
teacher = "annotations"
student = "embedded"
max_tokens = {max_tokens}
[[data]]
dataset = "{dataset}"
limit = 24
val = 4
[options]
metric = "f1"
threshold = 1.0
restrict = [-1]
max_bootstrapped_demos = 2
"""


def main() -> None:
    """Run what is missing, print what there is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--program", type=Path, default=Path("optimized/cirag-smollm2"))
    parser.add_argument("--datasets", default="2wikimultihopqa,hotpotqa")
    parser.add_argument("--only", default=",".join(LMS), help="Of base, demos, student, annotations.")
    parser.add_argument("--limit", type=int, default=100, help="Questions, drawn at random by seed 0.")
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--max-batch", type=int, default=16, help="Passages extracted at a time.")
    parser.add_argument("--out", type=Path, default=Path("runs/distillation"))
    options = parser.parse_args()
    found = []
    for dataset in options.datasets.split(","):
        index, extraction = extract(options, dataset)
        for lm in options.only.split(","):
            for system in SYSTEMS:
                found.append(measure(options, dataset, system, lm, index))
                print(json.dumps(found[-1]), file=sys.stderr, flush=True)
        found[-1]["extraction"] = extraction
    print("\n".join(table(found)))
    print(json.dumps({"bench": "distillation", "runs": found, "machine": machine(), "versions": versions()}, indent=2))


def extract(options: argparse.Namespace, dataset: str) -> tuple[Path, dict[str, Any]]:
    """The index of a data set's corpus with the student's triples, and what extracting them took now."""
    benchmark = load_benchmark(dataset, "dev", data_dir=options.data / dataset, limit=options.limit)
    saved = Saved.read(options.program)
    lm, module = saved.lm(EXTRACTION, max_batch=options.max_batch), saved.extractor()
    module.set_lm(lm)
    with open_corpus(benchmark, extractor=triples_writer(lm, module)) as index:
        todo = index.pending()
        started = time.perf_counter()
        extract_missing(index, module, todo, threads=options.max_batch, on_done=lambda passage, extraction: None)
        seconds = time.perf_counter() - started
        index.extractor = triples_writer(lm, module)
        index.embed_triples()
        return index.path, index.counts() | {"extracted_now": len(todo), "seconds": round(seconds)}


def measure(options: argparse.Namespace, dataset: str, system: str, lm: str, index: Path) -> dict[str, Any]:
    """One run, made or gone on with, as a row."""
    out = options.out / f"{dataset}-{system}-{lm}"
    saved = Saved.read(options.program).settings(system)
    settings = {name: value for name, value in saved.items() if name not in OPTIONS}
    knobs = [part for name, value in settings.items() for part in ("--set", f"{name}={json.dumps(value)}")]
    said = {
        "base": ["--lm", "embedded", "--max-tokens", "200", *knobs],
        "annotations": ["--lm", "annotations", *knobs],
        "student": ["--program", str(options.program)],
        "demos": ["--program", str(options.out / f"demos-{dataset}-{system}")],
    }[lm]
    if lm == "demos":
        compile_demos(options, dataset, system, settings)
    where = ["--dataset", dataset, "--data-dir", str(options.data / dataset), "--limit", str(options.limit)]
    off = [] if system == "native_rag" else ["--extract", "off"]
    command("eval", *where, "--system", system, *said, *off, "--index", str(index), "--out", str(out), "--resume",
            "--threads", str(options.threads), "--quiet", "--json")  # fmt: skip
    summary = json.loads((out / "results.json").read_text(encoding="utf-8"))["summary"]
    return {"dataset": dataset, "system": system, "with": lm, **summary}


def compile_demos(options: argparse.Namespace, dataset: str, system: str, settings: dict[str, Any]) -> None:
    """The base model's program with demonstrations from training questions. It quotes them: not for a repository."""
    recipe = options.out / f"demos-{dataset}-{system}.toml"
    out = recipe.with_suffix("")
    if (out / "meta.json").is_file():
        return
    told = "\n".join(f"{name} = {json.dumps(value)}" for name, value in settings.items())
    recipe.parent.mkdir(parents=True, exist_ok=True)
    recipe.write_text(DEMOS.format(system=system, dataset=dataset, settings=told, max_tokens=200), encoding="utf-8")
    command("compile", str(recipe), "--data-dir", str(options.data), "--work", str(options.out / "work" / recipe.stem),
            "--out", str(out), "--quiet")  # fmt: skip


def command(*arguments: str) -> None:
    """A command of this package; questions that failed (exit code 1) are counted in the results."""
    run = [sys.executable, "-c", "from cirag_dspy.cli import main; main()", *arguments]
    done = subprocess.run(run, stdout=subprocess.PIPE, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"cirag-dspy {' '.join(arguments)} failed ({done.returncode})")


def table(runs: list[dict[str, Any]]) -> Iterator[str]:
    """The rows of a Markdown table."""
    yield "| data | system | LM | EM | F1 | recall@5 | level of the answers | LM calls | tokens, prompt + reply |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for run in runs:
        cost = run["lm_per_question"]
        levels = ", ".join(f"{level} {group['n']}" for level, group in run["levels"].items())
        yield (
            f"| {run['dataset']} | {run['system']} | {run['with']} | {100 * run['em']:.1f} | {100 * run['f1']:.1f} "
            f"| {100 * run['recall'].get('@5', 0):.1f} | {levels} | {cost['calls']} "
            f"| {cost['prompt_tokens']:.0f} + {cost['completion_tokens']:.0f} |"
        )


if __name__ == "__main__":
    main()
