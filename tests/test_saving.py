"""A program that is saved again stays the same; a save that fails or is killed leaves a program; foreign files do not load."""

import dataclasses
import datetime
import enum
import json
import os
import pickle
from decimal import Decimal
from pathlib import Path

import dspy
import numpy as np
import pydantic
import pytest

from cirag_dspy import artifact
from cirag_dspy.artifact import Saved, layout
from cirag_dspy.errors import ModelError, RunError, StateError
from cirag_dspy.modules.cascade import Cascade
from cirag_dspy.modules.extract import Extract
from cirag_dspy.modules.integrate import Integration
from cirag_dspy.modules.plain import plain
from cirag_dspy.modules.reader import Reader
from cirag_dspy.systems import SYSTEMS, build_system, settings_of
from tests.fakes import scripted_lm
from tests.students import tiny_adapter, tiny_base

SECRET = "sk-do-not-keep-me"
OTHERS = {
    "cirag": {
        **{"k": 3, "n": 7, "max_hops": 2, "levels": ("triples", "passages"), "rank": False, "min_hops": 2},
        **{"grounded": True, "core": "text", "extract": "two", "threads": 1},
    },
    "native_rag": {"k": 2},
    "kirag": {"k": 3, "n": 4, "max_hops": 2, "read": 1, "extract": None, "threads": 2},
    "d2f_reag": {"k": 4, "threshold": 0.25, "max_depth": 0, "max_subquestions": 2},
    "ircot": {"k": 2, "keep": 3, "max_hops": 9},
    "flare": {"k": 2, "max_hops": 3, "threshold": 0.75},
    "react": {"k": 2, "max_hops": 3},
    "metarag": {"k": 2, "max_hops": 3, "accept": 0.5},
    "dualrag": {"k": 2, "max_hops": 3, "max_entities": 2},
    "logicrag": {"k": 2, "max_hops": 1},
}


def content(folder):
    """Every file of a folder; of meta.json all but the date."""
    files = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    return {**files, "meta.json": {**json.loads(files["meta.json"]), "saved": ""}}


def lms(program):
    return {name: one.lm and (one.lm.model, one.lm.kwargs) for name, one in program.named_predictors()}


# Saved again


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_setting_comes_back_and_a_second_save_is_the_same(name, tmp_path):
    assert OTHERS[name].keys() == settings_of(name).keys()
    assert all(OTHERS[name][knob] != value for knob, value in settings_of(name).items())
    program = build_system(name, None, **OTHERS[name])
    program.set_lm(dspy.LM("openai/x", max_tokens=77, temperature=0.5, top_p=0.9, cache=False))
    artifact.save(program, tmp_path / "a", meta={"note": "first"})
    again = artifact.load(tmp_path / "a")
    assert again.settings() == OTHERS[name] and type(again) is type(program)
    assert lms(again) == lms(program) and not again.predictors()[0].lm.cache
    artifact.save(again, tmp_path / "b")
    assert content(tmp_path / "b") == content(tmp_path / "a")
    artifact.save(artifact.load(tmp_path / "b"), tmp_path / "b")  # onto itself
    assert content(tmp_path / "b") == content(tmp_path / "a")
    assert Saved.read(tmp_path / "b").sha256 == Saved.read(tmp_path / "a").sha256


@pytest.mark.parametrize("copied", [lambda program: program.deepcopy(), lambda program: program.reset_copy()])
def test_what_was_loaded_with_a_program_survives_copies_and_optimizers(copied, tmp_path):
    cirag, plain_rag = build_system("cirag", None, k=3), build_system("native_rag", None, k=2)
    plain_rag.reader.read.demos = [dspy.Example(question="q", passages="p", answer="a")]
    artifact.save(
        cirag, tmp_path / "a", lm="openai/x", called={"max_tokens": 9}, also=[(plain_rag, {})], meta={"scores": [1]}
    )
    artifact.save(copied(artifact.load(tmp_path / "a")), tmp_path / "b")
    assert content(tmp_path / "b") == content(tmp_path / "a")
    assert artifact.load(tmp_path / "b", system="native_rag").reader.read.demos[0]["answer"] == "a"
    # The other way round, the further system first.
    artifact.save(artifact.load(tmp_path / "b", system="native_rag"), tmp_path / "c")
    assert Saved.read(tmp_path / "c").systems == ("native_rag", "cirag")
    assert artifact.load(tmp_path / "c", system="cirag").settings() == cirag.settings()


