"""Every branch of the four stages, with calls, prompts, passages and answers worked out by hand from the paper.

The encoder is word overlap and K = 2, so each query's passages can be read off its words.
"""

import dspy
import pytest

from cirag_dspy.benchmarks.base import Benchmark
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import Document
from cirag_dspy.evaluate.cost import run_cost
from cirag_dspy.schema import Passage
from cirag_dspy.systems import build_system, settings_of
from cirag_dspy.systems.d2f_reag import D2FReAG
from tests.fakes import WordEncoder, fields_of, scripted_lm
from tests.systems.world import TEXTS

DEATHS = {
    "Brook family": ("Ada Brook died on 19 February 1988.",),
    "Hale family": ("Tom Hale died on 1 January 1990.",),
}
WORLD = {title: Passage.create(title, sentences) for title, sentences in (TEXTS | DEATHS).items()}

QUESTION = "In which town was the director of Harbor Song born?"
DIRECTOR = "Who directed the film Harbor Song?"
BIRTHPLACE = "Where was that director born?"
ADA = "In which town was Ada Brook born?"

UNSURE = ("The director's birthplace is missing.", "Mora", 0.4)
NAMED = ("The film Harbor Song was directed by Ada Brook.", "Ada Brook", 0.8)
BORN = ("Ada Brook was born in Velden.", "Velden", 0.9)
HALF = ("Ada Brook directed Harbor Song; her birthplace is missing.", "Mora", 0.5)
SOLVED = ("Ada Brook directed Harbor Song and was born in Velden.", "Velden", 0.9)


@pytest.fixture
def index(tmp_path):
    with CorpusIndex.create(tmp_path / "index", WordEncoder()) as built:
        built.add(Document(passage.id, (passage,)) for passage in WORLD.values())
        yield built


class Script:
    """An LM told what to reason about each question, how the root is updated in turn, how questions are broken down and
    rewritten in turn, and which are irrelevant. A text in the place of a reasoning is the whole reply. Keeps the calls.
    """

    def __init__(self, reasons, updates=(), parts=None, rewritten=(), irrelevant=()):
        self.reasons, self.parts, self.irrelevant = reasons, parts or {}, irrelevant
        self.updates, self.rewritten = iter(updates), iter(rewritten)
        self.scores = {}
        self.calls = []

    def __call__(self, messages):
        system, fields = messages[0]["content"], fields_of(messages[-1]["content"])
        if "score:" in system:
            self.calls.append(f"judge {fields['question']}")
            return f"thought: t\nscore: {self.scores[fields['reasoning']]}"
        if "relevant:" in system:
            self.calls.append(f"check {fields['subquestion']}")
            return f"relevant: {'no' if fields['subquestion'] in self.irrelevant else 'yes'}"
        if "previous:" in system:
            self.calls.append(f"update {fields['subquestion']}")
            return self._reasoning(next(self.updates))
        if "open_questions:" in system:
            self.calls.append(f"rewrite {fields['open_questions']}")
            return "questions:\n" + "\n".join(next(self.rewritten))
        if "passages:" in system:
            self.calls.append(f"reason {fields['question']}")
            return self._reasoning(self.reasons[fields["question"]])
        self.calls.append(f"decompose {fields['question']}")
        parts = self.parts.get(fields["question"], "none")
        return parts if isinstance(parts, str) else "questions:\n" + "\n".join(parts)

    def _reasoning(self, reasoning):
        if isinstance(reasoning, str):
            return reasoning
        text, answer, score = reasoning
        self.scores[f"{text} The answer is: {answer}"] = score
        return f"reasoning: {text}\nanswer: {answer}"


def ask(index, script, question=QUESTION, **knobs):
    lm, engine = scripted_lm(script)
    with dspy.context(lm=lm):
        return D2FReAG(index, **{"k": 2, **knobs})(question=question), engine


def titles(ids):
    names = {passage.id: title for title, passage in WORLD.items()}
    return [names[id] for id in ids]


def cited(prediction):
    return [(citation.title, citation.sentence) for citation in prediction.citations]


