"""Saved programs: what is saved comes back, from anywhere, and nothing else gets in."""

import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import dspy
import pytest

import cirag_dspy
from cirag_dspy import artifact
from cirag_dspy.artifact import Saved, saving
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import Document
from cirag_dspy.errors import CorpusIndexError, ModelError, RunError
from cirag_dspy.modules.extract import Extract
from cirag_dspy.systems.cirag import CIRAGModule
from cirag_dspy.systems.native_rag import NativeRAG
from tests.fakes import WordEncoder, scripted_lm
from tests.students import tiny_adapter, tiny_base
from tests.systems.world import PASSAGES, fill

ROOT = Path(__file__).parents[1]
SETTINGS = {"k": 2, "n": 4, "max_hops": 2, "levels": ("triples", "passages")}
QUESTION = "Who directed Harbor Song?"
SECRET = "sk-do-not-keep-me"


@pytest.fixture
def index(tmp_path):
    with CorpusIndex.create(tmp_path / "index", WordEncoder()) as built:
        built.add(Document(passage.id, (passage,)) for passage in PASSAGES.values())
        fill(built)
        yield built


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tiny_base(tmp_path_factory.mktemp("base"))


@pytest.fixture
def student(base, tmp_path):
    return f"local/{base}+{tiny_adapter(base, tmp_path / 'trained')}"


def compiled(index=None):
    """A program as optimizers leave them: instructions, demonstrations, and a part that is taken for compiled."""
    program = CIRAGModule(index, **SETTINGS)
    integrate = program.integration.integrate
    integrate.signature = integrate.signature.with_instructions("Keep what leads to the answer.")
    integrate.demos = [
        dspy.Example(
            history=dspy.History(messages=[]), question="q1", query="q2", facts="1. a | b | c", thought="t", core="1"
        ).with_inputs("question", "query", "facts"),
        dspy.Example(question="Łódź?", query="“x”", facts="1. ü | b | c", thought="", core="none", next_query="none"),
    ]
    program.cascade.triples.demos = [{"question": "q", "evidence": "a | b | c", "thought": "t", "answer": "c"}]
    program.cascade._compiled = True
    program._compiled = True
    return program


def lm_of(program):
    return program.integration.integrate.lm


def test_prompts_demonstrations_and_settings_come_back(index, tmp_path):
    program = compiled(index)
    program.set_lm(scripted_lm([])[0])
    before = artifact.prompts(program)
    assert '"Keep what leads' in before["integration.integrate"] and "a | b | c" in before["cascade.triples"]
    artifact.save(program, tmp_path / "p", settings=SETTINGS)
    assert lm_of(program).model == "scripted/lm" and program.cascade._compiled  # the program stays as it was

    again = artifact.load(tmp_path / "p", index)
    assert artifact.prompts(again) == before
    assert {name: len(one.demos) for name, one in again.named_predictors() if one.demos} == {
        "integration.integrate": 2,
        "cascade.triples": 1,
    }
    assert again.integration.integrate.demos[1]["question"] == "Łódź?"
    assert (again.construct.k, again.construct.n, again.max_hops) == (2, 4, 2)
    assert again.cascade.levels == ("triples", "passages")
    assert lm_of(again) is None


def test_both_send_the_same_to_an_lm(index, tmp_path):
    replies = ["thought: t\ncore: 1\nnext_query: none", "thought: t\nanswer: Ada Brook"]
    program = compiled(index)
    artifact.save(program, tmp_path / "p", settings=SETTINGS)
    sent = []
    for one in (program, artifact.load(tmp_path / "p", index)):
        lm, engine = scripted_lm(replies)
        with dspy.context(lm=lm):
            assert one(question=QUESTION).answer == "Ada Brook"
        sent.append(engine.prompts)
    assert sent[0] == sent[1] and len(sent[0]) == 2


