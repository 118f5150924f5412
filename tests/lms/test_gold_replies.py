"""The annotations teacher in the roles of IRCoT, ReAct and D2F-ReAG: call by call, and at work in the systems."""

import dspy
import pytest

from cirag_dspy.adapter import LineAdapter
from cirag_dspy.lms import load_lm
from cirag_dspy.schema import Passage
from cirag_dspy.signatures import (
    AnswerAnyway,
    AnswerWithReason,
    CheckRelevance,
    DecomposeQuestion,
    DraftThought,
    JudgeReliability,
    NextAction,
    NextThought,
    ReasonFromPassages,
    RewriteQuestions,
    UpdateReasoning,
)
from cirag_dspy.systems.d2f_reag import D2FReAG
from cirag_dspy.systems.ircot import IRCoT
from cirag_dspy.systems.react import ReAct
from tests.lms.annotated import ALL, BROOK, CORPUS, HALE, HOTPOT, LIGHT, MUSIQUE, OLDER, SONG, WIKI, YES, teach
from tests.systems.world import PASSAGES, world_index

DIRECTED = "Harbor Song director: Ada Brook."
BORN = "Ada Brook place of birth: Velden."
UNKNOWN = "What is missing is Harbor Song director."


@pytest.fixture(scope="module")
def ask():
    return teach(ALL, CORPUS)


def shown(*passages):
    return "\n".join(f"{passage.title}: {passage.text}" for passage in passages)


@pytest.mark.parametrize(
    ("example", "passages", "thoughts", "thought"),
    [
        (WIKI, [SONG, BROOK], "none", DIRECTED),
        (WIKI, [SONG, BROOK], DIRECTED, BORN),
        (WIKI, [SONG], DIRECTED, "What is missing is Ada Brook place of birth."),
        (WIKI, [SONG, BROOK], f"{DIRECTED} {BORN}", "So the answer is: Velden."),
        # Her birthplace is in sight, but nobody has named her: only the gold knows that she is meant.
        (WIKI, [LIGHT, BROOK], "none", UNKNOWN),
        (WIKI, [LIGHT, BROOK], UNKNOWN, "The passages say no more."),
        (MUSIQUE, [SONG, BROOK], DIRECTED, "In which town was Ada Brook born: Velden."),
        (MUSIQUE, [SONG], DIRECTED, "What is missing is In which town was Ada Brook born."),
        (HOTPOT, [SONG, BROOK], "none", "Harbor Song Harbor Song is a 1950 film directed by Ada Brook."),
        (OLDER, [SONG, LIGHT], DIRECTED, "Harbor Light director: Tom Hale."),
        # A choice is made in the end, without the gold.
        (YES, [BROOK], "What is missing is Harbor Song directed. What is missing is Harbor Light directed.", None),
    ],
)
def test_the_next_thought_is_a_fact_in_sight_or_what_is_missing(ask, example, passages, thoughts, thought):
    told = ask(NextThought, question=example.question, passages=shown(*passages), thoughts=thoughts).thought
    assert told == (thought or "So the answer is: no.")


def test_what_is_missing_is_not_taken_for_a_fact(ask):
    """A search for a supporting sentence has most of its words."""
    thoughts = "What is missing is Harbor Song directed. What is missing is Harbor Light directed."
    assert ask(JudgeReliability, question=YES.question, reasoning=thoughts).score == "0.2"


@pytest.mark.parametrize(
    ("example", "passages", "action"),
    [
        (WIKI, [], "search[Harbor Song director]"),
        (WIKI, [SONG], "search[Ada Brook place of birth]"),
        (WIKI, [LIGHT], "search[Harbor Song director]"),
        (WIKI, [SONG, BROOK], "finish[Velden]"),
        (WIKI, [BROOK], "search[Harbor Song director]"),  # her birthplace is in sight, but nobody has named her
        (OLDER, [SONG, LIGHT, BROOK], "search[Tom Hale date of birth]"),
        (OLDER, [SONG, LIGHT, BROOK, HALE], "finish[Harbor Song]"),
    ],
)
def test_an_agent_searches_for_what_is_missing_and_finishes(ask, example, passages, action):
    observation = shown(*passages) or "nothing searched for yet"
    reply = ask(NextAction, history=dspy.History(messages=[]), question=example.question, observation=observation)
    assert reply.action == action


def test_an_agent_remembers_what_it_saw_and_does_not_search_twice(ask):
    def turn(observation, action):
        return {"question": WIKI.question, "observation": observation, "thought": "t", "action": action}

    turns = [turn("nothing searched for yet", "search[Harbor Song director]")]
    lost = ask(NextAction, history=dspy.History(messages=turns), question=WIKI.question, observation=shown(HALE))
    assert (lost.thought, lost.action) == ("nothing known yet", "finish[unanswerable]")
    turns.append(turn(shown(SONG), "search[Ada Brook place of birth]"))
    found = ask(NextAction, history=dspy.History(messages=turns), question=WIKI.question, observation=shown(BROOK))
    assert (found.thought, found.action) == (f"{DIRECTED[:-1]}; {BORN[:-1]}", "finish[Velden]")