def test_a_reliable_root_is_answered_directly(index):
    script = Script({DIRECTOR: NAMED})
    prediction, engine = ask(index, script, DIRECTOR)
    assert script.calls == [f"reason {DIRECTOR}", f"judge {DIRECTOR}"]
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Ada Brook", "direct", "reliable")
    assert (prediction.reasoning, prediction.reliability) == (NAMED[0], 0.8)
    assert titles(prediction.passages) == ["Harbor Song", "Harbor Light"]
    assert cited(prediction) == [("Harbor Song", 1)]
    (hop,) = prediction.hops
    assert (hop.query, hop.error) == (DIRECTOR, "")
    assert list(hop.passage_ids) == prediction.passages
    assert hop.thought == f"{NAMED[0]} The answer is: Ada Brook (reliability 0.8)"
    assert fields_of(engine.prompts[0][-1]["content"]) == {
        "question": DIRECTOR,
        "passages": "Harbor Song: Harbor Song is a film of 1950. The film Harbor Song was directed by Ada Brook.\n"
        "Harbor Light: Harbor Light is a film of 1961. The film Harbor Light was directed by Tom Hale.",
    }


@pytest.mark.parametrize(("score", "level"), [(0.7, "fallback"), (0.71, "direct")])
def test_solved_is_strictly_above_the_threshold(index, score, level):
    prediction, _ = ask(index, Script({DIRECTOR: (*NAMED[:2], score)}), DIRECTOR)
    assert prediction.level == level


def test_two_subquestions_the_second_rewritten(index):
    script = Script(
        {QUESTION: UNSURE, DIRECTOR: NAMED, ADA: BORN},
        updates=[HALF, SOLVED],
        parts={QUESTION: [DIRECTOR, BIRTHPLACE]},
        rewritten=[[ADA]],
    )
    prediction, engine = ask(index, script)
    assert script.calls == [
        f"reason {QUESTION}",
        f"judge {QUESTION}",
        f"decompose {QUESTION}",
        f"reason {DIRECTOR}",
        f"judge {DIRECTOR}",
        f"check {DIRECTOR}",
        f"update {DIRECTOR}",
        f"judge {QUESTION}",
        f"rewrite {BIRTHPLACE}",
        f"reason {ADA}",
        f"judge {ADA}",
        f"check {ADA}",
        f"update {ADA}",
        f"judge {QUESTION}",
    ]
    prompts = [fields_of(prompt[-1]["content"]) for prompt in engine.prompts]
    assert prompts[5] == {
        "question": QUESTION,
        "subquestion": DIRECTOR,
        "finding": f"{NAMED[0]} The answer is: Ada Brook",
    }
    assert prompts[6] == {
        "question": QUESTION,
        "previous": f"{UNSURE[0]} The answer is: Mora",
        "subquestion": DIRECTOR,
        "finding": f"{NAMED[0]} The answer is: Ada Brook",
    }
    assert prompts[7] == {"question": QUESTION, "reasoning": f"{HALF[0]} The answer is: Mora"}
    assert prompts[8] == {
        "question": QUESTION,
        "reasoning": f"{HALF[0]} The answer is: Mora",
        "open_questions": BIRTHPLACE,
    }
    assert prompts[12]["previous"] == f"{HALF[0]} The answer is: Mora"
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Velden", "decomposed", "reliable")
    assert (prediction.reasoning, prediction.reliability) == (SOLVED[0], 0.9)
    assert [hop.query for hop in prediction.hops] == [QUESTION, DIRECTOR, ADA]
    assert [titles(hop.passage_ids)[0] for hop in prediction.hops] == ["Harbor Song", "Harbor Song", "Ada Brook"]
    assert titles(prediction.passages)[:2] == ["Harbor Song", "Ada Brook"]
    # Where Ada Brook is named as the director, where she is said to be born in Velden.
    assert cited(prediction)[0] == ("Harbor Song", 1) and ("Ada Brook", 1) in cited(prediction)


def test_early_stop_leaves_the_other_subquestions(index):
    script = Script(
        {QUESTION: UNSURE, DIRECTOR: NAMED}, updates=[SOLVED], parts={QUESTION: [DIRECTOR, BIRTHPLACE, ADA]}
    )
    prediction, _ = ask(index, script)
    assert script.calls[-2:] == [f"update {DIRECTOR}", f"judge {QUESTION}"]
    assert (prediction.answer, prediction.level) == ("Velden", "decomposed")
    assert [hop.query for hop in prediction.hops] == [QUESTION, DIRECTOR]