def test_a_file_that_would_not_give_the_program_back_is_not_kept(tmp_path, monkeypatch):
    dumped = saving.dump

    def forgetful(program, **options):
        return {name: {**entry, "demos": []} for name, entry in dumped(program, **options).items()}

    monkeypatch.setattr(saving, "dump", forgetful)
    with pytest.raises(
        RunError, match=r"would not give the same prompts back \(cascade.triples, integration.integrate"
    ):
        artifact.save(compiled(), tmp_path / "p", settings=SETTINGS)
    assert os.listdir(tmp_path / "p") == []


def test_a_plain_dspy_user_loads_the_state(index, tmp_path):
    artifact.save(compiled(), tmp_path / "p", settings=SETTINGS)
    program = CIRAGModule(index)
    program.load(tmp_path / "p" / "program.json")
    assert artifact.prompts(program) == artifact.prompts(compiled())


def test_only_our_systems_are_saved(tmp_path):
    with pytest.raises(RunError, match="Predict is none of cirag, native_rag"):
        artifact.save(dspy.Predict("question -> answer"), tmp_path / "p")


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match="choose another folder"):
        artifact.save(compiled(), tmp_path / "file" / "p", settings=SETTINGS)


def test_without_an_index_the_program_says_so(tmp_path):
    artifact.save(NativeRAG(None, k=3), tmp_path / "p", settings={"k": 3})
    with pytest.raises(CorpusIndexError, match="loaded without an index"):
        artifact.load(tmp_path / "p")(question="q")
    with pytest.raises(CorpusIndexError, match="nowhere"):
        artifact.load(tmp_path / "p", index=tmp_path / "nowhere")


def test_further_systems_share_the_lm(index, tmp_path):
    plain = NativeRAG(index, k=3)
    plain.reader.read.signature = plain.reader.read.signature.with_instructions("Read.")
    artifact.save(compiled(), tmp_path / "p", settings=SETTINGS, lm="openai/x", also=[(plain, {"k": 3})])
    saved = Saved.read(tmp_path / "p")
    assert (saved.name, saved.system, saved.systems) == ("p", "cirag", ("cirag", "native_rag"))
    assert saved.settings("native_rag") == {"k": 3}
    again = artifact.load(tmp_path / "p", index, system="native_rag")
    assert again.reader.read.signature.instructions == "Read."
    assert again.k == 3 and again.reader.read.lm.model == "openai/x"
    assert saved.program(index, "native_rag", k=1).k == 1
    with pytest.raises(
        RunError, match=r"holds cirag, native_rag, not kirag: compile it with kirag in \[options\] also"
    ):
        saved.program(index, "kirag")


def test_settings_may_leave_the_extraction_out(index, tmp_path):
    artifact.save(compiled(), tmp_path / "p", settings=SETTINGS)
    assert Saved.read(tmp_path / "p").program(index, extract=None).construct.extract is None


def test_two_roles_two_lms(base, tmp_path):
    extraction = f"local/{base}+{tiny_adapter(base, tmp_path / 'other', seed=1)}"
    artifact.save(compiled(), tmp_path / "p", settings=SETTINGS, lm={"reader": "openai/x", "extraction": extraction})
    program = artifact.load(tmp_path / "p")
    assert lm_of(program).model == "openai/x"
    assert program.construct.extract.triples.lm.model.startswith(
        f"local/{base}+{tmp_path / 'p' / 'adapter-extraction'}@"
    )


# Addresses and keys (D4)


def test_addresses_are_kept_and_keys_are_not(tmp_path):
    lm = dspy.LM("openai/x", api_base="http://127.0.0.1:9/v1", api_key=SECRET, max_tokens=77, temperature=0.0)
    program = compiled()
    program.set_lm(lm)
    artifact.save(program, tmp_path / "p", settings=SETTINGS, lm=lm)
    assert not any(SECRET in file.read_text() for file in (tmp_path / "p").iterdir())
    again = lm_of(artifact.load(tmp_path / "p"))
    assert (again.model, again.kwargs["api_base"], again.kwargs["max_tokens"]) == (
        "openai/x",
        lm.kwargs["api_base"],
        77,
    )
    assert lm_of(artifact.load(tmp_path / "p", lm="openai/y")).model == "openai/y"


