"""Recipes: read, put over, and refused with a message that says what is wrong and what there is."""

import pytest

from cirag_dspy.distill.settings import LoraSettings
from cirag_dspy.errors import DataError
from cirag_dspy.recipe import (
    Distillation,
    RecipeData,
    RecipeLMs,
    RecipeTriples,
    checked_settings,
    literal,
    read_lora,
    read_recipe,
)

WHOLE = """
system = "cirag"
optimizer = "trajectory_distillation"
seed = 3

[settings]
k = 5
levels = ["triples", "passages"]
rank = false
native_rag.k = 4

[lm]
teacher = "openai/gpt-4o-mini"
max_tokens = 128

[[data]]
dataset = "2wikimultihopqa"
limit = 400
skip = 10

[[data]]
dataset = "musique"
val = 0
triples = 7

[[triples]]
file = "openie/x.jsonl"
skip = 100

[options]
threshold = 0.8
metric = "f1"
also = ["native_rag"]
most = { "construct.extract.triples" = 500 }

[options.gepa]
auto = "light"

[lora]
rank = 16
learning_rate = 1e-3
dropout = 0
"""
SMALL = 'system = "cirag"\noptimizer = "trajectory_distillation"\n[[data]]\ndataset = "demo"\n'
GEPA = SMALL.replace("trajectory_distillation", "gepa")


def read(tmp_path, text, *overrides):
    path = tmp_path / "x.toml"
    path.write_text(text)
    return read_recipe(path, overrides)


def test_a_whole_recipe(tmp_path):
    recipe = read(tmp_path, WHOLE)
    assert (recipe.name, recipe.system, recipe.optimizer, recipe.seed) == ("x", "cirag", "trajectory_distillation", 3)
    assert recipe.systems == {
        "cirag": {"k": 5, "levels": ("triples", "passages"), "rank": False},
        "native_rag": {"k": 4},
    }
    assert recipe.lm == RecipeLMs(teacher="openai/gpt-4o-mini", student="embedded", max_tokens=128)
    assert recipe.extraction == "openai/gpt-4o-mini"
    assert recipe.data == (
        RecipeData("2wikimultihopqa", "train", limit=400, skip=10),
        RecipeData("musique", triples=7),
    )
    assert recipe.triples == (RecipeTriples("openie/x.jsonl", skip=100),)
    assert recipe.distillation == Distillation(
        metric="f1", threshold=0.8, also=("native_rag",), most={"construct.extract.triples": 500}
    )
    assert recipe.lora_settings == LoraSettings(rank=16, learning_rate=1e-3)
    assert recipe.distils


def test_the_least_recipe_has_the_paper_s_defaults(tmp_path):
    recipe = read(tmp_path, SMALL)
    assert recipe.systems == {"cirag": {}} and recipe.lora_settings == LoraSettings()
    assert recipe.distillation == Distillation() and recipe.lm == RecipeLMs()


def test_overrides_are_typed_as_toml(tmp_path):
    recipe = read(
        tmp_path,
        WHOLE,
        "lora.rank=8",
        "lora.epochs=0.5",
        "lm.student=local/models/x",
        'lm.prompt="openai/y"',
        "data.limit=3",
        "settings.native_rag.k=2",
        'settings.levels=["sentences"]',
        "options.shorten=false",
        "seed=0",
    )
    assert (recipe.lora_settings.rank, recipe.lora_settings.epochs) == (8, 0.5)
    assert (recipe.lm.student, recipe.lm.prompt) == ("local/models/x", "openai/y")
    assert [data.limit for data in recipe.data] == [3, 3]
    assert recipe.systems["native_rag"] == {"k": 2} and recipe.systems["cirag"]["levels"] == ("sentences",)
    assert not recipe.distillation.shorten and recipe.seed == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("true", True),
        ('["a", "b"]', ["a", "b"]),
        ("['a']", ["a"]),
        ('"3"', "3"),
        ("null", None),
        (" two words ", "two words"),
        ("[1", "[1"),
        ("", ""),
        ("a=b", "a=b"),
    ],
)
def test_values_are_those_of_toml_and_json(text, value):
    assert literal(text) == value


def test_settings_of_a_system_are_of_the_types_of_its_defaults():
    given = {"k": 3, "levels": ["triples"], "rank": False, "extract": "two"}
    assert checked_settings("cirag", given, "x") == {**given, "levels": ("triples",)}
    assert checked_settings("cirag", checked_settings("cirag", given, "x"), "x")["levels"] == ("triples",)
    assert checked_settings("d2f_reag", {"max_depth": 0, "threshold": 0}, "x") == {"max_depth": 0, "threshold": 0.0}
    assert checked_settings("metarag", {"accept": 0}, "x") == {"accept": 0.0}
    with pytest.raises(DataError, match=r'x k must be a positive integer, not "3"'):
        checked_settings("cirag", {"k": "3"}, "x")
    with pytest.raises(DataError, match="x k must be a positive integer, not null"):
        checked_settings("cirag", {"k": None}, "x")


def test_another_optimizer_leaves_out_what_the_file_says_to_its_own(tmp_path):
    one = WHOLE[: WHOLE.index('[[data]]\ndataset = "musique"')] + WHOLE[WHOLE.index("[[triples]]") :]
    recipe = read(tmp_path, one.replace("native_rag.k = 4\n", ""), "optimizer=gepa")
    assert recipe.name == "x-gepa"  # its program and files lie apart from the recipe's own
    assert recipe.options == {"metric": "f1", "threshold": 0.8, "auto": "light"}
    assert (recipe.triples, recipe.lora, list(recipe.systems)) == ((), {}, ["cirag"])
    with pytest.raises(DataError, match=r"x.toml: \[options\] GEPA has no option max_steps; it has auto, "):
        read(tmp_path, SMALL, "optimizer=gepa", "options.max_steps=3")