def test_an_irrelevant_finding_is_not_used(index):
    town = "Is Velden a town?"
    script = Script(
        {QUESTION: UNSURE, town: ("Velden is one.", "yes", 1.0), ADA: BORN},
        updates=[SOLVED],
        parts={QUESTION: [town, ADA]},
        irrelevant=[town],
    )
    prediction, engine = ask(index, script, k=1)
    assert script.calls[3:] == [
        f"reason {town}",
        f"judge {town}",
        f"check {town}",
        f"reason {ADA}",  # as it was: nothing was learnt to rewrite it with
        f"judge {ADA}",
        f"check {ADA}",
        f"update {ADA}",
        f"judge {QUESTION}",
    ]
    assert all("Is Velden" not in prompt[-1]["content"] for prompt in engine.prompts[6:])
    assert prediction.answer == "Velden"
    assert titles(prediction.passages) == ["Harbor Song", "Ada Brook", "Velden"]  # what was not used comes last
    assert cited(prediction) == [("Ada Brook", 1)]  # nor is it cited, though it has the answer


def test_an_unreliable_subquestion_is_decomposed_in_its_turn(index):
    deep = "Which film is called Harbor Song?"
    script = Script(
        {QUESTION: UNSURE, BIRTHPLACE: ("Which director?", "unknown", 0.9), DIRECTOR: NAMED, ADA: BORN},
        updates=[HALF, SOLVED],
        parts={QUESTION: [BIRTHPLACE, deep], BIRTHPLACE: [DIRECTOR, ADA]},
        rewritten=[[ADA]],
    )
    prediction, _ = ask(index, script)
    assert script.calls == [
        f"reason {QUESTION}",
        f"judge {QUESTION}",
        f"decompose {QUESTION}",
        f"reason {BIRTHPLACE}",  # no answer: not reliable, whatever a judge would say
        f"decompose {BIRTHPLACE}",
        f"reason {DIRECTOR}",
        f"judge {DIRECTOR}",
        f"check {DIRECTOR}",
        f"update {DIRECTOR}",
        f"judge {QUESTION}",
        f"rewrite {ADA}",
        f"reason {ADA}",
        f"judge {ADA}",
        f"check {ADA}",
        f"update {ADA}",
        f"judge {QUESTION}",
    ]
    assert (prediction.answer, prediction.level) == ("Velden", "decomposed")
    assert [hop.query for hop in prediction.hops] == [QUESTION, BIRTHPLACE, DIRECTOR, ADA]  # and the outer one is left


def test_outer_subquestions_are_rewritten_with_what_inner_ones_found(index):
    vague = "Who made the film?"
    script = Script(
        {QUESTION: UNSURE, vague: ("Which film?", "Tom Hale", 0.2), DIRECTOR: NAMED, ADA: BORN},
        updates=[HALF, SOLVED],
        parts={QUESTION: [vague, BIRTHPLACE], vague: [DIRECTOR]},
        rewritten=[[ADA]],
    )
    prediction, _ = ask(index, script)
    assert script.calls[10:13] == [f"judge {QUESTION}", f"rewrite {BIRTHPLACE}", f"reason {ADA}"]
    assert prediction.answer == "Velden"


@pytest.mark.parametrize(("max_depth", "asked"), [(0, ["0"]), (1, ["0", "1"]), (2, ["0", "1", "2"])])
def test_the_depth_limit(index, max_depth, asked):
    """Each question is broken down into one more that is no more reliable."""
    script = Script(
        {str(number): (f"Step {number}.", f"answer {number}", 0.1) for number in range(9)},
        parts={str(number): [f"- {number + 1}"] for number in range(9)},
    )
    prediction, _ = ask(index, script, "0", max_depth=max_depth)
    assert [hop.query for hop in prediction.hops] == asked
    assert sum(call.startswith("decompose") for call in script.calls) == max_depth
    assert not any(call.startswith(("check", "update")) for call in script.calls)
    assert (prediction.answer, prediction.level) == ("answer 0", "fallback")
    assert prediction.stopped == ("worked_off" if max_depth else "max_depth")