def test_an_address_elsewhere_is_confirmed_by_who_loads(tmp_path):
    lm = dspy.LM("openai/x", api_base=f"https://me:{SECRET}@far.example/v1?key={SECRET}", api_key=SECRET)
    artifact.save(compiled(), tmp_path / "p", settings=SETTINGS, lm=lm)
    assert SECRET not in (tmp_path / "p" / "meta.json").read_text()
    with pytest.raises(RunError, match=r"asks an LM at https://far.example/v1: give that as the API base if you trust"):
        artifact.load(tmp_path / "p")
    program = artifact.load(tmp_path / "p", api_base="https://far.example/v1")
    assert lm_of(program).kwargs["api_base"] == "https://far.example/v1"


def test_an_lm_in_a_state_file_is_passed_over(tmp_path):
    artifact.save(compiled(), tmp_path / "p", settings=SETTINGS)
    file = tmp_path / "p" / "program.json"
    state = json.loads(file.read_text())
    state["integration.integrate"]["lm"] = {"model": "openai/evil", "api_base": "https://evil.example"}
    file.write_text(json.dumps(state))
    assert lm_of(artifact.load(tmp_path / "p")) is None


# What is no program (D6)


@pytest.mark.parametrize("name", ["x.pkl", "p/program.pkl"])
def test_pickles_are_not_read(name, tmp_path):
    with pytest.raises(RunError, match="a pickle can run anything"):
        artifact.load(tmp_path / name)


def test_no_folder_and_no_program(tmp_path):
    with pytest.raises(RunError, match=r"nowhere holds no saved program: it has no meta.json"):
        artifact.load(tmp_path / "nowhere")
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(RunError, match="holds no saved program"):
        artifact.load(tmp_path / "state.json")


def damaged(tmp_path, file, change):
    artifact.save(compiled(), tmp_path / "p", settings=SETTINGS, lm="openai/x")
    path = tmp_path / "p" / file
    text = path.read_text()
    path.write_text(change(text) if isinstance(change(text), str) else json.dumps(change(text)))
    return tmp_path / "p"


def edited(*keys, value):
    def change(text):
        whole = json.loads(text)
        at = whole
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value
        return whole

    return change


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        ("meta.json", lambda text: text[:50], "it is not JSON"),
        ("meta.json", lambda text: [1], "holds no object"),
        ("meta.json", edited("format", value=9), "is of format 9, not 1"),
        ("meta.json", edited("system", value="nope"), "is damaged"),
        ("meta.json", edited("programs", value=[1]), "is damaged"),
        ("meta.json", edited("programs", "cirag", "file", value="../../etc/passwd"), "is damaged"),
        ("meta.json", edited("programs", "cirag", "settings", "k", value="many"), "is damaged: settings of cirag"),
        ("meta.json", edited("programs", "cirag", "settings", "speed", value=3), "no setting speed"),
        ("meta.json", edited("lms", value={"reader": {"model": 3}}), "is damaged"),
        ("meta.json", edited("lms", "reader", "adapter", value="../elsewhere"), "is damaged"),
        ("program.json", lambda text: text[:50], "it is not JSON"),
        ("program.json", lambda text: "[]", "holds no object"),
        ("program.json", lambda text: {}, "is of another program"),
        ("program.json", edited("other", value={}), "is of another program"),
        ("program.json", edited("integration.integrate", value=3), "is damaged"),
        ("program.json", edited("integration.integrate", value={}), "is damaged: integration.integrate has no demos"),
        ("program.json", edited("integration.integrate", "demos", value=[3]), "is damaged"),
        ("program.json", edited("integration.integrate", "signature", "fields", value=[]), "has other fields"),
    ],
)
def test_damage_is_one_line(file, change, says, tmp_path):
    folder = damaged(tmp_path, file, change)
    with pytest.raises(RunError) as error:
        artifact.load(folder)
    assert says in str(error.value) and "\n" not in str(error.value)