@pytest.mark.parametrize(
    ("text", "overrides", "says"),
    [
        ("system = ", [], "not TOML: "),
        (SMALL.replace('system = "cirag"\n', ""), [], "it lacks system: one of cirag, native_rag"),
        (SMALL.replace("cirag", "magic"), [], "system must be one of cirag, native_rag, "),
        (
            SMALL.replace("trajectory_distillation", "sgd"),
            [],
            'optimizer must be one of trajectory_distillation, bootstrap_random_search, mipro, gepa, not "sgd"',
        ),
        ("sytem = 1\n" + SMALL, [], "it has no key sytem; there are system, optimizer, seed, embedder, settings, lm, "),
        (SMALL + "[lora]\nrank = 'many'", [], '[lora] rank must be a positive integer, not "many"'),
        (SMALL, ["lora.rank=many"], '[lora] rank must be a positive integer, not "many"'),
        (SMALL, ["lora.rank=0"], "[lora] rank must be a positive integer, not 0"),
        (SMALL, ["lora.rank=true"], "[lora] rank must be a positive integer, not true"),
        (SMALL, ["lora.epochs=0"], "[lora] epochs must be a number above 0, not 0"),
        (SMALL, ["lora.dropout=-1"], "[lora] dropout must be a number, 0 or more, not -1"),
        (SMALL, ["lora.schedule=steep"], "[lora] no schedule 'steep': use one of linear, cosine, constant"),
        (SMALL, ["lora.speed=1"], "[lora] has no key speed; there are rank, alpha, "),
        (SMALL, ["settings.k=many"], '[settings] k must be a positive integer, not "many"'),
        (SMALL, ["settings.rank=1"], "[settings] rank must be true or false, not 1"),
        (SMALL, ["settings.speed=1"], "[settings] has no key speed; there are k, n, max_hops, levels, rank, "),
        (SMALL, ['settings.levels=["words"]'], "levels must be some of triples, sentences, passages, not words"),
        (SMALL, ["settings.levels=triples"], '[settings] levels must be a list of names, not "triples"'),
        (SMALL, ["settings.native_rag.k=3"], "[settings.native_rag] is for a system that [options] also names; it na"),
        (SMALL, ['options.also=["cirag"]'], "[options] also must be some of native_rag, "),
        (SMALL, ["options.metric=bleu"], '[options] metric must be em or f1, not "bleu"'),
        (SMALL, ["options.max_steps=3"], "[options] has no key max_steps; there are metric, threshold, shorten, "),
        (SMALL, ["options.most={x=0}"], "[options] most.x must be a positive integer, not 0"),
        (SMALL, ["options.most={x=1}"], "[options] most has no key x; there are construct.extract.triples, "),
        (SMALL, ["data.most={x=1}"], "[[data]] most has no key x; there are construct.extract.triples, "),
        (SMALL, ["max_steps=3"], "--set max_steps=3: give one of system, optimizer, "),
        (SMALL, ["lora.rank"], "--set lora.rank: give one of"),
        (SMALL, ["triples.limit=3"], "--set triples.limit=3: it has no [[triples]]"),
        (SMALL, ["seed=x"], 'seed must be a whole number, 0 or more, not "x"'),
        (
            SMALL,
            ["lm.student=openai/x"],
            '[lm] student must be embedded or local/..., as it is trained, not "openai/x"',
        ),
        (SMALL, ["lm.student=annotations"], "[lm] student must be a model; annotations can only teach"),
        (SMALL, ["lm.api_key=x"], "[lm] has no key api_key; there are teacher, student, "),
        (SMALL, ["data.dataset=x"], "[[data]] dataset must be one of hotpotqa, "),
        (SMALL, ["data.skip=-1"], "[[data]] skip must be a whole number, 0 or more, not -1"),
        (SMALL + "val = 5\nlimit = 5", [], "[[data]] val leaves none of 5 questions to train on"),
        (SMALL + '[[data]]\nsplit = "dev"', [], "[[data]] 2 lacks dataset"),
        (SMALL.replace("[[data]]", "[data]"), [], "data must be a list of tables: write [[data]]"),
        (SMALL.split("[[")[0], [], "it lacks [[data]]: at least one set of training questions"),
        (SMALL + "[[triples]]\nlimit = 3", [], "[[triples]] lacks file"),
        ("lm = 3\n" + SMALL, [], "[lm] must be a table"),
        (GEPA + '[[data]]\ndataset = "demo"', [], "gepa takes one [[data]], not 2"),
        (GEPA + "[lora]\nrank = 3", [], "[lora] is for trajectory_distillation; gepa trains nothing"),
        (GEPA, ["options.max_steps=3"], "[options] GEPA has no option max_steps; it has auto, "),
        (GEPA, ["options.wandb_api_key=x"], "[options] wandb_api_key: keys don't belong in a recipe"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text, overrides, says, tmp_path):
    with pytest.raises(DataError) as error:
        read(tmp_path, text, *overrides)
    message = str(error.value)
    assert message.startswith(f"{tmp_path / 'x.toml'}: ") and "\n" not in message
    assert says in message


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"none.toml can't be read: No such file"):
        read_recipe(tmp_path / "none.toml")


def test_training_settings_alone():
    assert read_lora(["lora.rank=4", "lora.epochs=1"]) == LoraSettings(rank=4, epochs=1.0)
    with pytest.raises(DataError, match="--set has no key lm; there are lora"):
        read_lora(["lm.student=x"])