@pytest.mark.parametrize(
    ("scores", "answer"),
    [
        ((0.4, 0.6, 0.5), "first update"),
        ((0.6, 0.5, 0.4), "root"),
        ((0.4, 0.6, 0.6), "second update"),  # ties go to the latest
    ],
)
def test_the_best_scored_root_reasoning_is_the_fallback(index, scores, answer):
    root, first, second = scores
    script = Script(
        {QUESTION: ("a", "root", root), DIRECTOR: NAMED, ADA: BORN},
        updates=[("b", "first update", first), ("c", "second update", second)],
        parts={QUESTION: [DIRECTOR, ADA]},
        rewritten=[[ADA]],
    )
    prediction, _ = ask(index, script)
    assert (prediction.answer, prediction.level, prediction.stopped) == (answer, "fallback", "worked_off")
    assert prediction.reliability == max(scores)


def test_a_refusal_is_no_fallback_for_an_answer(index):
    script = Script(
        {QUESTION: ("a", "Mora", 0.0), DIRECTOR: NAMED},
        updates=[("Nothing is known.", "unknown", None)],
        parts={QUESTION: [DIRECTOR]},
    )
    assert ask(index, script)[0].answer == "Mora"


@pytest.mark.parametrize(("parts", "calls"), [("questions: none", 1), ("I cannot do that.", 2), ("", 2)])
def test_without_subquestions_the_first_answer_stands(index, parts, calls):
    script = Script({QUESTION: UNSURE}, parts={QUESTION: parts})
    prediction, _ = ask(index, script)
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Mora", "fallback", "no_subquestions")
    assert script.calls[2:] == [f"decompose {QUESTION}"] * calls


def test_a_question_is_not_asked_twice(index):
    script = Script(
        {QUESTION: UNSURE, DIRECTOR: NAMED, ADA: BORN},
        updates=[HALF, HALF],
        parts={QUESTION: [DIRECTOR, QUESTION.lower(), ADA, f"{DIRECTOR.upper()}", ADA]},
        rewritten=[[DIRECTOR.lower(), ADA, ADA]],
    )
    prediction, _ = ask(index, script)
    assert [hop.query for hop in prediction.hops] == [QUESTION, DIRECTOR, ADA]
    assert f"rewrite {ADA}" in script.calls


def test_a_rewriting_that_never_ends_is_ended(index):
    """Every rewriting asks for two questions more."""
    endless = [f"- {number}" for number in range(100)]
    script = Script(
        {QUESTION: UNSURE, **{str(number): (f"Step {number}.", "x", 0.9) for number in range(100)}},
        updates=[HALF] * 100,
        parts={QUESTION: endless[:2]},
        rewritten=[endless[number : number + 3] for number in range(1, 100)],
    )
    prediction, _ = ask(index, script, max_subquestions=4)
    assert [hop.query for hop in prediction.hops] == [QUESTION, "0", "1", "2", "3"]
    assert prediction.stopped == "worked_off"


def test_a_decomposition_of_many_is_cut(index):
    script = Script(
        {str(number): (f"Step {number}.", "x", 0.1) for number in range(100)},
        parts={"0": [f"- {number}" for number in range(100)]},
    )
    prediction, _ = ask(index, script, "0", max_subquestions=3, max_depth=1)
    assert [hop.query for hop in prediction.hops] == ["0", "1", "2"]  # the question itself was the first of three


@pytest.mark.parametrize(("width", "depth"), [(2, 0), (3, 1), (2, 2), (5, 2)])
def test_the_most_it_can_cost(index, width, depth):
    """Only the deepest sub-questions are reliable, every list is full, every update is judged and rewritten with."""
    calls = []

    def reply(messages):
        system, fields = messages[0]["content"], fields_of(messages[-1]["content"])
        calls.append(fields)
        deepest = fields["question"].count(".") == depth
        if "score:" in system:
            return f"score: {0.9 if deepest and depth else 0.1}"
        if "relevant:" in system:
            return "relevant: yes"
        if "open_questions:" in system:
            return "questions:\n" + "\n".join(f"- {open}" for open in fields["open_questions"].splitlines())
        if "passages:" in system or "previous:" in system:
            return "answer: x"
        return "questions:\n" + "\n".join(f"- {fields['question']}.{number}" for number in range(width))

    prediction, _ = ask(index, reply, "0", max_subquestions=width, max_depth=depth)
    assert prediction.level == "fallback"
    benchmark = Benchmark("demo", "dev", [dspy.Example()], list(WORLD.values()))
    most = run_cost(benchmark, "d2f_reag", settings_of("d2f_reag", max_subquestions=width, max_depth=depth))
    assert len(calls) == most["lm_calls"]


