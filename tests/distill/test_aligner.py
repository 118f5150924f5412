"""Training an aligner: a tiny random model that learns, its folder, and what is chosen and refused."""

import json

import numpy as np
import pytest

from cirag_dspy.corpus.embedder import Embedder
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import Document
from cirag_dspy.corpus.shelves import fact
from cirag_dspy.distill.links import Look, Row, Walk, passage_recall, rows, triple_recall, walk
from cirag_dspy.distill.settings import AlignerSettings
from cirag_dspy.errors import RunError
from tests.distill.test_links import ALL, BORN, CORPUS, DIRECTED, RIVER, THREE, TWO
from tests.fakes import WordEncoder
from tests.systems.world import PASSAGES, fill
from tests.tiny import save_tiny_encoder

FAST = AlignerSettings(epochs=20, batch_size=4, learning_rate=1e-2, temperature=0.1, warmup=0.0)


def test_the_defaults_are_the_papers():
    paper = {"epochs": 10, "batch_size": 64, "learning_rate": 2e-5, "weight_decay": 0.01, "temperature": 0.01}
    settings = AlignerSettings()
    assert {name: getattr(settings, name) for name in paper} == paper
    assert (settings.negatives, settings.warmup, settings.n) == (7, 0.1, 20)
    assert settings.batches([str(n) for n in range(65)]) == 2
    assert settings.batches(["a"] * 7 + ["b"] * 3) == 7 and settings.batches([]) == 0


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"epochs": 0}, "epochs must be above 0"),
        ({"epochs": 1.5}, "epochs is of type int"),
        ({"val": 0.0}, "val must be above 0"),
        ({"val": 1.0}, "val must be at least 0 and below 1"),
        ({"temperature": -1.0}, "temperature must be above 0"),
        ({"weight_decay": -1.0}, "weight_decay must not be negative"),
    ],
)
def test_settings_are_checked(values, says):
    with pytest.raises(RunError, match=says):
        AlignerSettings(**values)


@pytest.fixture(scope="module")
def walks(tmp_path_factory):
    with CorpusIndex.create(tmp_path_factory.mktemp("world") / "index", WordEncoder()) as index:
        index.add(Document(passage.id, (passage,)) for passage in PASSAGES.values())
        fill(index)
        yield [walk(example, CORPUS, index, k=5) for example in (THREE, TWO)]


@pytest.fixture(scope="module")
def base(tmp_path_factory, walks):
    texts = [*map(fact, ALL), *(look.query for one in walks for look in one.looks)]
    return save_tiny_encoder(tmp_path_factory.mktemp("tiny"), texts)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, walks, base):
    """The folder, its record, and the steps as they were reported."""
    from cirag_dspy.distill.aligner import train_aligner

    out, steps = tmp_path_factory.mktemp("trained") / "aligner", []
    made = rows(walks, negatives=7, most=8, seed=0)
    record = train_aligner(
        str(base), made, walks, out, FAST, device="cpu", on_step=lambda step, total: steps.append((step, total))
    )
    return out, record, steps


@pytest.mark.slow
def test_it_learns_what_comes_next(trained, walks, base):
    out, record, _ = trained
    first, *_, last = [loss for _, loss in record["losses"]]
    assert last < first / 2
    assert record["best"]["triple_recall@5"] > record["epochs"][0]["triple_recall@5"]
    assert [entry["epoch"] for entry in record["epochs"]] == list(range(21))

    def places(folder):
        """Where each gold triple of the chain comes among those offered."""
        embedder = Embedder(str(folder), device="cpu")
        for look, gold in zip(walks[0].looks, (DIRECTED, BORN, RIVER), strict=True):
            scores = embedder.encode_passages([fact(triple) for triple in look.offered])
            ranked = np.argsort(-(scores @ embedder.encode_query(look.query)))
            yield [look.offered[i] for i in ranked].index(gold)

    assert sum(places(out)) < sum(places(base))


@pytest.mark.slow
def test_what_is_in_the_folder(trained, base):
    out, record, steps = trained
    assert [step for step, _ in steps] == list(range(1, len(steps) + 1)) and steps[-1][0] == steps[-1][1]
    files = {path.name for path in out.rglob("*") if path.is_file()}
    assert {"modules.json", "model.safetensors", "training.json"} <= files
    assert not [name for name in files if name.endswith((".bin", ".pt", ".pkl", ".pth"))]
    assert [path.name for path in out.parent.iterdir()] == ["aligner"]  # nothing is left beside it
    kept = json.loads((out / "training.json").read_text())
    assert kept == json.loads(json.dumps(record))
    assert kept["base"]["name"] == base.name and kept["rows"] == 7 and kept["val_questions"] == 2
    assert kept["settings"]["negatives"] == 7 and kept["steps"] == len(steps)


