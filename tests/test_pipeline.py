"""A recipe's stages: what each leaves, what is done again and what is not, and what it would cost."""

import json
import math
from contextlib import nullcontext
from pathlib import Path

import dspy
import pytest

import cirag_dspy
from cirag_dspy.adapter import LineAdapter
from cirag_dspy.benchmarks import load_benchmark
from cirag_dspy.benchmarks.draw import permuted
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.distill.rows import read_rows
from cirag_dspy.distill.silver import read_silver
from cirag_dspy.distill.trajectories import read_trajectories
from cirag_dspy.errors import DataError, ModelError, RunError
from cirag_dspy.evaluate import corpus
from cirag_dspy.lms.annotations import AnnotationsEngine
from cirag_dspy.pipeline import Pipeline, export_file, finetune_file, plan
from cirag_dspy.recipe import read_lora, read_recipe
from cirag_dspy.signatures import AnswerAnyway, AnswerIfSufficient, ExtractTriples, Integrate
from tests.fakes import WordEncoder, fields_of, scripted_lm
from tests.students import tiny_base

RECIPE = """
system = "cirag"
optimizer = "trajectory_distillation"

[settings]
k = 3
n = 4
max_hops = 2

[lm]
student = "local/{base}"
max_tokens = 16

[[data]]
dataset = "demo"
limit = 4
triples = 3

[options]
also = ["native_rag"]

[lora]
rank = 2
epochs = 1
max_length = 4000
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tiny_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(autouse=True)
def words_in_a_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(corpus, "Embedder", WordEncoder)
    monkeypatch.setenv("CIRAG_DSPY_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def make(tmp_path, base):
    """Pipelines of the recipe above, all in one place."""

    def make(*overrides, text=RECIPE, **options):
        file = tmp_path / "x.toml"
        file.write_text(text.replace("{base}", str(base)))
        places = {"work": tmp_path / "runs", "out": tmp_path / "optimized" / "x", "threads": 2}
        return Pipeline(read_recipe(file, overrides), **places | options)

    return make


def never(*args, **kwargs):
    raise AssertionError("called for nothing")


def scripted(reply):
    """What opens an LM, and the prompts that it got."""
    lm, engine = scripted_lm(reply)
    return lambda spec, **options: lm, engine.prompts


def wrong(messages):
    """A teacher that extracts, keeps the first fact and is always wrong."""
    system, fields = messages[0]["content"], fields_of(messages[-1]["content"])
    if "triples:" in system:
        return f"entities: x\ntriples:\n{fields['title']} | is | something"
    if "core:" in system:
        return "thought: t\ncore: 1\nnext_query: none"
    return "answer: wrong"


def test_from_gold_annotations_to_a_program_that_answers(make, tmp_path, base):
    pipeline = make()
    report = pipeline.compile()

    work = tmp_path / "runs"
    assert {path.name for path in work.iterdir()} == {
        "traces-demo-cirag.jsonl",
        "traces-demo-native_rag.jsonl",
        "contrasts-demo-cirag.jsonl",
        "contrasts-demo-native_rag.jsonl",
        "triples-demo.jsonl",
        "rows",
        "adapter",
        "adapter.json",
    }
    manifest, trajectories = read_trajectories(work / "traces-demo-cirag.jsonl")
    assert len(trajectories) == 4
    assert manifest["settings"]["k"] == 3 and manifest["teacher"].startswith("annotations/")
    kept = report["traces"]["files"]["traces-demo-cirag.jsonl"]["kept"]
    assert kept == sum(trajectory.kept for trajectory in trajectories) > 0

    rows = read_rows(work / "rows" / "joint.jsonl")
    counts = {name: group["rows"] for name, group in report["export"]["by_predictor"].items()}
    assert counts["integration.integrate"] == kept  # a conversation a trajectory
    assert counts["construct.extract.triples"] == 3 == len(read_silver(work / "triples-demo.jsonl"))
    assert len(rows) == sum(counts.values()) == report["export"]["rows"]
    asked = read_rows(work / "rows" / "integration.integrate.jsonl")[0]
    assert asked["messages"][0]["content"].startswith("Integrate.\n")

    assert report["finetune"]["steps"] == math.ceil(report["finetune"]["rows"]["rows"] / 2)
    assert report["save"]["program"] == str(tmp_path / "optimized" / "x")
    meta = json.loads((tmp_path / "optimized" / "x" / "meta.json").read_text())
    assert meta["optimizer"]["name"] == "trajectory_distillation"
    assert meta["optimizer"]["trajectories"] == report["traces"]["files"]
    assert meta["recipe"]["systems"] == {"cirag": {"k": 3, "n": 4, "max_hops": 2}, "native_rag": {}}
    assert meta["lms"]["reader"]["max_tokens"] == 16

    folder = next((tmp_path / "cache" / "indexes").iterdir())
    with CorpusIndex.open(folder, WordEncoder("embedded")) as index:
        program = cirag_dspy.load(tmp_path / "optimized" / "x", index=index)
        assert isinstance(program(question="Where was the director of Harbor Song born?").answer, str)
        lm = program.integration.integrate.lm
        assert lm.model.startswith(f"local/{base}+{tmp_path / 'optimized' / 'x' / 'adapter'}@")
        # The prompt that it was trained on is the prompt that it is asked with.
        sent = LineAdapter().format(program.integration.integrate.signature, [], {})
        assert sent[0] == asked["messages"][0]
        assert (
            cirag_dspy.load(tmp_path / "optimized" / "x", index, system="native_rag")(question="q").answer is not None
        )


def test_gold_annotations_teach_six_systems(make):
    """Each of them answers questions of the demo set right, over every prompt that it has."""
    others = ["kirag", "d2f_reag", "ircot", "react", "native_rag"]
    pipeline = make(f"options.also={json.dumps(others)}", "data.limit=12")
    kept = pipeline.traces()["files"]
    assert {file: counts["kept"] > 0 for file, counts in kept.items()} == {
        f"traces-demo-{system}.jsonl": True for system in ["cirag", *others]
    }
    assert pipeline.export()["by_predictor"].keys() >= {
        "integration.integrate",
        "constructor.complete",
        "reason.generate",
        "reliability.judge",
        "decompose.decompose",
        "relevance.check",
        "update.update",
        "reason.reason",
        "act.act",
        "reader.read",
    }


def test_a_system_with_other_settings_teaches_more_and_is_not_served(make, tmp_path):
    text = RECIPE.replace('also = ["native_rag"]', 'also = ["cirag:passages"]')
    text = text.replace("[lm]", '[settings."cirag:passages"]\nlevels = ["passages"]\n\n[lm]', 1)
    text = text.replace("triples = 3", 'triples = 3\nmost = {"cascade.passages" = 1}')
    pipeline = make(text=text)
    assert pipeline.recipe.systems["cirag:passages"] == {"k": 3, "n": 4, "max_hops": 2, "levels": ("passages",)}
    report = pipeline.compile()
    kept = report["traces"]["files"]
    assert kept.keys() == {"traces-demo-cirag.jsonl", "traces-demo-cirag-passages.jsonl"}
    counts = {name: group["rows"] for name, group in report["export"]["by_predictor"].items()}
    # The conversations of both runs are the same, and are trained on once.
    assert counts["integration.integrate"] == kept["traces-demo-cirag.jsonl"]["kept"]
    assert counts["cascade.passages"] == 1
    assert json.loads((tmp_path / "optimized" / "x" / "meta.json").read_text())["programs"].keys() == {"cirag"}


def test_what_is_up_to_date_is_not_done_again(make, monkeypatch, tmp_path):
    first = make().compile()
    rows = (tmp_path / "runs" / "rows" / "joint.jsonl").stat().st_mtime_ns
    monkeypatch.setattr(AnnotationsEngine, "complete", never)
    monkeypatch.setattr("cirag_dspy.distill.lora.train", never)
    again = make().compile()
    assert again["traces"]["lm"]["calls"] == 0 and again["traces"]["files"] == first["traces"]["files"]
    assert (again["export"], again["finetune"], again["save"]) == (first["export"], first["finetune"], first["save"])
    assert (tmp_path / "runs" / "rows" / "joint.jsonl").stat().st_mtime_ns == rows


def test_only_what_changed_is_done_again_and_an_old_student_is_put_aside(make, monkeypatch, tmp_path):
    first = make().compile()
    monkeypatch.setattr(AnnotationsEngine, "complete", never)
    second = make("lora.rank=3").compile()
    assert second["export"] == first["export"]
    assert second["finetune"]["settings"]["rank"] == 3
    assert second["save"]["sha256"] != first["save"]["sha256"]
    old = json.loads((tmp_path / "runs" / "adapter.old" / "training.json").read_text())
    assert old["settings"]["rank"] == 2
    # Other prompts are other rows.
    third = make("options.shorten=false", "lora.rank=3").compile()
    assert third["export"] != first["export"]
    assert cirag_dspy.load(tmp_path / "optimized" / "x").integration.integrate.signature.instructions.startswith(
        "Gather"
    )


def test_traces_of_other_settings_are_refused_until_told_otherwise(make):
    make().traces()
    with pytest.raises(RunError, match=r"traces-demo-cirag.jsonl was made with other settings \(settings\)"):
        make("settings.k=2").traces()
    report = make("settings.k=2", resume=False).traces()
    assert report["lm"]["calls"] > 0


def test_an_interrupted_stage_goes_on(make, monkeypatch, tmp_path):
    complete, asked = AnnotationsEngine.complete, []

    def interrupted(self, request):
        asked.append(request)
        if len(asked) == 100:
            raise KeyboardInterrupt
        return complete(self, request)

    monkeypatch.setattr(AnnotationsEngine, "complete", interrupted)
    pipeline = make(threads=1)
    with pytest.raises(KeyboardInterrupt):
        pipeline.traces()  # 89 passages, then questions
    _, there = read_trajectories(tmp_path / "runs" / "traces-demo-cirag.jsonl")
    assert 0 < len(there) < 4
    asked.clear()
    make(threads=1).traces()
    assert len(read_trajectories(tmp_path / "runs" / "traces-demo-cirag.jsonl")[1]) == 4
    assert 0 < len(asked) < 40


# From traces (D13), and nothing to train on (D10)


def test_saved_traces_stand_in_for_the_teacher(make, monkeypatch, tmp_path):
    expected = make().compile()
    monkeypatch.setattr(AnnotationsEngine, "complete", never)
    monkeypatch.setattr("cirag_dspy.pipeline.trainset.open_corpus", never)
    files = [tmp_path / "runs" / f"traces-demo-{system}.jsonl" for system in ("cirag", "native_rag")]
    report = make("lm.teacher=openai/x", from_traces=files, work=tmp_path / "other", open_lm=never).compile()
    assert report["traces"]["lm"]["calls"] == 0
    assert report["export"] == expected["export"]
    assert plan(make("lm.teacher=openai/x", from_traces=files, work=tmp_path / "other"))[0]["stage"] == "finetune"


def test_traces_must_be_there_and_of_a_system_that_is_trained(make, tmp_path):
    with pytest.raises(RunError, match=r"nowhere.jsonl is missing"):
        make(from_traces=[tmp_path / "nowhere.jsonl"]).compile()
    make().traces()
    file = tmp_path / "runs" / "traces-demo-native_rag.jsonl"
    with pytest.raises(RunError, match="is of the system native_rag, and the recipe trains cirag"):
        make("options.also=[]", from_traces=[file]).export()
    with pytest.raises(
        RunError, match=r"triples-demo.jsonl is missing: the traces stage writes it; or --set data.triples"
    ):
        (tmp_path / "runs" / "triples-demo.jsonl").unlink()
        make(from_traces=[file]).export()
    with pytest.raises(RunError, match="gepa learns from feedback"):
        make("optimizer=gepa", from_traces=[file])


def test_nothing_kept_is_an_error_with_the_reasons(make, tmp_path):
    open_lm, prompts = scripted(wrong)
    with pytest.raises(RunError) as error:
        make("lm.teacher=openai/x", open_lm=open_lm).compile()
    told = "nothing to train on: no trajectory of cirag was kept, of 4 (below threshold: 4)"
    assert str(error.value) == told
    assert not (tmp_path / "runs" / "rows").exists()
    asked = len(prompts)
    with pytest.raises(RunError, match="below threshold: 4"):
        make("lm.teacher=openai/x", open_lm=open_lm).compile()
    assert len(prompts) == asked  # the answers are on file


def test_a_teacher_that_fails_is_quoted(make):
    def failing(messages):
        if "triples:" in messages[0]["content"]:
            return wrong(messages)
        return dspy.LMServerError("the server is down")

    open_lm, _ = scripted(failing)
    with pytest.raises(
        RunError, match=r"no trajectory of cirag was kept, of 4 \(error: 4\); the first error: .*is down"
    ):
        make("lm.teacher=openai/x", open_lm=open_lm).traces()


def test_stages_alone_say_what_comes_before_them(make):
    for stage, says in (
        ("export", "traces writes it"),
        ("finetune", "export writes it"),
        ("save", "finetune trains it"),
    ):
        with pytest.raises(RunError, match=says):
            getattr(make(), stage)()


def test_files_alone(make, base, tmp_path):
    make().traces()
    report = export_file(tmp_path / "runs" / "traces-demo-cirag.jsonl", tmp_path / "rows")
    assert {"cascade.triples", "integration.integrate"} <= report["by_predictor"].keys()
    options = {
        "base": f"local/{base}",
        "settings": read_lora(["lora.rank=2", "lora.epochs=0.5", "lora.max_length=4000"]),
    }
    trained = finetune_file(tmp_path / "rows" / "joint.jsonl", tmp_path / "a", **options)
    assert trained["base"]["name"] == base.name
    again = finetune_file(
        tmp_path / "rows" / "joint.jsonl", tmp_path / "b", **options | {"base": f"local/{base}+{tmp_path / 'a'}"}
    )
    assert again["first_loss"] != trained["first_loss"]
    with pytest.raises(ModelError, match="openai/x can't be trained here"):
        finetune_file(tmp_path / "rows" / "joint.jsonl", tmp_path / "c", **options | {"base": "openai/x"})
    (tmp_path / "bare.jsonl").write_text('{"manifest": {"threshold": 1.0}}\n')
    with pytest.raises(RunError, match="does not say which system"):
        export_file(tmp_path / "bare.jsonl", tmp_path / "rows")


# Data


PARAGRAPHS = [
    {"idx": 0, "title": "Ada", "paragraph_text": "A" * 96 + ".", "is_supporting": True},
    {"idx": 1, "title": "Bob", "paragraph_text": "B" * 96 + ".", "is_supporting": False},
]


@pytest.fixture
def data_dir(tmp_path):
    """Eight MuSiQue questions over two passages of 100 characters each, and silver triples of three."""
    folder = tmp_path / "data" / "musique"
    folder.mkdir(parents=True)
    rows = [
        {"id": f"2hop__{n}", "question": f"q{n}?", "answer": "a", "answerable": True, "paragraphs": PARAGRAPHS}
        for n in range(8)
    ]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    silver = [{"title": f"T{n}", "text": "C" * 38, "triples": [["a", "b", "c"], ["d", "e"]]} for n in range(4)]
    (tmp_path / "data" / "silver.jsonl").write_text("\n".join(map(json.dumps, silver)))
    return tmp_path / "data"


MUSIQUE = RECIPE.replace('dataset = "demo"\nlimit = 4\ntriples = 3', 'dataset = "musique"\nlimit = 6') + (
    '[[triples]]\nfile = "silver.jsonl"\nskip = 1\n'
)


def test_questions_are_chosen_and_held_back(make, data_dir):
    text = MUSIQUE.replace(
        "limit = 6", 'skip = 2\nlimit = 5\nval = 2\n[[data]]\ndataset = "musique"\nskip = 7\nextraction = "x/y"'
    )
    first, second = make("data.first=true", text=text, data_dir=data_dir).trainsets
    assert [example.id for example in first.train] == ["2hop__2", "2hop__3", "2hop__4"]
    assert [example.id for example in first.val] == ["2hop__5", "2hop__6"]
    assert (first.name, second.name, len(second.train)) == ("musique", "musique-2", 1)
    assert (first.extraction, second.extraction) == ("annotations", "x/y")
    with pytest.raises(DataError, match="has no questions after 8 of its 8"):
        _ = make("data.skip=8", text=MUSIQUE, data_dir=data_dir).trainsets[0].train
    with pytest.raises(DataError, match="val=8 leaves none of 8 musique questions"):
        _ = make("data.val=8", text=MUSIQUE.replace("limit = 6", ""), data_dir=data_dir).trainsets[0].train
    with pytest.raises(DataError, match=r"silver.jsonl is missing, and so is silver.jsonl here: --data-dir names"):
        _ = make(text=MUSIQUE).silver
    with pytest.raises(DataError, match="no file of musique dev"):
        _ = make("data.split=dev", text=MUSIQUE, data_dir=data_dir).trainsets[0].train


def test_silver_triples_may_lie_where_the_command_is_run(make, data_dir, monkeypatch):
    monkeypatch.chdir(data_dir)
    assert [passage.title for passage, _ in make(text=MUSIQUE).silver] == ["T1", "T2", "T3"]


def test_silver_triples_teach_extraction_and_are_what_annotations_extract(make, data_dir):
    pipeline = make(text=MUSIQUE, data_dir=data_dir)
    assert [passage.title for passage, _ in pipeline.silver] == ["T1", "T2", "T3"]
    assert [triple.text for _, triples in pipeline.silver for triple in triples] == ["a | b | c"] * 3
    known = [{"title": p["title"], "text": p["paragraph_text"], "triples": [["x", "y", "z"]]} for p in PARAGRAPHS]
    (data_dir / "silver.jsonl").write_text("\n".join(map(json.dumps, [{}, *known])))
    trainset = make(text=MUSIQUE, data_dir=data_dir).trainsets[0]
    with trainset.index(1, lambda total, unit: nullcontext(lambda *done: None)) as (index, failed):
        found = index.triples(passage.id for passage in trainset.benchmark.passages)
    assert [triple.text for triples in found.values() for triple in triples] == ["x | y | z"] * 2 and not failed


# Costs


def system(signature):
    return len(LineAdapter().format_system_message(signature))


def test_what_a_recipe_costs_by_hand(make, data_dir):
    steps = plan(make("lm.teacher=openai/x", "options.shorten=false", text=MUSIQUE, data_dir=data_dir))
    extraction, cirag, contrast, rag, training = steps
    # Two passages of 3 + 97 characters, each with its prompt and 20 for labels; ten facts of 60 characters each.
    assert extraction == {
        "stage": "extraction",
        "data": "musique",
        "passages": 2,
        "lm": "openai/x",
        "lm_calls": 2,
        "prompt_tokens": round((2 * system(ExtractTriples) + 2 * 120) / 4),
        "reply_tokens": 2 * 10 * 60 // 4,
    }
    # Two hops, three levels and the forced answer: 6 calls a question. A hop shows 4 facts of 60 characters, question
    # and query of 100; the second shows the first again, with its reply of 240; passages are read twice, 3 of 100.
    hops = 2 * system(Integrate) + 3 * (200 + 240) + 240
    answers = 3 * (system(AnswerIfSufficient) + 100) + system(AnswerAnyway) + 100 + 2 * 300
    assert (cirag["questions"], cirag["lm_calls"], cirag["prompt_tokens"], cirag["reply_tokens"]) == (
        6,
        36,
        6 * round((hops + answers) / 4),
        36 * 60,
    )
    # An answer is asked for once more, from the three passages at most.
    assert (contrast["stage"], contrast["lm_calls"]) == ("contrasts", 18)
    assert contrast["prompt_tokens"] == 18 * round((system(AnswerIfSufficient) + 100 + 300) / 4)
    # Native RAG reads its default of 10 passages in one call.
    assert (rag["system"], rag["lm_calls"], rag["prompt_tokens"]) == (
        "native_rag",
        6,
        6 * round((system(AnswerAnyway) + 100 + 1000) / 4),
    )
    # Rows of a question: a conversation of two hops; four answers and three contrasts from 3 passages; Native RAG's answer
    # from 10. And three silver passages of 2 + 38 characters with a triple of 9.
    conversation = system(Integrate) + 2 * (200 + 240 + 240)
    read = 6 * system(AnswerIfSufficient) + system(AnswerAnyway) + 7 * (100 + 300 + 240)
    one = system(AnswerAnyway) + 100 + 1000 + 240
    tokens = round(3 * 49 / 4) + 6 * round((conversation + read) / 4) + 6 * round(one / 4)
    assert training == {"stage": "finetune", "rows": 6 * 9 + 3, "tokens": tokens, "steps": 29}


def test_what_is_there_costs_nothing_and_annotations_never_do(make, tmp_path):
    free = plan(make())
    assert [step["stage"] for step in free] == ["extraction", "traces", "contrasts", "traces", "finetune"]
    assert all(step["lm_calls"] == 0 for step in free[:-1])
    assert plan(make("lm.extraction=openai/x"))[0]["lm_calls"] == 89
    make().traces()
    make().export()
    steps = plan(make("lm.teacher=openai/x"))
    assert [step["stage"] for step in steps] == ["traces", "contrasts", "traces", "finetune"]
    assert all(step["questions"] == 0 for step in steps[:-1])
    assert all(step["lm_calls"] == 0 for step in steps[:-1])
    made = read_rows(tmp_path / "runs" / "rows" / "joint.jsonl")
    characters = sum(len(message["content"]) for row in made for message in row["messages"])
    assert (steps[-1]["rows"], steps[-1]["tokens"]) == (len(made), round(characters / 4))


@pytest.mark.parametrize(
    ("optimizer", "options", "questions"),
    [
        ("bootstrap_random_search", ["options.num_candidate_programs=2"], 5 * 1),
        ("mipro", ["options.num_trials=7", "options.num_candidates=3"], 8 * 1),
        ("gepa", ["options.max_metric_calls=30"], 30),
        ("gepa", ["options.max_full_evals=2"], 2 * 4),
    ],
)
def test_optimizers_of_prompts_cost_the_questions_they_score_by(make, optimizer, options, questions):
    steps = plan(make(f"optimizer={optimizer}", "data.val=1", *options))
    taught = [step["questions"] for step in steps if step["stage"] == "traces"]
    assert taught == ([] if optimizer == "gepa" else [3])
    assert (steps[-1]["stage"], steps[-1]["questions"], steps[-1]["lm_calls"]) == (optimizer, questions, 6 * questions)


# Optimizers of prompts (D16)


def test_prompts_are_compiled_and_saved_with_the_optimizer_that_ran(make, monkeypatch, tmp_path):
    asked = {}

    def compile_prompts(name, program, **options):
        asked.update(options, name=name)
        program.cascade.triples.demos = [dspy.Example(question="q", evidence="e", thought="t", answer="a")]
        return program, {"optimizer": "TheOneThatRan", "score": 0.5}

    monkeypatch.setattr("cirag_dspy.distill.prompts.compile_prompts", compile_prompts)
    report = make("optimizer=bootstrap_random_search", "data.val=1", "options.max_rounds=2", "seed=7").compile()
    assert report["optimize"]["optimizer"] == {"optimizer": "TheOneThatRan", "score": 0.5}
    assert (asked["name"], asked["seed"], asked["threshold"]) == ("bootstrap_random_search", 7, 1.0)
    assert asked["options"] == {"max_rounds": 2} and asked["prompt_lm"] is None
    assert (len(asked["trainset"]), len(asked["valset"])) == (3, 1)
    assert asked["teacher"].integration.integrate.lm.model.startswith("annotations/")
    assert asked["lm"].model.startswith("local/")
    program = cirag_dspy.load(tmp_path / "optimized" / "x")
    assert [demo["answer"] for demo in program.cascade.triples.demos] == ["a"]
    assert program.integration.integrate.lm.model == asked["lm"].model
    meta = json.loads((tmp_path / "optimized" / "x" / "meta.json").read_text())
    assert (
        meta["optimizer"]["optimizer"] == "TheOneThatRan"
        and not (Path(report["optimize"]["program"]) / "adapter").exists()
    )


def test_saved_traces_also_serve_optimizers_of_prompts(make, monkeypatch, tmp_path):
    make().traces()
    known = []

    def compile_prompts(name, program, **options):
        known.extend(options["trajectories"])
        return program, {"optimizer": "X"}

    monkeypatch.setattr("cirag_dspy.distill.prompts.compile_prompts", compile_prompts)
    make("optimizer=mipro", from_traces=[tmp_path / "runs" / "traces-demo-cirag.jsonl"]).compile()
    assert len(known) == 4


# Which questions, and what a dry run sees


def ids(pipeline):
    return [[example.id for example in trainset.benchmark.examples] for trainset in pipeline.trainsets]


TWO = RECIPE.replace("[options]", '[[data]]\ndataset = "demo"\nskip = 4\nlimit = 5\n\n[options]')


def test_questions_are_a_random_draw_by_the_seed_and_entries_share_none(make):
    whole = [example.id for example in load_benchmark("demo", "train").examples]
    first, second = ids(make(text=TWO))
    order = permuted(len(whole), 0)
    assert first == [whole[place] for place in order[:4]] and second == [whole[place] for place in order[4:9]]
    assert ids(make(text=TWO)) == [first, second] != ids(make("seed=1", text=TWO))
    assert ids(make("data.first=true", text=TWO)) == [whole[:4], whole[4:9]]
    assert make().trainsets[0].benchmark.notes["draw"] == {
        "kind": "random", "seed": 0, "n": 4, "of": len(whole), "skip": 0,
    }  # fmt: skip
    one = make("data.val=2")
    assert [example.id for example in one.trainsets[0].val] == first[2:]
    with pytest.raises(DataError, match=r"\[\[data\]\] 2 first must be the same in all entries of demo"):
        make(text=TWO.replace("skip = 4", "skip = 4\nfirst = true"))


def test_traces_of_another_draw_are_refused_and_the_first_questions_warn(make):
    told = []
    report = make(on_note=told.append).traces()
    assert report["draws"]["demo"]["kind"] == "random" and told == []
    with pytest.raises(RunError, match=r"other settings \(.*questions.*\).*data.first=true"):
        make("data.first=true", on_note=told.append).traces()
    assert told == ["demo: the first questions of a file are no sample; it may be sorted"]


def test_a_dry_run_fails_where_the_stages_would(make, tmp_path):
    mine = tmp_path / "mine" / "nq"
    mine.mkdir(parents=True)
    rows = [{"question": f"who is {n}", "answer": ["x"]} for n in range(6)]
    (mine / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = RECIPE.replace('"demo"', '"nq"')
    with pytest.raises(DataError, match="nq train has no passages to retrieve from"):
        make(text=own, data_dir=tmp_path / "mine").check()
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(RunError, match="can't be written"):
            make(out=place).check()
        with pytest.raises(RunError, match="can't be written"):
            make(work=place).check()
    with pytest.raises(RunError, match="gpt-4o-mini is no LM"):
        make("lm.teacher=gpt-4o-mini").check()
    with pytest.raises(ModelError):
        make("lm.student=local/nowhere/at-all").check()
    with pytest.raises(ModelError):
        make("lm.extraction=embedded+nowhere").check()
    with pytest.raises(RunError, match=r"nowhere.jsonl is missing"):
        make(from_traces=[tmp_path / "nowhere.jsonl"]).check()
    make().check()
    assert not (tmp_path / "runs").exists() and not (tmp_path / "optimized").exists()