def test_the_case_study_of_the_paper(index):
    """Section 6 with other names: a comparison whose sub-questions are rewritten once the directors are known."""
    question = "Which film has the director who died later, Harbor Song or Harbor Light?"
    song = "Who directed Harbor Song and when did the director die?"
    light = "Who directed Harbor Light and when did the director die?"
    ada, tom = "When did Ada Brook die?", "When did Tom Hale die?"
    later, years = "Which year is later?", "Which year is later, 1988 or 1990?"
    script = Script(
        {
            question: ("The directors are named, Ada Brook and Tom Hale, but not their deaths.", "Harbor Song", 0.4),
            song: ("The director of Harbor Song is Ada Brook.", "Ada Brook", 0.8),
            light: ("The director of Harbor Light is Tom Hale.", "Tom Hale", 0.8),
            ada: ("Ada Brook died on 19 February 1988.", "19 February 1988", 0.9),
            tom: ("Tom Hale died on 1 January 1990.", "1 January 1990", 0.9),
            years: ("1990 is later than 1988.", "1990", 1.0),
        },
        parts={question: [song, light, later]},
        updates=[
            ("Ada Brook directed Harbor Song.", "Harbor Song", 0.4),
            ("Ada Brook directed Harbor Song, Tom Hale Harbor Light.", "Harbor Song", 0.4),
            ("Ada Brook, of Harbor Song, died in 1988; Tom Hale's death is missing.", "Harbor Song", 0.5),
            ("Ada Brook died in 1988, Tom Hale, of Harbor Light, in 1990.", "Harbor Light", 0.7),
            ("Tom Hale, of Harbor Light, died in 1990, later than Ada Brook in 1988.", "Harbor Light", 1.0),
        ],
        rewritten=[[light, later], [ada, tom, later], [tom, later], [years]],
    )
    prediction, _ = ask(index, script, question)
    assert [hop.query for hop in prediction.hops] == [question, song, light, ada, tom, years]
    assert [call for call in script.calls if call.startswith("rewrite")] == [
        f"rewrite {light}\n{later}",
        f"rewrite {later}",
        f"rewrite {tom}\n{later}",
        f"rewrite {later}",
    ]
    assert (prediction.answer, prediction.level, prediction.stopped) == ("Harbor Light", "decomposed", "reliable")
    assert prediction.reliability == 1.0
    assert {("Harbor Song", 1), ("Harbor Light", 1), ("Brook family", 0), ("Hale family", 0)} <= set(cited(prediction))


def test_an_unreadable_reasoning_is_not_reliable_and_loses_nothing(index):
    script = Script({QUESTION: "no idea", ADA: BORN}, updates=[SOLVED], parts={QUESTION: [ADA]})
    prediction, _ = ask(index, script)
    assert script.calls[:3] == [f"reason {QUESTION}", f"reason {QUESTION}", f"decompose {QUESTION}"]
    assert (prediction.answer, prediction.level) == ("Velden", "decomposed")
    assert [hop.error for hop in prediction.hops] == ["the reply has no answer:", ""]


def test_an_unreadable_score_is_noted(index):
    script = Script({DIRECTOR: (*NAMED[:2], "high")})
    prediction, _ = ask(index, script, DIRECTOR)
    assert (prediction.answer, prediction.level, prediction.reliability) == ("Ada Brook", "fallback", 0)
    assert prediction.hops[0].error == "score is no number from 0 to 1"


