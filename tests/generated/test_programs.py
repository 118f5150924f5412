"""Programs with random demonstrations are saved and loaded as they are; random files never load as a program."""

import datetime
import json
import math
from pathlib import PurePosixPath

import dspy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cirag_dspy import artifact
from cirag_dspy.errors import RunError, StateError
from cirag_dspy.evaluate import manifest
from cirag_dspy.modules import state as states
from cirag_dspy.modules.plain import plain
from cirag_dspy.systems import SYSTEMS, build_system

TEXT = st.one_of(
    st.text(max_size=20),
    st.text(st.characters(categories=["Cs", "Lo", "Mn", "Zl", "Cc"]), max_size=6),
    st.sampled_from(["", "\n", "answer: x", "[[ ## answer ## ]]", "none", "true", "\x00", "𝔘", "…"]),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    TEXT,
    st.binary(max_size=6),
    st.dates(),
    st.datetimes(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.uuids(),
    st.floats(width=32).map(np.float32),
    st.integers(-9, 9).map(np.int8),
    st.builds(PurePosixPath, st.sampled_from(["a", "a/b", "é"])),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(TEXT, st.integers()), inner, max_size=3),
        st.sets(st.one_of(st.integers(), TEXT), max_size=3),
        st.builds(lambda value: dspy.Example(a=value), inner),
        st.builds(lambda value: dspy.Prediction(a=value), inner),
        st.builds(lambda value: np.array(value), st.lists(st.integers(0, 9), max_size=3)),
    ),
    max_leaves=6,
)
WHOLE: dict[str, str] = {}  # the files of a program
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=10), inner, max_size=3)),
    max_leaves=8,
)


@st.composite
def programs(draw):
    name = draw(st.sampled_from(sorted(SYSTEMS)))
    program = build_system(name, None)
    for predictor in program.predictors():
        if draw(st.booleans()):
            fields = draw(st.lists(st.sampled_from(list(predictor.signature.fields)), unique=True))
            kind = draw(st.sampled_from([dict, dspy.Example]))
            predictor.demos = [kind(**{field: draw(VALUES) for field in [*fields, "more"]})]
        if draw(st.booleans()):
            predictor.signature = predictor.signature.with_instructions(draw(st.text(max_size=20)))
    return name, program


def rendered(program):
    try:
        return artifact.prompts(program)
    except Exception:  # DSPy can't show every value, nor send half a surrogate pair
        return None


@pytest.fixture
def no_versions(monkeypatch):
    """Packages' versions take most of the time of a save."""
    monkeypatch.setattr(manifest, "versions", dict)
    monkeypatch.setattr(states, "get_dependency_versions", dict)


@settings(max_examples=max(15, settings().max_examples // 3))
@given(programs())
def test_a_saved_program_sends_the_same_prompts(no_versions, tmp_path_factory, made):
    name, program = made
    folder = tmp_path_factory.getbasetemp() / "generated"
    before = rendered(program)
    try:
        artifact.save(program, folder)
    except StateError as error:
        assert "demonstration 1, field" in str(error) and "\n" not in str(error)
        return
    except Exception:
        assert before is None
        return
    again = artifact.load(folder)
    assert before is None or artifact.prompts(again) == before
    state = again.dump_state()
    artifact.save(again, folder)
    assert artifact.load(folder).dump_state() == state == program.dump_state()
    program.save(folder / "plain.json")
    plainly = build_system(name, None)
    plainly.load(folder / "plain.json")
    assert plainly.dump_state() == state


@given(VALUES)
def test_a_plain_value_is_json_and_stays_as_it_is(value):
    try:
        made = plain(value)
    except TypeError as error:
        assert "\n" not in str(error)
        return
    text = json.dumps(made, allow_nan=False)
    assert json.loads(text) == made == plain(made)


def edits(draw, state):
    """A state with one place of it replaced by random JSON, or left out."""
    at, keys = state, []
    while isinstance(at, dict | list) and at and draw(st.integers(0, 4)):
        keys.append(draw(st.sampled_from(sorted(at))) if isinstance(at, dict) else draw(st.integers(0, len(at) - 1)))
        at = at[keys[-1]]
    if not keys:
        return draw(JSON)
    copied = json.loads(json.dumps(state))
    place = copied
    for key in keys[:-1]:
        place = place[key]
    if draw(st.booleans()):
        place[keys[-1]] = draw(JSON)
    else:
        del place[keys[-1]]
    return copied


@given(st.data())
def test_a_random_file_is_refused_in_one_line_or_is_the_state_of_this_program(tmp_path_factory, data):
    program = build_system(data.draw(st.sampled_from(sorted(SYSTEMS))), None)
    for predictor in program.predictors():
        predictor.demos = [dict.fromkeys(predictor.signature.fields, "mine")]
    before = program.dump_state()
    file = tmp_path_factory.getbasetemp() / "random.json"
    found = edits(data.draw, before)
    text = json.dumps(found)
    file.write_text(text[: data.draw(st.integers(0, len(text)))] if data.draw(st.integers(0, 3)) == 0 else text)
    try:
        program.load(file)
    except StateError as error:
        assert str(error).startswith(f"{file} ") and "\n" not in str(error)
        assert program.dump_state() == before
    else:  # a demonstration, an instruction or a description of a field may be anything
        assert artifact.prompts(program) and program.dump_state().keys() == before.keys()
        again = program.dump_state()
        for name, entry in found.items():
            if name != "metadata":
                assert again[name]["signature"] == entry["signature"]
                assert math.isclose(len(again[name]["demos"]), len(entry["demos"]))


@pytest.mark.parametrize("file", ["meta.json", "program.json"])
@given(st.data())
def test_a_random_folder_is_refused_in_one_line_or_loads(tmp_path_factory, file, data):
    folder = tmp_path_factory.getbasetemp() / "damaged"
    if not folder.exists():
        artifact.save(build_system("native_rag", None), folder, lm="openai/x")
        WHOLE.update({name: (folder / name).read_text() for name in ("meta.json", "program.json")})
    for name, text in WHOLE.items():
        (folder / name).write_text(text)
    found = edits(data.draw, json.loads(WHOLE[file]))
    (folder / file).write_text(json.dumps(found))
    try:
        artifact.load(folder)
    except RunError as error:
        assert ("\n" not in str(error) and str(folder) in str(error)) or "system native_rag" in str(error)


def test_dates_are_text():
    assert plain([datetime.date(2026, 1, 2)]) == ["2026-01-02"]
