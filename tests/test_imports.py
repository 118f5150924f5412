"""Imports point one way, and nothing heavy is loaded before it is needed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import cirag_dspy

ROOT = Path(cirag_dspy.__file__).parent
BASE = {"advice", "errors", "text", "schema", "paths", "files", "plain", "content", "reply_cache"}
BELOW = BASE | {"adapter", "replies", "signatures", "modules", "systems", "corpus", "benchmarks", "lms"}
MAY_IMPORT = {
    "errors": set(),
    "advice": {"text"},
    "text": set(),
    "paths": {"errors"},
    "files": {"errors", "plain"},
    "plain": set(),
    "reply_cache": set(),
    "content": {"errors", "paths", "files"},
    "schema": {"text"},
    "replies": {"text"},
    "adapter": {"text", "replies"},
    "signatures": set(),
    "modules": BASE | {"adapter", "signatures", "replies"},
    "systems": BASE | {"signatures", "modules"},
    "corpus": BASE,
    "benchmarks": BASE,
    "lms": BASE | {"signatures"},
    "evaluate": BELOW,
    "distill": BELOW,
    "recipe": BELOW | {"distill", "evaluate"},
    "artifact": BELOW | {"distill", "evaluate"},
    "pipeline": BELOW | {"distill", "evaluate", "recipe", "artifact"},
    "__main__": {"cli"},
    "cli": BELOW | {"distill", "evaluate", "recipe", "artifact", "pipeline"},
}
HEAVY = {"torch", "transformers", "faiss", "sentence_transformers", "peft", "datasets"}
FILES = sorted(ROOT.rglob("*.py"))


def imported(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            pytest.fail(f"{path}: relative import")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path):
    part = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if part == "__init__":
        return
    for name in imported(path):
        top, _, rest = name.partition(".")
        if top == "cirag_dspy" and rest:
            target = rest.split(".")[0]
            assert target == part or target in MAY_IMPORT[part], f"{part} imports {target}"
        if part in ("modules", "systems", "signatures", "adapter"):
            assert top not in HEAVY, f"{part} imports {top}"


@pytest.mark.parametrize(
    "code",
    [
        "import cirag_dspy",
        "import cirag_dspy.cli",
        "import cirag_dspy.systems.cirag",
        "import cirag_dspy.lms",
        "import cirag_dspy.corpus.index",
        "import cirag_dspy.benchmarks",
        "import cirag_dspy.artifact",
        "import cirag_dspy.recipe",
        "import cirag_dspy.pipeline",
        "import cirag_dspy.pipeline.align",
        "import cirag_dspy.distill.optimizer",
        "import cirag_dspy.distill.prompts",
    ],
)
def test_importing_loads_nothing_heavy(code):
    heavy = HEAVY - ({"faiss"} if "corpus" in code else set())
    probe = f"{code}; import sys; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_needs_no_dspy():
    probe = (
        "import sys; sys.argv = ['cirag-dspy', '--help']\n"
        "from cirag_dspy.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('LOADED', sorted({'dspy', 'torch', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert "LOADED []" in done.stdout


def test_the_library_never_configures_dspy():
    assert [path for path in FILES if "configure(" in path.read_text(encoding="utf-8")] == []