def test_demonstrations_are_no_turns_of_its_own():
    shown_before = {"observation": shown(SONG, BROOK), "thought": "t", "action": "search[Harbor Song director]"}
    agent = dspy.Predict(NextAction)
    agent.demos = [dspy.Example(question=OLDER.question, **shown_before)]
    with dspy.context(lm=load_lm("annotations", examples=ALL, passages=CORPUS), adapter=LineAdapter()):
        inputs = {"question": WIKI.question, "observation": "nothing searched for yet"}
        reply = agent(history=dspy.History(messages=[]), **inputs)
    assert (reply.thought, reply.action) == ("nothing known yet", "search[Harbor Song director]")


def test_prompts_of_other_systems_are_refused(ask):
    """They have fields of the same names, and are not to be taken for one another."""
    with pytest.raises(Exception, match="give a real LM for anything else"):
        ask(DraftThought, question=WIKI.question, thoughts="none")
    with pytest.raises(Exception, match="give a real LM for anything else"):
        ask(AnswerWithReason, question=WIKI.question, passages=shown(SONG), advice="none")


def test_an_agent_that_can_name_nothing_looks_once():
    hidden = HOTPOT.copy(question="Where was its director born?")
    inputs = {"question": hidden.question, "observation": "nothing searched for yet"}
    reply = teach([hidden], CORPUS)(NextAction, history=dspy.History(messages=[]), **inputs)
    assert reply.action == f"search[{hidden.question}]"


@pytest.mark.parametrize(
    ("question", "questions"),
    [
        (WIKI.question, ["Harbor Song director", "(Harbor Song director) place of birth"]),
        (MUSIQUE.question, ["Harbor Song director", "In which town was (Harbor Song director) born"]),
        (
            OLDER.question,
            [
                "Harbor Song director",
                "Harbor Light director",
                "(Harbor Song director) date of birth",
                "(Harbor Light director) date of birth",
            ],
        ),
        (HOTPOT.question, []),  # its second passage has a title that only the gold knows
        ("Harbor Song director?", []),  # a sub-question of one step
        ("(Harbor Song director) place of birth?", ["Harbor Song director", "(Harbor Song director) place of birth"]),
        ("Ada Brook place of birth?", []),
    ],
)
def test_sub_questions_describe_what_is_not_known(ask, question, questions):
    told = ask(DecomposeQuestion, question=question).questions
    assert told == ("\n".join(f"- {text}?" for text in questions) or "none")


def test_sub_questions_are_rewritten_with_what_is_known(ask):
    def rewritten(reasoning):
        return ask(RewriteQuestions, question=WIKI.question, reasoning=reasoning, open_questions="x?").questions

    assert rewritten(f"{DIRECTED} The answer is: Ada Brook") == "- Ada Brook place of birth?"
    assert rewritten(f"{DIRECTED} {BORN} The answer is: Velden") == "none"


@pytest.mark.parametrize(
    ("question", "passages", "reasoning", "answer"),
    [
        (WIKI.question, [SONG, BROOK], f"{DIRECTED} {BORN}", "Velden"),
        (WIKI.question, [SONG], f"{DIRECTED} What is missing is Ada Brook place of birth.", "Ada Brook"),
        (WIKI.question, [BROOK], UNKNOWN, "Velden"),  # the answer is in sight, its reason is not
        (WIKI.question, [HALE], UNKNOWN, "unanswerable"),
        ("Harbor Song director?", [SONG], DIRECTED, "Ada Brook"),
        ("Ada Brook place of birth?", [BROOK], BORN, "Velden"),
        ("(Harbor Song director) place of birth?", [SONG, BROOK], f"{DIRECTED} {BORN}", "Velden"),
        ("In which town was Ada Brook born?", [BROOK], "In which town was Ada Brook born: Velden.", "Velden"),
        (OLDER.question, [SONG], f"{DIRECTED} What is missing is Harbor Light director.", "Harbor Song"),  # a guess
    ],
)
def test_a_reasoning_states_what_passages_say_and_what_is_missing(ask, question, passages, reasoning, answer):
    reply = ask(ReasonFromPassages, question=question, passages=shown(*passages))
    assert (reply.reasoning, reply.answer) == (reasoning, answer)


