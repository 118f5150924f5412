"""Every branch of KiRAG's loop: queries, candidates, the chain, the ranking of passages, the answer and the reason to stop.

The encoder is word overlap, so each ranking can be read off the words.
"""

import dspy
import numpy as np
import pytest

from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.modules.chain import aligner_query
from cirag_dspy.systems.kirag import KiRAG
from tests.fakes import WordEncoder, fields_of, scripted_lm
from tests.systems.world import FACTS, TRIPLES, fill, titles

QUESTION = "Where was the director of Harbor Song born?"
DIRECTED = TRIPLES["Harbor Song"][1]
BORN = TRIPLES["Ada Brook"][1]


@pytest.fixture
def filled(index):
    fill(index)
    return index


class Chooser:
    """Completes the chain with the given facts, one a step (several: the first counts), and reads the given answer."""

    def __init__(self, facts, answer):
        self.facts, self.answer = list(facts), answer

    def __call__(self, messages):
        system, fields = messages[0]["content"], fields_of(messages[-1]["content"])
        if "triples:" in system:
            return "entities: x\ntriples:\n" + "\n".join(" | ".join(fact[:3]) for fact in FACTS[fields["title"]])
        if "facts" not in fields:
            return f"answer: {self.answer}"
        numbers = {fact: number for number, fact in (line.split(". ", 1) for line in fields["facts"].splitlines())}
        wanted = self.facts.pop(0) if self.facts else ()
        return f"next: {', '.join(numbers[fact.text] for fact in wanted) or 'none'}"


def ask(index, reply, question=QUESTION, **knobs):
    lm, engine = scripted_lm(reply)
    with dspy.context(lm=lm):
        prediction = KiRAG(index, **{"k": 2, "n": 4, "threads": 1, **knobs})(question=question)
    return prediction, [fields_of(prompt[-1]["content"]) for prompt in engine.prompts]


def test_a_chain_of_two(filled):
    prediction, prompts = ask(filled, Chooser([[DIRECTED], [BORN]], "Velden"))
    assert [hop.query for hop in prediction.hops] == [
        QUESTION,
        f"{QUESTION} {DIRECTED.text}",
        f"{QUESTION} {BORN.text}",
    ]
    assert [titles(hop.passage_ids) for hop in prediction.hops] == [
        ["Harbor Song", "Harbor Light"],
        ["Harbor Song", "Ada Brook"],
        ["Ada Brook", "Harbor Song"],
    ]
    assert [fields["chain"] for fields in prompts[:3]] == ["none yet", DIRECTED.text, f"{DIRECTED.text}\n{BORN.text}"]
    assert prediction.triples == [DIRECTED, BORN]
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Velden", "passages", "complete")
    # The chain's passages by their triples' scores (5 / sqrt(23 * 6) and 3 / sqrt(8 * 7)), then the candidates' passage.
    assert titles(prediction.passages) == ["Ada Brook", "Harbor Song", "Harbor Light"]
    assert [line.split(":")[0] for line in prompts[3]["passages"].splitlines()] == titles(prediction.passages)
    assert [(citation.title, citation.sentence) for citation in prediction.citations] == [
        ("Harbor Song", 1),
        ("Ada Brook", 1),
    ]


def test_the_reader_gets_the_best_passages_only(filled):
    prediction, prompts = ask(filled, Chooser([[DIRECTED], [BORN]], "Velden"), read=1)
    assert prompts[-1]["passages"] == "Ada Brook: Ada Brook was a director. Ada Brook was born in Velden."
    assert titles(prediction.passages) == ["Ada Brook", "Harbor Song", "Harbor Light"]


def test_a_passage_of_the_chain_comes_before_better_ones_of_candidates(filled):
    light = TRIPLES["Harbor Light"][1]
    prediction, _ = ask(filled, Chooser([[light]], "Tom Hale"))
    assert titles(prediction.passages)[0] == "Harbor Light"


def test_only_the_first_triple_of_a_completion_counts(filled):
    light = TRIPLES["Harbor Light"][1]
    prediction, prompts = ask(filled, Chooser([[DIRECTED, light]], "Ada Brook"))
    assert prediction.triples == [DIRECTED]
    assert prompts[1]["chain"] == DIRECTED.text
    assert light.text in prompts[1]["facts"] and DIRECTED.text not in prompts[1]["facts"]