# The student (D1, D27, T5)


def test_the_folder_can_be_moved_and_loaded_from_anywhere(index, student, tmp_path):
    artifact.save(compiled(), tmp_path / "a" / "p", settings=SETTINGS, lm=student, called={"max_tokens": 12})
    shutil.rmtree(tmp_path / "trained")
    elsewhere = tmp_path / "b"
    elsewhere.mkdir()
    code = (
        "import cirag_dspy, json, sys\n"
        "from tests.fakes import WordEncoder\n"
        "index = cirag_dspy.CorpusIndex.open(sys.argv[2], WordEncoder())\n"
        "program = cirag_dspy.load(sys.argv[1], index=index)\n"
        "lm = program.integration.integrate.lm\n"
        f"print(json.dumps([lm({QUESTION!r}), lm.model]))"
    )

    def ask(folder):
        command = [sys.executable, "-c", code, str(folder), str(tmp_path / "index")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "DSPY_CACHEDIR": str(tmp_path / "cache")}
        done = subprocess.run(command, capture_output=True, text=True, cwd=elsewhere, env=environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    expected = lm_of(artifact.load(tmp_path / "a" / "p", index))(QUESTION)  # no answer, but the same words
    answer, name = ask(tmp_path / "a" / "p")
    assert answer == expected != [""]
    shutil.move(tmp_path / "a" / "p", elsewhere / "q")
    moved, moved_name = ask("q")
    assert moved == expected and moved_name.rsplit("@")[1] == name.rsplit("@")[1]


def test_what_the_student_was_is_kept(student, base, tmp_path):
    artifact.save(compiled(), tmp_path / "p", settings=SETTINGS, lm=student, called={"max_tokens": 12})
    kept = json.loads((tmp_path / "p" / "meta.json").read_text())["lms"]["reader"]
    assert kept["model"] == f"local/{base}+adapter" and kept["max_tokens"] == 12
    lm = lm_of(cirag_dspy.load(tmp_path / "p"))
    assert lm.kwargs["max_tokens"] == 12 and lm.engine.supported_params
    # Saved again in its own place, from the LM object, it stays what it was.
    artifact.save(compiled(), tmp_path / "p", settings=SETTINGS, lm=lm)
    again = json.loads((tmp_path / "p" / "meta.json").read_text())["lms"]["reader"]
    assert again["adapter_sha256"] == kept["adapter_sha256"] and again["model"] == kept["model"]


def test_a_student_trained_again_under_the_same_name_gives_no_stale_answer(index, student, base, tmp_path):
    def answer():
        lm = lm_of(artifact.load(tmp_path / "p", index))
        return lm.model, lm(QUESTION)  # no answer, but words that tell one student from another

    artifact.save(compiled(), tmp_path / "p", settings=SETTINGS, lm=student, called={"max_tokens": 12})
    name, first = answer()
    again = tiny_adapter(base, tmp_path / "trained", seed=5)
    artifact.save(compiled(), tmp_path / "p", settings=SETTINGS, lm=student, called={"max_tokens": 12})
    other, second = answer()
    assert name != other and first != second
    assert second == lm_of(artifact.load(tmp_path / "p", index, lm=f"local/{base}+{again}", max_tokens=12))(QUESTION)


def test_another_adapter_than_the_saved_one_is_refused(student, base, tmp_path):
    artifact.save(compiled(), tmp_path / "p", settings=SETTINGS, lm=student)
    adapter = tmp_path / "p" / "adapter"
    tiny_adapter(base, adapter, seed=3)
    with pytest.raises(ModelError, match="is not the adapter that this program was saved with: compile again, or name"):
        artifact.load(tmp_path / "p")
    assert lm_of(artifact.load(tmp_path / "p", lm=f"local/{base}+{adapter}"))
    shutil.rmtree(adapter)
    with pytest.raises(ModelError, match="adapter is missing: copy it from where p was made"):
        artifact.load(tmp_path / "p")


def test_the_base_must_be_there_and_be_the_same(student, base, tmp_path):
    mine = tmp_path / "mine"
    shutil.copytree(base, mine)
    artifact.save(compiled(), tmp_path / "p", settings=SETTINGS, lm=student.replace(str(base), str(mine)))
    weights = bytearray((mine / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (mine / "model.safetensors").write_bytes(weights)
    with pytest.raises(ModelError, match=r"is not the model that .*adapter was trained on"):
        artifact.load(tmp_path / "p")
    shutil.rmtree(mine)
    with pytest.raises(ModelError, match=r"where the base is elsewhere, name the LM local/FOLDER\+.*adapter"):
        artifact.load(tmp_path / "p")


def test_another_copy_of_the_embedded_model_is_used_with_a_warning(student, base, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("cirag_dspy.lms.embedded_model", lambda: base)
    artifact.save(compiled(), tmp_path / "p", settings=SETTINGS, lm=f"embedded+{tmp_path / 'trained'}")
    meta = tmp_path / "p" / "meta.json"
    assert json.loads(meta.read_text())["lms"]["reader"]["model"] == "embedded+adapter"
    with caplog.at_level(logging.WARNING, logger="cirag_dspy"):
        artifact.load(tmp_path / "p")
        assert not caplog.records
        meta.write_text(json.dumps(edited("lms", "reader", "base_sha256", value="0")(meta.read_text())))
        artifact.load(tmp_path / "p")
    assert "another copy of the embedded model" in caplog.text


def test_only_safetensors_are_saved(student, tmp_path):
    (tmp_path / "trained" / "adapter_model.safetensors").rename(tmp_path / "trained" / "adapter_model.bin")
    with pytest.raises(ModelError, match="only adapters in safetensors are saved"):
        artifact.save(compiled(), tmp_path / "p", settings=SETTINGS, lm=student)


def test_an_unfinished_save_is_no_program(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "write_json", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        artifact.save(compiled(), tmp_path / "p", settings=SETTINGS)
    with pytest.raises(RunError, match="holds no saved program"):
        artifact.load(tmp_path / "p")


def test_the_hash_is_of_what_answers_depend_on(tmp_path):
    def sha256(program, **more):
        artifact.save(program, tmp_path / "p", settings=SETTINGS, **more)
        return Saved.read(tmp_path / "p").sha256

    first = sha256(compiled())
    assert sha256(compiled(), meta={"scores": {"em": 1.0}}) == first
    assert len({first, sha256(compiled(), lm="openai/x"), sha256(CIRAGModule(None, **SETTINGS))}) == 3


def test_an_index_names_prompts_that_are_not_ours(tmp_path):
    lm, _ = scripted_lm([])
    program = compiled()
    assert artifact.triples_writer(lm, program.construct.extract) == "scripted/lm (one)"
    assert artifact.triples_writer(lm, Extract("two")) == "scripted/lm (two)"
    # A student is known by its content, wherever it lies.
    moved, _ = scripted_lm([], name="embedded+/home/me/x/adapter@0123456789ab")
    assert artifact.triples_writer(moved, Extract("one")) == "embedded+adapter@0123456789ab (one)"
    predict = program.construct.extract.triples
    predict.signature = predict.signature.with_instructions("Extract.")
    artifact.save(program, tmp_path / "p", settings=SETTINGS)
    writer = artifact.triples_writer(lm, Saved.read(tmp_path / "p").extractor())
    assert writer == artifact.triples_writer(lm, program.construct.extract) != "scripted/lm (one)"
    artifact.save(NativeRAG(None), tmp_path / "q")
    assert Saved.read(tmp_path / "p").extracts() and not Saved.read(tmp_path / "q").extracts()
    with pytest.raises(RunError, match="extracts no triples"):
        Saved.read(tmp_path / "q").extractor()