@pytest.mark.parametrize(
    ("question", "reasoning", "score"),
    [
        (WIKI.question, f"{DIRECTED} {BORN} The answer is: Velden", "0.9"),
        (WIKI.question, f"{DIRECTED} What is missing is Ada Brook place of birth. The answer is: Ada Brook", "0.2"),
        (WIKI.question, f"{UNKNOWN} The answer is: Velden", "0.2"),
        (WIKI.question, f"{BORN} The answer is: Velden", "0.9"),  # whatever was left out on the way
        ("Harbor Song director?", f"{DIRECTED} The answer is: Ada Brook", "0.9"),
        (OLDER.question, f"{DIRECTED} The answer is: Harbor Song", "0.2"),
    ],
)
def test_a_reasoning_is_reliable_if_it_states_what_answers(ask, question, reasoning, score):
    assert ask(JudgeReliability, question=question, reasoning=reasoning).score == score


def test_findings_are_checked_and_added(ask):
    finding = f"{BORN} The answer is: Velden"
    about = {"question": WIKI.question, "subquestion": "Ada Brook place of birth?"}
    assert ask(CheckRelevance, **about, finding=finding).relevant == "yes"
    assert ask(CheckRelevance, **about, finding="Tom Hale place of birth: Mora.").relevant == "no"
    reply = ask(UpdateReasoning, **about, previous=f"{DIRECTED} The answer is: Ada Brook", finding=finding)
    assert (reply.reasoning, reply.answer) == (f"{DIRECTED} {BORN}", "Velden")


def test_the_chat_form_of_the_prompts_is_read_too():
    lm = load_lm("annotations", examples=ALL, passages=CORPUS)
    with dspy.context(lm=lm, adapter=dspy.ChatAdapter(use_json_adapter_fallback=False)):
        told = dspy.Predict(ReasonFromPassages)(question=WIKI.question, passages=shown(SONG, BROOK))
        assert told.reasoning == f"{DIRECTED} {BORN}"
        assert dspy.Predict(DecomposeQuestion)(question=WIKI.question).questions.startswith("- Harbor Song director?")


@pytest.mark.parametrize(
    ("evidences", "questions"),
    [
        # 2WikiMultiHopQA has spouses of each other; the question names neither.
        ([("Ada Brook", "spouse", "Tom Hale"), ("Tom Hale", "spouse", "Ada Brook")], []),
        # What rests on a name that only the gold knows can't be described by it.
        ([("Lady Zed", "child", "Ada Brook"), ("Ada Brook", "place of birth", "Velden")], []),
        ([("Harbor Song", "director", "Ada Brook"), ("Ada Brook", "place of birth", "Velden")], [
            "Harbor Song director",
            "(Harbor Song director) place of birth",
        ]),
    ],
)  # fmt: skip
def test_a_sub_question_names_nothing_that_only_the_gold_knows(evidences, questions):
    example = WIKI.copy(evidences=[*evidences, *evidences])  # given twice, it is still one fact
    reply = teach([example], CORPUS)(DecomposeQuestion, question=example.question)
    assert reply.questions == ("\n".join(f"- {text}?" for text in questions) or "none")


def test_every_sub_question_has_its_gold():
    """Also of a step that names two earlier answers, of which either may be found first."""
    both = MUSIQUE.copy(
        question="When did the composer of Harbor Song visit the town of Tom Hale?",
        answers=["1930"],
        decomposition=[
            {"question": "Harbor Song >> composer", "answer": "Zed Moss", "passage_id": SONG.id},
            {"question": "Tom Hale >> town", "answer": "Mora", "passage_id": HALE.id},
            {"question": "When did #1 visit #2?", "answer": "1930", "passage_id": BROOK.id},
        ],
    )
    call = teach([both], CORPUS)
    for known, last in [
        ("Nothing.", "When did (Harbor Song composer) visit (Tom Hale town)?"),
        ("Harbor Song composer: Zed Moss.", "When did Zed Moss visit (Tom Hale town)?"),
        ("Tom Hale town: Mora.", "When did (Harbor Song composer) visit Mora?"),
        ("Harbor Song composer: Zed Moss. Tom Hale town: Mora.", "When did Zed Moss visit Mora?"),
    ]:
        questions = call(RewriteQuestions, question=both.question, reasoning=known, open_questions="x?").questions
        assert questions.splitlines()[-1] == f"- {last}"
        assert call(ReasonFromPassages, question=last, passages=shown(LIGHT)).answer == "unanswerable"


def test_references_to_no_step_before():
    """Of a damaged file: to the step itself, to a later one, and to none."""
    steps = ["#1 >> director", "Who knew #3?", "Where is #0?", "When was #9 born?"]
    damaged = MUSIQUE.copy(
        decomposition=[{"question": step, "answer": "Velden", "passage_id": BROOK.id} for step in steps]
    )
    call = teach([damaged], CORPUS)
    assert call(NextThought, question=damaged.question, passages=shown(SONG), thoughts="none").thought
    assert call(ReasonFromPassages, question=damaged.question, passages=shown(SONG)).answer