def test_candidates_are_those_of_all_passages_so_far_without_the_chain(filled):
    prediction, _ = ask(filled, Chooser([[DIRECTED], [BORN]], "Velden"), n=9)
    facts = {title: set(TRIPLES[title]) for title in ("Harbor Song", "Harbor Light", "Ada Brook")}
    assert [set(hop.candidates) for hop in prediction.hops] == [
        facts["Harbor Song"] | facts["Harbor Light"],
        (facts["Harbor Song"] | facts["Harbor Light"] | facts["Ada Brook"]) - {DIRECTED},
        (facts["Harbor Song"] | facts["Harbor Light"] | facts["Ada Brook"]) - {DIRECTED, BORN},
    ]


def test_complete_at_once(filled):
    prediction, prompts = ask(filled, ["next: none", "answer: Velden"])
    assert (prediction.triples, prediction.stopped, len(prompts)) == ([], "complete", 2)
    # No chain: passages by their best candidate.
    assert titles(prediction.passages)[0] == "Harbor Song"


def test_a_comparison_takes_a_step_a_side(filled):
    question = "Which film is older, Harbor Song or Harbor Light?"
    song, light = TRIPLES["Harbor Song"][0], TRIPLES["Harbor Light"][0]
    prediction, prompts = ask(filled, Chooser([[song, light], [light]], "Harbor Song"), question=question)
    assert (prediction.triples, prediction.stopped, prediction.answer) == ([song, light], "complete", "Harbor Song")
    assert [fields["chain"] for fields in prompts[:3]] == ["none yet", song.text, f"{song.text}\n{light.text}"]
    # Harbor Light's fact is nearer once the chain says "is a film of" too: 10 / sqrt(30 * 7) after 5 / sqrt(11 * 7).
    assert titles(prediction.passages)[:2] == ["Harbor Light", "Harbor Song"]
    assert {(citation.title, citation.sentence) for citation in prediction.citations} >= {
        ("Harbor Song", 0),
        ("Harbor Light", 0),
    }


