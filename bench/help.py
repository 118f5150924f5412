"""Seconds that ``cirag-dspy --help`` takes, against a bare Python start.

python -m bench.help [--repeats 10]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from cirag_dspy.evaluate.manifest import machine


def seconds(command: list[str]) -> float:
    """Wall time of a command."""
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10)
    repeats = parser.parse_args().repeats
    ours = [str(Path(sys.executable).parent / "cirag-dspy"), "--help"]
    bare = [sys.executable, "-c", "pass"]
    times = [(seconds(ours), seconds(bare)) for _ in range(repeats)]
    result = {
        "bench": "help",
        "seconds": round(statistics.median(time[0] for time in times), 3),
        "over_bare_python": round(statistics.median(time[0] / time[1] for time in times), 1),
        "machine": machine(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