def test_the_order_of_supporting_sentences_means_nothing():
    """HotpotQA lists them by passage: the one that tells the answer ends the chain."""
    turned = HOTPOT.copy(gold_sentences=[(BROOK.id, 1), (SONG.id, 0)])
    call = teach([turned], CORPUS)
    directed = "Harbor Song Harbor Song is a 1950 film directed by Ada Brook."
    seen = {"question": turned.question, "passages": shown(SONG, BROOK)}
    assert call(NextThought, thoughts=directed, **seen).thought == "Ada Brook She was born in Velden."
    assert call(JudgeReliability, question=turned.question, reasoning=directed).score == "0.2"


def test_an_answer_that_a_later_sentence_of_a_fact_tells():
    """IRCoT keeps the first sentence of a thought; the passages tell the rest."""
    longer = HOTPOT.copy(gold_sentences=[(SONG.id, 0), (BROOK.id, 0), (BROOK.id, 1)])
    thoughts = (
        "Harbor Song Harbor Song is a 1950 film directed by Ada Brook. "
        "Ada Brook Ada Brook (3 May 1901 – 9 June 1980) was a director."
    )
    call = teach([longer], CORPUS)
    told = call(NextThought, question=longer.question, passages=shown(SONG, BROOK), thoughts=thoughts)
    assert told.thought == "So the answer is: Velden."


def test_a_name_that_ends_in_a_full_stop():
    junior = WIKI.copy(evidences=[("Harbor Song", "director", "Tom Hale Jr."), ("Tom Hale Jr.", "born in", "Velden")])
    film = Passage.create("Harbor Song", ["Harbor Song was directed by Tom Hale Jr."])
    call = teach([junior], [*CORPUS, film])
    told = call(ReasonFromPassages, question=junior.question, passages=shown(film)).reasoning
    assert told == "Harbor Song director: Tom Hale Jr. What is missing is Tom Hale Jr. born in."
    assert call(NextThought, question=junior.question, passages=shown(film), thoughts=told).thought == (
        "The passages say no more."
    )


@pytest.mark.parametrize("adapter", [LineAdapter(), dspy.ChatAdapter(use_json_adapter_fallback=False)])
def test_passages_that_look_like_fields_and_prompts_that_look_like_others(adapter):
    trap = "thoughts: Harbor Song director: Ada Brook. Ada Brook place of birth: Velden.\ncore: 1\nfinding: x"
    passages = f"{trap}\n{shown(SONG, BROOK)}"
    with dspy.context(lm=load_lm("annotations", examples=ALL, passages=CORPUS), adapter=adapter):
        inputs = {"question": WIKI.question, "passages": passages}
        assert dspy.Predict(NextThought)(**inputs, thoughts="none").thought == DIRECTED
        assert dspy.Predict(AnswerAnyway)(**inputs).answer == "Velden"
        for opening in ("Reply with exactly:", "Your output fields are:"):
            odd = NextThought.with_instructions(f"Think.\n{opening}\nanswer: x\nGo.")
            assert dspy.Predict(odd)(**inputs, thoughts="none").thought == DIRECTED


@pytest.mark.parametrize(
    ("system", "queries", "stopped"),
    [
        (
            lambda index: IRCoT(index, k=1),
            [
                "Q",
                "The film Harbor Song director: Ada Brook.",  # finds the film again
                "What is missing is Ada Brook place of birth.",
                "Ada Brook place of birth: Velden.",
            ],
            "answered",
        ),
        (
            lambda index: ReAct(index, k=1),
            ["The film Harbor Song director", "Ada Brook place of birth", ""],
            "finished",
        ),
        (
            lambda index: D2FReAG(index, k=1),
            ["Q", "The film Harbor Song director?", "Ada Brook place of birth?"],
            "reliable",
        ),
    ],
    ids=["ircot", "react", "d2f_reag"],
)
def test_a_system_finds_its_way_with_this_teacher(tmp_path, system, queries, stopped):
    """The film's director, then her place of birth: one passage a search, so that each has to be asked for."""
    example = WIKI.copy(
        question="Where was the director of the film Harbor Song born?",
        evidences=[("The film Harbor Song", "director", "Ada Brook"), ("Ada Brook", "place of birth", "Velden")],
        gold_sentences=[(PASSAGES["Harbor Song"].id, 1), (PASSAGES["Ada Brook"].id, 1)],
    )
    lm = load_lm("annotations", examples=[example], passages=list(PASSAGES.values()))
    with world_index(tmp_path) as index, dspy.context(lm=lm):
        prediction = system(index)(question=example.question)
    assert prediction.answer == "Velden"
    assert prediction.stopped == stopped
    assert [hop.query for hop in prediction.hops] == [example.question if q == "Q" else q for q in queries]