def test_a_compiled_program_keeps_settings_and_systems(tmp_path):
    artifact.save(build_system("ircot", None, k=2, keep=3), tmp_path / "a", also=[(build_system("react", None), {})])
    example = dspy.Example(question="q", passages="p", thoughts="none", thought="t", answer="a").with_inputs("question")
    optimizer = dspy.LabeledFewShot(k=1)
    compiled = optimizer.compile(artifact.load(tmp_path / "a"), trainset=[example])
    artifact.save(compiled, tmp_path / "a")
    again = artifact.load(tmp_path / "a")
    assert (again.k, again.keep, Saved.read(tmp_path / "a").systems) == (2, 3, ("ircot", "react"))
    assert again.reader.read.demos[0]["answer"] == "a"


def test_the_lm_is_the_one_the_program_has_now(tmp_path):
    artifact.save(build_system("native_rag", None), tmp_path / "a", lm="openai/x")
    program = artifact.load(tmp_path / "a")
    program.set_lm(dspy.LM("openai/y", temperature=1.0, max_tokens=5))
    artifact.save(program, tmp_path / "a")
    assert lms(artifact.load(tmp_path / "a")) == lms(program)
    artifact.save(program, tmp_path / "a", lm="openai/z")
    assert artifact.load(tmp_path / "a").reader.read.lm.model == "openai/z"
    artifact.save(program, tmp_path / "a", lm={})
    assert artifact.load(tmp_path / "a").reader.read.lm is None


def test_lms_of_single_predictors(tmp_path):
    program = build_system("cirag", None, extract="two")
    x, y, z = (dspy.LM(f"openai/{name}", max_tokens=5, temperature=0.0) for name in "xyz")
    program.set_lm(x)
    program.construct.extract.set_lm(y)
    program.cascade.default.read.lm = z
    program.cascade.triples.lm = None
    artifact.save(program, tmp_path / "a")
    again = artifact.load(tmp_path / "a")
    assert lms(again) == lms(program)
    assert set(Saved.read(tmp_path / "a").meta["lms"]) == {
        *("reader", "extraction", "cirag.cascade.default.read", "cirag.cascade.triples")
    }
    artifact.save(again, tmp_path / "b")
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_an_lm_that_is_an_object_is_left_out_with_a_word(tmp_path, caplog):
    program = build_system("native_rag", None)
    program.set_lm(scripted_lm([])[0])
    artifact.save(program, tmp_path / "a")
    assert "scripted/lm is an object of this process and isn't saved" in caplog.text
    assert artifact.load(tmp_path / "a").reader.read.lm is None


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda p: setattr(p, "k", 9), lambda p: p.construct.k == 9),
        (lambda p: setattr(p.construct, "n", 5), lambda p: p.n == 5),
        (lambda p: setattr(p, "max_hops", 1), lambda p: p.max_hops == 1),
        (lambda p: setattr(p.cascade, "grounded", True), lambda p: p.grounded and p.cascade.grounded),
        (lambda p: setattr(p, "levels", ("passages",)), lambda p: p.cascade.levels == ("passages",)),
        (lambda p: setattr(p, "extract", None), lambda p: p.construct.extract is None),
        (lambda p: setattr(p, "k", np.int64(4)), lambda p: p.k == 4 and type(p.k) is int),
        (lambda p: setattr(p.cascade, "fallback_passages", 2), lambda p: p.cascade.fallback_passages == 2),
        (
            lambda p: p.integration.integrate.update_config(temperature=0.7),
            lambda p: p.integration.integrate.config == {"temperature": 0.7},
        ),
    ],
)
def test_what_was_changed_on_the_program_is_saved(change, check, tmp_path):
    artifact.save(build_system("cirag", None), tmp_path / "a", lm="openai/x")
    program = artifact.load(tmp_path / "a")
    change(program)
    artifact.save(program, tmp_path / "a")
    again = artifact.load(tmp_path / "a")
    assert check(again)
    artifact.save(again, tmp_path / "b")
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_a_setting_that_no_program_can_have_is_refused(tmp_path):
    artifact.save(build_system("ircot", None, k=2), tmp_path / "a")
    program = artifact.load(tmp_path / "a")
    for value, says in ((0, "k must be at least 1"), ("many", "settings of ircot"), ({1}, "settings of ircot")):
        program.k = value
        with pytest.raises(RunError, match=says):
            artifact.save(program, tmp_path / "a")
    assert artifact.load(tmp_path / "a").k == 2


