"""``ablate``: named grids and files, one system, one index, resumable; the table and the drawing."""

import json
import sys

import pytest

from cirag_dspy import artifact
from cirag_dspy.evaluate.ablate import GRIDS
from cirag_dspy.systems import build_system
from tests.cli.conftest import good
from tests.cli.test_evaluate import asked, assert_wrong, manifest

DEMO = ("--dataset", "demo", "--limit", "2", "--threads", "1", "--lm", "x")


def test_granularity(inside, tmp_path):
    done = inside("ablate", "granularity", *DEMO, "--extract", "given", "--out", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    names = ["all levels", "triples+sentences", "triples+passages", "sentences+passages"]
    names += ["triples", "sentences", "passages"]
    lines = done.stdout.splitlines()
    assert lines[0] == "granularity of cirag: demo dev, 2 questions, x"
    assert [line[:18].strip() for line in lines[3:10]] == names
    assert lines[11].startswith("minus all levels")
    folders = {path.name: manifest(path)["system"]["levels"] for path in (tmp_path / "run").iterdir()}
    assert folders["all-levels"] == ["triples", "sentences", "passages"]
    assert folders["sentences-passages"] == ["sentences", "passages"] and folders["triples"] == ["triples"]
    assert asked(inside) == {"extract": 0, "integrate": 14, "evidence": 14, "passages": 0}
    again = inside(
        "ablate", "granularity", *DEMO, "--extract", "given", "--out", tmp_path / "run", "--resume", "--json"
    )
    assert inside.prompts == [] and list(json.loads(again.stdout)["comparison"]["runs"]) == names


@pytest.mark.parametrize("grid", [name for name in GRIDS if name != "distillation"])  # which needs a student
def test_every_named_grid_can_be_run(grid, inside):
    done = inside("ablate", grid, *DEMO, "--dry-run", "--json")
    assert done.exit_code == 0, done.stderr
    assert list(json.loads(done.stdout)["answering_at_most"]) == list(GRIDS[grid].points)


def test_extraction_pays_offline_first_or_online_as_it_goes(inside, tmp_path):
    done = inside("ablate", "extraction", *DEMO, "--out", tmp_path / "run", "--json")
    assert done.exit_code == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    offline, online = runs["offline"]["summary"]["lm"]["calls"], runs["online"]["summary"]["lm"]["calls"]
    assert (offline, runs["offline"]["extraction"]["done"]) == (4, 89)
    assert online == 4 + runs["online"]["extraction"]["done"] and runs["online"]["extraction"]["pending"] > 0
    assert len(inside.prompts) == 89 + offline + online


def test_online_extraction_is_paid_for_whatever_is_in_the_cache(inside, tmp_path, monkeypatch):
    opened = inside.open

    def cached(options, spec, **settings):
        lm = opened(options, spec, **settings)
        lm.cache = True
        return lm

    inside.open = cached
    done = inside("ablate", "extraction", *DEMO, "--out", tmp_path / "run", "--json")
    assert done.exit_code == 0, done.stderr
    online = json.loads(done.stdout)["runs"]["online"]
    assert online["summary"]["lm"]["calls"] >= online["extraction"]["done"] > 0


def test_a_file_of_settings(inside, tmp_path):
    grid = tmp_path / "mine.toml"
    grid.write_text(
        'system = "native_rag"\n[product]\nk = [2, 10]\n[[variants]]\nname = "wide: all"\nk = 9\n', encoding="utf-8"
    )
    done = inside("ablate", grid, *DEMO, "--out", tmp_path / "run", "--csv", tmp_path / "x.csv")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("mine of native_rag: demo dev, 2 questions, x\n")
    assert "\nminus k=10 " in done.stdout  # the paper's setting is what the others are compared with
    ks = {path.name: manifest(path)["system"]["k"] for path in (tmp_path / "run").iterdir()}
    assert ks == {"k-2": 2, "k-10": 10, "wide-all": 9}
    assert [line.split(",")[0] for line in (tmp_path / "x.csv").read_text().splitlines()[1:]] == [
        "k=2",
        "k=10",
        "wide: all",
    ]
    assert len(inside.prompts) == 6


def test_settings_for_all_variants(inside, tmp_path):
    sets = ("--set", "k=4", "--set", "cirag.levels=['triples']", "--set", "max_hops=2")
    done = inside("ablate", "ranker", *DEMO, *sets, "--extract", "given", "--out", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    settings = [manifest(tmp_path / "run" / name)["system"] for name in ("ranked", "not-ranked")]
    assert [(one["k"], one["levels"], one["max_hops"], one["rank"]) for one in settings] == [
        (4, ["triples"], 2, True),
        (4, ["triples"], 2, False),
    ]


@pytest.fixture
def student(tmp_path, monkeypatch):
    """A saved program whose LM passes for a trained one."""
    for name in ("base", "adapter"):
        (tmp_path / name).mkdir()
    cirag = build_system("cirag", None)
    predictor = cirag.integration.integrate
    predictor.signature = predictor.signature.with_instructions("Briefly.")
    folder = artifact.save(cirag, tmp_path / "taught", settings={"n": 7}, lm="openai/student")
    spec = f"local/{tmp_path / 'base'}+{tmp_path / 'adapter'}"
    monkeypatch.setattr(artifact.Saved, "lm_spec", lambda *given, **more: (spec, {"max_tokens": 77}))
    return folder, spec, f"local/{tmp_path / 'base'}"


def test_with_and_without_distillation(student, inside, tmp_path):
    folder, spec, base = student
    options = ("--dataset", "demo", "--limit", "2", "--threads", "1", "--program", folder, "--extract", "given")
    done = inside("ablate", "distillation", *options, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    assert inside.opened == [spec, base]
    taught, untaught = (engine.prompts for engine in inside.engines)
    assert len(taught) == len(untaught) == 4
    # The student is asked with the prompts that it was trained on, its base with those of the system.
    assert "Briefly." in taught[0][0]["content"] and "Briefly." not in str(untaught)
    with_, without = (manifest(tmp_path / "run" / name) for name in ("student", "base"))
    assert with_["system"] == without["system"] and with_["system"]["n"] == 7
    assert (with_["lms"]["reader"]["model"], without["lms"]["reader"]["model"]) == (
        f"scripted/{spec}",
        f"scripted/{base}",
    )
    assert with_["lms"]["extraction"] == without["lms"]["extraction"] and "prompts" in without["program"]


def test_without_a_student_there_is_no_distillation_to_leave_out(inside, tmp_path):
    says = "x is no student: give a program with a trained one, or an LM with +ADAPTER"
    assert_wrong(inside("ablate", "distillation", *DEMO, "--out", tmp_path / "run"), says)


def test_dry_run(inside):
    done = inside("ablate", "hops", *DEMO, "--dry-run", "--json")
    cost = json.loads(done.stdout)
    assert inside.opened == []
    calls = {name: parts["lm_calls"] for name, parts in cost["answering_at_most"].items()}
    assert calls == {f"max_hops={hops}": 2 * (hops + 4) for hops in range(1, 7)}
    assert cost["known_at_most"]["lm_calls"] == sum(calls.values()) + 89
    online = inside("ablate", "extraction", *DEMO, "--set", "k=3", "--dry-run", "--json")
    assert json.loads(online.stdout)["extraction_at_most"]["lm_calls"] == 89 + 2 * 4 * 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["magic"],
            "no ablation 'magic': give one of granularity, n, hops, ranker, extraction, distillation, decomposition, or a TOML file",
        ),
        (["nowhere.toml"], "nowhere.toml can't be read: No such file"),
        (["hops", "--system", "native_rag"], "max_hops=1: has no key max_hops; there are k"),
        (["hops", "--system", "magic"], "unknown system 'magic'"),
        (["hops", "--against", "max_hops=9"], "--against must be one of max_hops=1, max_hops=2, "),
        (["hops", "--plot", "x.gif"], "x.gif: a drawing ends in .svg, .png, .pdf"),
        (["hops", "--set", "max_hops=2"], "--set max_hops: hops varies it, so that is never used; leave it out"),
        (["extraction", "--system", "native_rag"], "offline: native_rag works on no triples, so there is nothing to"),
        (["hops", "--aligner", "/nowhere"], "/nowhere holds no aligner (it has no modules.json)"),
        (["hops", "--set", "beams=2"], "system cirag has no setting beams; it has k, n, "),
    ],
)
def test_wrong_use(arguments, says, inside, tmp_path):
    assert_wrong(inside("ablate", *arguments, *DEMO, "--out", tmp_path / "run"), says)
    assert inside.opened == [] and not (tmp_path / "run").exists()


def test_without_matplotlib_nothing_is_run(inside, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = inside("ablate", "hops", *DEMO, "--plot", tmp_path / "x.svg", "--out", tmp_path / "run")
    assert_wrong(done, "--plot needs matplotlib: pip install 'cirag-dspy[plot]'")
    assert inside.opened == []


def test_a_drawing(inside, tmp_path):
    pytest.importorskip("matplotlib")
    inside.reply = good
    grid = tmp_path / "k.toml"
    grid.write_text('system = "native_rag"\nproduct.k = [2, 10]\n', encoding="utf-8")
    done = inside("ablate", grid, *DEMO, "--out", tmp_path / "run", "--plot", tmp_path / "new" / "x.svg")
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "new" / "x.svg").read_text().startswith("<?xml")