def test_an_unreadable_update_changes_nothing(index):
    script = Script(
        {QUESTION: UNSURE, DIRECTOR: NAMED, ADA: BORN},
        updates=["chat", "chat", SOLVED],
        parts={QUESTION: [DIRECTOR, ADA]},
    )
    prediction, engine = ask(index, script)
    assert script.calls[6:9] == [
        f"update {DIRECTOR}",
        f"update {DIRECTOR}",
        f"reason {ADA}",
    ]  # no verdict, no rewriting
    last = next(
        fields_of(prompt[-1]["content"]) for prompt in reversed(engine.prompts) if "previous:" in prompt[0]["content"]
    )
    assert last["previous"] == f"{UNSURE[0]} The answer is: Mora"
    assert prediction.answer == "Velden"


def test_garbage_alone_ends_without_an_answer(index):
    prediction, engine = ask(index, lambda messages: "")
    assert (prediction.answer, prediction.level, prediction.stopped) == ("", "fallback", "no_subquestions")
    assert len(engine.prompts) == 4


def test_an_empty_index_calls_no_lm(tmp_path):
    with CorpusIndex.create(tmp_path / "empty", WordEncoder()) as empty:
        prediction, engine = ask(empty, [])
    assert (prediction.answer, prediction.level, prediction.stopped) == ("", "fallback", "no_passages")
    assert (prediction.passages, prediction.citations, engine.prompts) == ([], [], [])
    assert [hop.query for hop in prediction.hops] == [QUESTION]


def test_an_lm_that_cannot_be_reached_fails_the_question(index):
    from dspy.lm15 import ServerError
    from dspy.utils.exceptions import LMError

    with pytest.raises(LMError):
        ask(index, lambda messages: ServerError("down"))


def test_nothing_is_reliable_at_a_threshold_of_one(index):
    """Always decomposed, never updated: the direct answer at the price of decomposition."""
    script = Script(
        {QUESTION: (*SOLVED[:2], 1.0), DIRECTOR: (*NAMED[:2], 1.0), ADA: (*BORN[:2], 1.0)},
        parts={QUESTION: [DIRECTOR, ADA]},
    )
    prediction, _ = ask(index, script, threshold=1.0)
    assert (prediction.answer, prediction.level, len(prediction.hops)) == ("Velden", "fallback", 3)


def test_program_is_a_dspy_program(index, tmp_path):
    program = D2FReAG(index)
    assert [name for name, _ in program.named_predictors()] == [
        "reason.generate",
        "reliability.judge",
        "decompose.decompose",
        "rewrite.rewrite",
        "relevance.check",
        "update.update",
    ]
    program.rewrite.rewrite.demos = [dspy.Example(question="q", questions="a?")]
    program.save(tmp_path / "program.json")
    again = D2FReAG(index)
    again.load(tmp_path / "program.json")
    assert [dict(demo) for demo in again.rewrite.rewrite.demos] == [{"question": "q", "questions": "a?"}]
    assert program.deepcopy().index is index
    lm, _ = scripted_lm([])
    program.set_lm(lm)
    assert all(predictor.lm is lm for predictor in program.predictors())
    assert isinstance(build_system("d2f_reag", None), D2FReAG)


def test_many_questions_at_once(index):
    from concurrent.futures import ThreadPoolExecutor

    lm, _ = scripted_lm(Script({DIRECTOR: NAMED, ADA: BORN}))
    program = D2FReAG(index, k=2)
    program.set_lm(lm)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda question: program(question=question).answer, [DIRECTOR, ADA] * 8))
    assert answers == ["Ada Brook", "Velden"] * 8


@pytest.mark.parametrize(
    ("knobs", "says"),
    [
        ({"k": 0}, "k must be at least 1, not 0"),
        ({"max_depth": -1}, "max_depth must be at least 0, not -1"),
        ({"max_depth": 11}, "max_depth must be at most 10, not 11"),
        ({"max_subquestions": 0}, "max_subquestions must be at least 1, not 0"),
        ({"threshold": 1.1}, "threshold must be from 0 to 1, not 1.1"),
        ({"threshold": -0.1}, "threshold must be from 0 to 1, not -0.1"),
        ({"threshold": float("nan")}, "threshold must be from 0 to 1, not nan"),
    ],
)
def test_knobs_are_checked(index, knobs, says):
    with pytest.raises(ValueError, match=says):
        D2FReAG(index, **knobs)