def test_an_adapter_is_kept_when_it_is_saved_onto_itself(tmp_path):
    base = tiny_base(tmp_path / "base")
    adapter = tiny_adapter(base, tmp_path / "trained")
    (adapter / "training.json").write_text("{}")
    program = build_system("cirag", None)
    artifact.save(program, tmp_path / "a", lm=f"local/{base}+{adapter}", called={"max_tokens": 12})
    before = content(tmp_path / "a")
    assert "adapter/adapter_model.safetensors" in before
    artifact.save(artifact.load(tmp_path / "a"), tmp_path / "a")
    assert content(tmp_path / "a") == before
    artifact.save(artifact.load(tmp_path / "a"), tmp_path / "b")
    assert content(tmp_path / "b") == before
    # An adapter without a record takes the place of one with it; a program without one takes it away.
    (adapter / "training.json").unlink()
    artifact.save(program, tmp_path / "b", lm=f"local/{base}+{adapter}")
    assert sorted(os.listdir(tmp_path / "b" / "adapter")) == ["adapter_config.json", "adapter_model.safetensors"]
    artifact.save(program, tmp_path / "b", lm="openai/x")
    assert sorted(os.listdir(tmp_path / "b")) == ["meta.json", "program.json"]
    # What the program answers with and what lies in the folder are two things by now.
    program = artifact.load(tmp_path / "a")
    tiny_adapter(base, tmp_path / "a" / "adapter", seed=3)
    with pytest.raises(ModelError, match="has changed since the LM was loaded"):
        artifact.save(program, tmp_path / "c")


def test_no_key_reaches_a_file(tmp_path):
    lm = dspy.LM(
        "openai/x",
        api_key=SECRET,
        api_base=f"http://me:{SECRET}@127.0.0.1:9/v1?key={SECRET}",
        extra_headers={"Authorization": SECRET},
        azure_ad_token=SECRET,
        extra_body={"api_key": SECRET, "chat_template_kwargs": {"enable_thinking": False}},
        max_tokens=9,
    )
    program = build_system("native_rag", None)
    program.set_lm(lm)
    program.reader.read.config = {"api_key": SECRET, "temperature": 1.0}
    artifact.save(program, tmp_path / "a")
    program.save(tmp_path / "a" / "plain.json")
    assert not any(SECRET.encode() in file.read_bytes() for file in (tmp_path / "a").iterdir())
    again = artifact.load(tmp_path / "a").reader.read
    assert again.config == {"temperature": 1.0} and again.lm.kwargs["api_base"] == "http://127.0.0.1:9/v1"
    assert again.lm.kwargs["extra_body"] == {"chat_template_kwargs": {"enable_thinking": False}}
    assert again.lm.kwargs["max_tokens"] == 9 and again.lm.kwargs["temperature"] is None


# Failures and kills


def steps(program, folder, monkeypatch, **options):
    """Save with a kill before each change of the file system in turn; yields after each."""
    counted = {name: getattr(Path, name) for name in ("replace", "rename", "unlink", "write_bytes", "mkdir", "rmdir")}
    for kill_at in range(100):
        done = 0

        def counting(name, kill_at=kill_at):
            def change(self, *args, **kwargs):
                nonlocal done
                if done >= kill_at:
                    raise KeyboardInterrupt
                done += 1
                return counted[name](self, *args, **kwargs)

            return change

        with monkeypatch.context() as patch:
            for name in counted:
                patch.setattr(Path, name, counting(name))
            patch.setattr(layout.shutil, "rmtree", lambda *args, **kwargs: None)  # a kill cleans nothing up
            try:
                artifact.save(program, folder, **options)
                return
            except KeyboardInterrupt:
                pass
        yield kill_at
    pytest.fail("it never ends")