@pytest.mark.slow
def test_the_same_is_not_trained_twice_and_something_else_is_not_overwritten(trained, walks, base, tmp_path):
    from cirag_dspy.distill.aligner import train_aligner

    out, record, _ = trained
    made = rows(walks, negatives=7, most=8, seed=0)

    def never(step, total):
        raise AssertionError("trained again")

    left = out.with_name(".aligner-training")  # killed after its last step
    left.mkdir()
    again = train_aligner(str(base), made, walks, out, FAST, device="cpu", on_step=never)
    assert not left.exists()
    assert again == json.loads(json.dumps(record))
    for given in ((made[:-1], walks), (made, walks[:1])):
        with pytest.raises(RunError, match="holds an aligner made of other data or settings"):
            train_aligner(str(base), *given, out, FAST, device="cpu")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="is no aligner"):
        train_aligner(str(base), made, walks, tmp_path, FAST, device="cpu")
    with pytest.raises(RunError, match="nothing to train on"):
        train_aligner(str(base), [], walks, tmp_path / "new", FAST, device="cpu")


@pytest.mark.slow
def test_prompts_of_the_base_are_trained_with_and_kept(base, walks, tmp_path, monkeypatch):
    from sentence_transformers import SentenceTransformer

    from cirag_dspy.distill.aligner import train_aligner

    prompted = SentenceTransformer(str(base), device="cpu")
    prompted.prompts = {"query": "where ", "document": "a "}
    prompted.save_pretrained(str(tmp_path / "prompted"))
    seen = []
    tokenize = SentenceTransformer.preprocess

    def spy(self, inputs, *args, **kwargs):
        seen.append((kwargs.get("prompt"), list(inputs)))
        return tokenize(self, inputs, *args, **kwargs)

    monkeypatch.setattr(SentenceTransformer, "preprocess", spy)
    made = rows(walks, negatives=1, most=1, seed=0)
    settings = AlignerSettings(epochs=1, batch_size=4, negatives=1)
    train_aligner(str(tmp_path / "prompted"), made, walks, tmp_path / "out", settings, device="cpu")
    used = {prompt for prompt, texts in seen if made[0].query in texts or made[0].query in [t[6:] for t in texts]}
    assert used == {"where "}
    embedder = Embedder(str(tmp_path / "out"), device="cpu")
    assert (embedder.query_prompt, embedder.passage_prompt) == ("where ", "a ")


@pytest.mark.slow
def test_the_epoch_that_finds_most_is_kept(base, walks, tmp_path):
    """Rows that teach the opposite of what is measured: the last epoch is worse than one before, whose weights stay."""
    from cirag_dspy.distill.aligner import _rank_with, train_aligner

    look = walks[0].looks[0]
    asked = walk_of(look, right=[triple for triple in look.offered if triple != DIRECTED][:3])
    made = [
        Row(row.question, row.query, row.negatives[0], (row.positive,))
        for row in rows([asked], negatives=1, most=8, seed=0)
    ]
    settings = AlignerSettings(epochs=8, batch_size=4, learning_rate=1e-2, temperature=0.1, negatives=1)
    record = train_aligner(str(base), made, [asked], tmp_path / "out", settings, device="cpu")
    scores = [(entry["passage_recall@5"], entry["triple_recall@5"]) for entry in record["epochs"]]
    assert scores[-1] < max(scores)
    assert record["best"] == record["epochs"][scores.index(max(scores))]
    rank = _rank_with(Embedder(str(tmp_path / "out"), device="cpu"), [asked])
    kept = (passage_recall([asked], rank, k=5, n=20), triple_recall([asked], rank, n=5))
    assert kept == pytest.approx(max(scores), abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("dies_at", [12, 13])  # the last step of the third epoch, the first of the fourth
def test_a_training_that_was_killed_goes_on(base, walks, tmp_path, dies_at):
    """To the same record and the same weights; the epochs before are not trained again."""
    from cirag_dspy.distill.aligner import train_aligner

    made, seen = rows(walks, negatives=1, most=8, seed=0), []
    settings = AlignerSettings(epochs=6, batch_size=4, learning_rate=1e-2, temperature=0.1, negatives=1)
    whole = train_aligner(str(base), made, walks, tmp_path / "whole", settings, device="cpu")

    def dies(step, total):
        if step == dies_at:
            raise KeyboardInterrupt

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        train_aligner(str(base), made, walks, out, settings, device="cpu", on_step=dies)
    assert not out.exists() and (tmp_path / ".out-training").is_dir()
    (tmp_path / ".out-training" / "checkpoint-999").mkdir()  # killed while it was written
    resumed = train_aligner(
        str(base), made, walks, out, settings, device="cpu", on_step=lambda step, total: seen.append(step)
    )
    assert seen == list(range(9 if dies_at == 12 else 13, 25))
    for record in (whole, resumed):
        assert record.pop("seconds") > 0
    assert resumed == whole
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "out")]
    assert weights[0] == weights[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "whole"]


def walk_of(look, right):
    wrong = tuple(triple for triple in look.offered if triple not in right)
    only = Look((), look.query, look.offered, tuple((triple,) for triple in right), wrong)
    return Walk(look.query, (only,), tuple({triple.passage_id for triple in right}), 0, len(right), len(right))