def test_a_passage_has_the_best_score_of_any_step(filled):
    class Scores(WordEncoder):
        """Scores facts as the step says, which is the number of triples in the query."""

        def __init__(self, *steps):
            super().__init__("scores")
            self.steps = steps
            self.facts = [" ".join(fact[:3]) for facts in FACTS.values() for fact in facts]
            self.dimension = len(self.facts) + 1  # the last column makes unit vectors of the queries

        def encode_passages(self, texts):
            return np.eye(self.dimension, dtype=np.float32)[[self.facts.index(text) for text in texts]]

        def encode_query(self, text):
            scores = {" ".join(t.text.split(" | ")): score for t, score in self.steps[text.count(" | ") // 2].items()}
            row = [scores.get(fact, 0.0) for fact in self.facts]
            return np.array([*row, (1 - sum(score**2 for score in row)) ** 0.5], dtype=np.float32)

    light, director = TRIPLES["Harbor Light"][1], TRIPLES["Ada Brook"][0]
    filled.use_ranker(Scores({DIRECTED: 0.6, light: 0.5}, {light: 0.2, director: 0.4}))
    prediction, _ = ask(filled, Chooser([[DIRECTED]], "Ada Brook"))
    assert [hop.candidates[0] for hop in prediction.hops] == [DIRECTED, director]
    assert titles(prediction.passages) == ["Harbor Song", "Harbor Light", "Ada Brook"]


def test_passages_that_tie_stay_as_they_were_retrieved(filled):
    question = "Which film is older, Harbor Song or Harbor Light?"
    prediction, _ = ask(filled, ["next: none", "answer: Harbor Song"], question=question)
    ranked = filled.rank_scored(question, list(prediction.hops[0].candidates), None)
    assert ranked[0][1] == ranked[1][1] and ranked[0][0].passage_id != ranked[1][0].passage_id
    assert titles(prediction.passages) == titles(prediction.hops[0].passage_ids) == ["Harbor Song", "Harbor Light"]


def test_the_aligner_of_the_index_ranks(filled):
    class Backwards(WordEncoder):
        def encode_query(self, text):
            return -super().encode_query(text)

    plain, _ = ask(filled, ["next: none", "answer: x"], n=1)
    filled.use_ranker(Backwards("backwards"))
    aligned, _ = ask(filled, ["next: none", "answer: x"], n=1)
    assert plain.hops[0].passage_ids == aligned.hops[0].passage_ids
    assert plain.hops[0].candidates != aligned.hops[0].candidates


def test_an_unreadable_completion_keeps_the_chain_so_far(filled):
    prediction, _ = ask(filled, [f"next: {DIRECTED.text}", "hm", "hm", "answer: Ada Brook"])
    assert (prediction.triples, prediction.stopped, len(prediction.hops)) == ([DIRECTED], "unreadable", 2)
    assert prediction.hops[1].error and titles(prediction.passages)[0] == "Harbor Song"


def test_a_context_that_is_too_small_gets_fewer_candidates(filled):
    from dspy.lm15 import ContextLengthError

    def reply(messages):
        facts = fields_of(messages[-1]["content"]).get("facts", "")
        return ContextLengthError("too long") if len(facts.splitlines()) > 1 else "next: 1\nanswer: x"

    prediction, prompts = ask(filled, reply, max_hops=1)
    assert [len(fields["facts"].splitlines()) for fields in prompts[:4]] == [4, 3, 2, 1]
    assert prediction.triples == [prediction.hops[0].candidates[0]]


def test_an_lm_that_cannot_be_reached_fails_the_question(filled):
    from dspy.lm15 import ServerError
    from dspy.utils.exceptions import LMError

    with pytest.raises(LMError):
        ask(filled, lambda messages: ServerError("down"))


def test_what_is_no_candidate_is_asked_for_once_more(filled):
    prediction, prompts = ask(filled, ["next: 99", f"next: {DIRECTED.text}", "next: none", "answer: Ada Brook"])
    assert "use the numbers 1 to 4" in prompts[1]["problem"]
    assert prediction.triples == [DIRECTED]


def test_an_unreadable_completion_leaves_the_reader(filled):
    prediction, _ = ask(filled, ["hm", "next: 77", "answer: Ada Brook"])
    assert (prediction.answer, prediction.triples, prediction.stopped) == ("Ada Brook", [], "unreadable")
    assert "next names no fact" in prediction.hops[0].error


def test_the_limit_is_on_steps(filled):
    prediction, prompts = ask(filled, Chooser([[DIRECTED], [BORN]], "Velden"), max_hops=1)
    assert (prediction.triples, prediction.stopped, len(prompts)) == ([DIRECTED], "max_hops", 2)


def test_no_fact_left_ends_the_chain(filled):
    year = TRIPLES["Harbor Song"][0]
    prediction, prompts = ask(filled, Chooser([[DIRECTED], [year]], "1950"), question="Harbor Song", k=1)
    assert (prediction.triples, prediction.stopped) == ([DIRECTED, year], "nothing_new")
    assert len(prompts) == 3


def test_triples_are_extracted_where_there_are_none(index):
    prediction, prompts = ask(index, Chooser([[DIRECTED]], "Ada Brook"))
    assert [fields["title"] for fields in prompts[:2]] == ["Harbor Song", "Harbor Light"]
    assert [triple.text for triple in prediction.triples] == [DIRECTED.text]


def test_without_extraction_there_is_nothing_but_the_reader(index):
    prediction, prompts = ask(index, ["answer: Velden"], extract=None)
    assert (prediction.answer, prediction.stopped, prediction.hops) == ("Velden", "nothing_new", [])
    assert titles(prediction.passages) == ["Harbor Song", "Harbor Light"]  # as retrieved
    assert len(prompts) == 1


def test_an_empty_index_calls_no_lm(tmp_path):
    with CorpusIndex.create(tmp_path / "empty", WordEncoder()) as index:
        prediction, prompts = ask(index, [])
    assert (prediction.answer, prediction.passages, prompts) == ("", [], [])


def test_what_the_aligner_is_asked():
    assert aligner_query("Who?", []) == "Who?"
    assert aligner_query("Who?", [DIRECTED, BORN]) == (
        "Who?\nknowledge triples: Harbor Song | was directed by | Ada Brook. Ada Brook | was born in | Velden."
    )


@pytest.mark.parametrize("knob", ["k", "n", "max_hops", "read", "threads"])
def test_knobs_are_checked(knob):
    with pytest.raises(ValueError, match=f"{knob} must be at least 1, not 0"):
        KiRAG(None, **{knob: 0})


def test_state_goes_through_a_file(index, tmp_path):
    saved = KiRAG(index)
    saved.constructor.complete.signature = saved.constructor.complete.signature.with_instructions("Go on.")
    saved.save(tmp_path / "kirag.json")
    loaded = KiRAG(index)
    loaded.load(tmp_path / "kirag.json")
    assert loaded.constructor.complete.signature.instructions == "Go on."