def test_a_kill_at_any_step_leaves_the_old_or_the_new_program(tmp_path, monkeypatch):
    base = tiny_base(tmp_path / "base")
    adapters = [tiny_adapter(base, tmp_path / f"adapter{seed}", seed=seed) for seed in (0, 1)]
    (adapters[0] / "training.json").write_text("{}")
    programs = [build_system("cirag", None, k=1 + number) for number in (0, 1)]
    for number, program in enumerate(programs):
        program.cascade.triples.demos = [dspy.Example(question=f"q{number}", evidence="e", thought="t", answer="a")]
    also = [[(build_system("native_rag", None), {})], [(build_system("ircot", None), {})]]
    options = [{"lm": f"local/{base}+{adapters[n]}", "also": also[n]} for n in (0, 1)]
    expected = []
    for number in (0, 1):
        artifact.save(programs[number], tmp_path / f"whole{number}", **options[number])
        expected.append(content(tmp_path / f"whole{number}"))
    seen = []
    folder = tmp_path / "p"
    artifact.save(programs[0], folder, **options[0])
    (folder / "README.md").write_text("mine")
    for _ in steps(programs[1], folder, monkeypatch, **options[1]):
        artifact.load(folder, lm="openai/x")
        for left in folder.glob(".saving-*"):
            layout.shutil.rmtree(left)
        found = content(folder)
        assert found.pop("README.md") == b"mine"
        assert found in expected
        seen.append(expected.index(found))
        artifact.save(programs[0], folder, **options[0])
    assert seen == sorted(seen) and set(seen) == {0, 1}
    assert sorted(os.listdir(folder)) == ["README.md", "adapter", "ircot.json", "meta.json", "program.json"]


def test_a_folder_with_an_unfinished_save_that_may_not_be_written(tmp_path, monkeypatch):
    artifact.save(build_system("native_rag", None), tmp_path / "p")
    (tmp_path / "p" / "meta.json").rename(tmp_path / "meta.json")
    (tmp_path / "p" / ".saved").mkdir()
    (tmp_path / "meta.json").rename(tmp_path / "p" / ".saved" / "meta.json")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    with pytest.raises(RunError, match="its last save not be finished: Permission denied"):
        artifact.load(tmp_path / "p")
    monkeypatch.undo()
    assert (
        artifact.load(tmp_path / "p").settings() == settings_of("native_rag")
        and not (tmp_path / "p" / ".saved").exists()
    )


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Note:
    text: str
    at: Path


class Model(pydantic.BaseModel):
    name: str
    tags: set[str]


ODD = [
    ({"b"}, '["b"]'),
    (frozenset({1}), "[1]"),
    (("a", "b"), '["a", "b"]'),
    (Note("x", Path("a/b")), {"text": "x", "at": "a/b"}),
    (Model(name="n", tags={"t"}), {"name": "n", "tags": ["t"]}),
    (np.float32(0.5), 0.5),
    (np.int64(3), 3),
    (np.array([1, 2]), "[1 2]"),
    (Path("a/b"), "a/b"),
    (datetime.date(2026, 12, 1), "2026-12-01"),
    (dspy.Example(a=1), None),
    (dspy.Prediction(a=1), None),
    (dspy.History(messages=[{"q": "1"}]), {"messages": [{"q": "1"}]}),
    (b"abc", "abc"),
    (b"\xff", r"b'\xff'"),
    (float("nan"), "nan"),
    (float("inf"), "inf"),
    (10**30, str(10**30)),
    (Decimal("1.50"), "1.50"),
    (Colour.RED, "red"),
    ({1: {"x"}}, {"1": ["x"]}),
    (["a", ("b", "c")], None),
    (None, None),
]


@pytest.mark.parametrize("value", [value for value, _ in ODD], ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("name", ["native_rag", "logicrag"])
def test_any_demonstration_is_saved_and_shown_as_it_was(name, value, tmp_path):
    program = build_system(name, None)
    for predictor in program.predictors():
        names = list(predictor.signature.fields)
        predictor.demos = [dspy.Example(augmented=True, **dict.fromkeys(names, "x") | {names[0]: value})]
    before = artifact.prompts(program)
    artifact.save(program, tmp_path / "p")
    program.save(tmp_path / "plain.json")  # as DSPy users do
    again = build_system(name, None)
    again.load(tmp_path / "plain.json")
    copied = build_system(name, None)
    copied.load_state(program.dump_state())
    loaded = artifact.load(tmp_path / "p")
    for one in (again, loaded, copied):
        assert artifact.prompts(one) == before
    json.dumps(program.dump_state(), allow_nan=False)


@pytest.mark.parametrize(("value", "saved"), ODD, ids=lambda value: type(value).__name__)
def test_what_a_demonstration_is_saved_as(value, saved):
    module = Reader()
    module.read.demos = [{"question": value}]
    found = module.dump_state()["read"]["demos"][0]["question"]
    assert saved is None or found == saved


def test_plain_values():
    assert plain({"a": (1, {3, 2}), 5: b"x"}) == {"a": [1, [2, 3]], "5": "x"}
    assert plain([np.nan, Path("x"), datetime.timedelta(seconds=3)]) == [None, "x", 3.0]
    ring: list = []
    ring.append(ring)
    for value in (ring, object(), lambda: 1, (x for x in ()), "\ud800", {"1": 1, 1: 2}, {"k": {object()}}):
        with pytest.raises(TypeError):
            plain(value)


def generator():
    return (x for x in ())


@pytest.mark.parametrize("value", [object(), generator(), lambda: 1, "\ud800", [[object()]], open], ids=repr)
@pytest.mark.parametrize("name", SYSTEMS)
def test_what_cannot_be_saved_is_named_and_the_old_program_stays(name, value, tmp_path):
    artifact.save(build_system(name, None), tmp_path / "p")
    build_system(name, None).save(tmp_path / "plain.json")
    before = content(tmp_path / "p"), (tmp_path / "plain.json").read_bytes()
    program = build_system(name, None)
    where, predictor = program.named_predictors()[-1]
    field = next(iter(predictor.signature.fields))
    predictor.demos = [{field: "fine"}, {field: value}]
    for save in (lambda: artifact.save(program, tmp_path / "p"), lambda: program.save(tmp_path / "plain.json")):
        with pytest.raises(StateError) as error:
            save()
        assert str(error.value).startswith(f"{where}, demonstration 2, field {field} can't be saved as JSON: ")
        assert "\n" not in str(error.value)
    assert (content(tmp_path / "p"), (tmp_path / "plain.json").read_bytes()) == before
    assert sorted(os.listdir(tmp_path)) == ["p", "plain.json"]


def test_a_demonstration_that_is_none(tmp_path):
    program = build_system("native_rag", None)
    program.reader.read.demos = [3]
    with pytest.raises(StateError, match=r"reader.read, demonstration 1 is a int, not a dspy.Example"):
        program.save(tmp_path / "x.json")
    with pytest.raises(RunError, match="meta can't be saved as JSON"):
        artifact.save(build_system("native_rag", None), tmp_path / "p", meta={"x": object()})
    with pytest.raises(RunError, match="meta can't hold lms"):
        artifact.save(build_system("native_rag", None), tmp_path / "p", meta={"lms": {}})
    with pytest.raises(RunError, match="can't be written"):
        build_system("native_rag", None).save(tmp_path / "no" / "x.json")


# Foreign files

MODULES = {
    **{name: lambda name=name: build_system(name, None) for name in SYSTEMS},
    **{"Extract": Extract, "Extract two": lambda: Extract("two"), "Integration": Integration, "Reader": Reader},
    "Cascade": lambda: Cascade(None),
}


def foreign(tmp_path, module):
    """Files that are not the state of a module."""
    whole = module.dump_state()
    name = next(iter(whole))
    changed = {
        "empty object": {},
        "a list": [1],
        "null": None,
        "a number": 3,
        "a text": "x",
        "other predictors": {"nothing": whole[name]},
        "one too many": {**whole, "nothing": whole[name]},
        "one predictor": {**whole, name: 3},
        "no signature": {**whole, name: {**whole[name], "signature": None}},
        "no fields": {**whole, name: {**whole[name], "signature": {"instructions": "x", "fields": []}}},
        "other fields": {**whole, name: dspy.Predict("this, that, those -> other, others").dump_state()},
        "odd demonstrations": {**whole, name: {**whole[name], "demos": [3]}},
        "odd instructions": {
            **whole,
            name: {**whole[name], "signature": {**whole[name]["signature"], "instructions": 3}},
        },
        "an odd LM": {**whole, name: {**whole[name], "lm": 3}},
        "another LM class": {**whole, name: {**whole[name], "lm": {"_dspy_lm_class": "os.system", "model": "x"}}},
        "something more": {**whole, name: {**whole[name], "forward": 3}},
        "meta.json": {"format": 1, "system": "cirag", "programs": {}, "lms": {}},
    }
    for label, value in changed.items():
        (tmp_path / f"{label}.json").write_text(json.dumps(value))
        yield label, tmp_path / f"{label}.json"
    text = json.dumps(whole)
    for label, data in (
        ("truncated", text[: len(text) // 2].encode()),
        ("nothing", b""),
        ("bytes", b"\xff\xfe\x00\xd8"),
        ("deep", b"[" * 100_000),
        ("pickled", pickle.dumps(whole)),
    ):
        (tmp_path / f"{label}.json").write_bytes(data)
        yield label, tmp_path / f"{label}.json"
    (tmp_path / "state.pkl").write_bytes(pickle.dumps(whole))
    yield "pickle", tmp_path / "state.pkl"
    (tmp_path / "folder.json").mkdir()
    yield "folder", tmp_path / "folder.json"
    yield "folder without a suffix", tmp_path
    yield "missing", tmp_path / "missing.json"


@pytest.mark.parametrize("name", MODULES)
def test_foreign_files_are_refused_in_one_line_and_change_nothing(name, tmp_path):
    module = MODULES[name]()
    for predictor in module.predictors():
        predictor.demos = [{next(iter(predictor.signature.fields)): "mine"}]
    before = module.dump_state()
    others = [(label, one().dump_state()) for label, one in MODULES.items() if label != name]
    files = list(foreign(tmp_path, module))
    for label, state in others:
        (tmp_path / f"of {label}.json").write_text(json.dumps(state))
        files.append((label, tmp_path / f"of {label}.json"))
    for label, file in files:
        with pytest.raises(StateError) as error:
            module.load(file)
        assert str(error.value).startswith(f"{file} "), label
        assert "\n" not in str(error.value) and len(str(error.value)) < 900
        assert module.dump_state() == before, label
    for state in ({}, None, [], {"x": 1}):
        with pytest.raises(ValueError, match="the state "):  # what DSPy raises is one
            module.load_state(state)


def test_what_was_expected_and_found_is_said(tmp_path):
    build_system("ircot", None).save(tmp_path / "ircot.json")
    with pytest.raises(StateError) as error:
        build_system("native_rag", None).load(tmp_path / "ircot.json")
    assert str(error.value) == (
        f"{tmp_path / 'ircot.json'} is of another program: expected predictors reader.read, "
        "found reader.read, reason.reason"
    )
    (tmp_path / "x.json").write_text(json.dumps({"read": dspy.Predict("a, b -> c").dump_state()}))
    with pytest.raises(
        StateError, match=r"read has other fields: expected Question:, Passages:, Answer:, found A:, B:, C:"
    ):
        Reader().load(tmp_path / "x.json")


def test_a_state_that_is_ours_loads_as_dspy_users_know_it(tmp_path):
    program = build_system("cirag", None, core="text")
    program.cascade._compiled = True  # DSPy would leave it out of the file
    program.cascade.triples.demos = [{"question": "q", "evidence": "e", "thought": "t", "answer": "a"}]
    program.set_lm(dspy.LM("openai/x", api_base="http://127.0.0.1:1/v1"))
    program.save(tmp_path / "x.json")
    again = build_system("cirag", None, core="text")
    again.load(tmp_path / "x.json", allow_unsafe_lm_state=True)
    assert artifact.prompts(again) == artifact.prompts(program)
    assert again.core == "text"  # facts are still copied, and not numbered
    assert again.integration.integrate.lm.kwargs["api_base"] == "http://127.0.0.1:1/v1"
    program.save(tmp_path / "x.pkl")
    again.load(tmp_path / "x.pkl", allow_pickle=True)
    plain_state = dspy.Module.dump_state(build_system("cirag", None, core="text"))
    again.load_state(plain_state)
    assert not again.cascade.triples.demos
