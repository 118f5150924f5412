"""Every branch of the loop and the cascade, with the calls, hops, core triples, level and citations worked out by hand.

The encoder is word overlap and K = 2, so each query's passages can be read off its words.
"""

import dspy
import pytest

from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import Document
from cirag_dspy.schema import Citation, Extraction, Passage
from cirag_dspy.systems.cirag import CIRAGModule
from tests.fakes import WordEncoder, fields_of, scripted_lm
from tests.systems.world import PASSAGES, TRIPLES, GoldLM, fill, titles

DIRECTED = ("Harbor Song", "was directed by", "Ada Brook")
BORN = ("Ada Brook", "was born in", "Velden")
RIVER = ("Velden", "lies on", "the river Ree")
SONG_YEAR = ("Harbor Song", "is a film of", "1950")
LIGHT_YEAR = ("Harbor Light", "is a film of", "1961")


@pytest.fixture
def filled(index):
    fill(index)
    return index


def ask(index, lm_reply, question, **knobs):
    lm, engine = scripted_lm(lm_reply)
    with dspy.context(lm=lm):
        return CIRAGModule(index, **{"k": 2, "n": 4, "threads": 1, **knobs})(question=question), engine


def cited(prediction):
    return [(citation.title, citation.sentence) for citation in prediction.citations]


def test_two_hops(filled):
    gold = GoldLM([DIRECTED, BORN], ["Ada Brook was born in", "none"], "Velden")
    prediction, _ = ask(filled, gold, "Who directed Harbor Song and in which town was that person born?")
    assert prediction.answer == "Velden"
    assert prediction.level == "triples"
    assert prediction.stopped == "no_query"
    assert gold.calls == [
        "integrate Who directed Harbor Song and in which town was that person born?",
        "integrate Ada Brook was born in",
        "answer",
    ]
    first, second = prediction.hops
    assert first.core == (TRIPLES["Harbor Song"][1],)
    assert (first.thought, first.next_query) == ("turn 0", "Ada Brook was born in")
    assert titles(second.passage_ids) == ["Ada Brook", "Tom Hale"]
    assert second.core == (TRIPLES["Ada Brook"][1],)
    assert second.next_query == ""
    assert prediction.triples == [TRIPLES["Harbor Song"][1], TRIPLES["Ada Brook"][1]]
    assert prediction.citations == [
        Citation(PASSAGES["Harbor Song"].id, "Harbor Song", 1, "The film Harbor Song was directed by Ada Brook."),
        Citation(PASSAGES["Ada Brook"].id, "Ada Brook", 1, "Ada Brook was born in Velden."),
    ]
    assert titles(prediction.passages)[:2] == ["Harbor Song", "Ada Brook"]


def test_facts_are_copied_where_the_integrator_is_told_to(filled):
    """An altered copy counts as the candidate that it shares most words with."""
    replies = [
        "core: Harbor Song | directed by | Ada Brook\nnext_query: Ada Brook was born in",
        "core: Ada Brook | was born in | Velden\nnext_query: none",
        "answer: Velden",
    ]
    prediction, engine = ask(filled, replies, "Where was the director of Harbor Song born?", core="text")
    assert prediction.triples == [TRIPLES["Harbor Song"][1], TRIPLES["Ada Brook"][1]]
    assert (prediction.answer, prediction.level) == ("Velden", "triples")
    shown = fields_of(engine.prompts[1][1]["content"])["facts"].splitlines()
    assert set(shown) == {t.text for title in ("Harbor Song", "Harbor Light") for t in TRIPLES[title]}
    # The turn before is shown as it counted: the candidate's own words.
    assert engine.prompts[1][2]["content"] == (
        "core: Harbor Song | was directed by | Ada Brook\nnext_query: Ada Brook was born in"
    )


def test_three_hops(filled):
    gold = GoldLM(
        [DIRECTED, BORN, RIVER], ["Ada Brook was born in", "Velden lies on the river", "none"], "the river Ree"
    )
    prediction, engine = ask(filled, gold, "Which river flows by the birthplace of the director of Harbor Song?")
    assert (prediction.answer, prediction.level, len(prediction.hops)) == ("the river Ree", "triples", 3)
    assert [hop.core for hop in prediction.hops] == [
        (TRIPLES["Harbor Song"][1],),
        (TRIPLES["Ada Brook"][1],),
        (TRIPLES["Velden"][1],),
    ]
    assert cited(prediction) == [("Harbor Song", 1), ("Ada Brook", 1), ("Velden", 1)]
    # The loop is one conversation: each prompt begins with the one before it.
    one, two, three, _ = engine.prompts
    assert two[: len(one)] == one and three[: len(two)] == two


def test_comparison_keeps_parallel_branches(filled):
    gold = GoldLM([SONG_YEAR, LIGHT_YEAR], ["none"], "Harbor Song")
    prediction, _ = ask(filled, gold, "Which film is older, Harbor Song or Harbor Light?")
    assert (prediction.answer, prediction.level, len(prediction.hops)) == ("Harbor Song", "triples", 1)
    assert set(prediction.hops[0].core) == {TRIPLES["Harbor Song"][0], TRIPLES["Harbor Light"][0]}
    assert sorted(cited(prediction)) == [("Harbor Light", 0), ("Harbor Song", 0)]


def test_triples_are_extracted_online_once(index):
    question = "Who directed the film Harbor Song?"
    gold = GoldLM([DIRECTED], ["none"], "Ada Brook")
    prediction, _ = ask(index, gold, question)
    assert prediction.answer == "Ada Brook"
    assert gold.calls == [
        "extract Harbor Song",
        "extract Harbor Light",
        f"integrate {question}",
        "answer",
    ]
    again = GoldLM([DIRECTED], ["none"], "Ada Brook")
    ask(index, again, question)
    assert again.calls == [f"integrate {question}", "answer"]


def test_sentences_when_triples_do_not_suffice(filled):
    gold = GoldLM([DIRECTED], ["none"], "Ada Brook", sufficient=lambda evidence: "The film" in evidence)
    prediction, engine = ask(filled, gold, "Who directed the film Harbor Song?")
    assert (prediction.answer, prediction.level) == ("Ada Brook", "sentences")
    assert gold.calls[1:] == ["refuse", "answer"]
    assert engine.prompts[-1][-1]["content"].endswith("Harbor Song: The film Harbor Song was directed by Ada Brook.")
    assert cited(prediction) == [("Harbor Song", 1)]


def test_passages_when_sentences_do_not_suffice(filled):
    gold = GoldLM([DIRECTED], ["none"], "1950", sufficient=lambda evidence: "1950" in evidence)
    prediction, _ = ask(filled, gold, "Who directed the film Harbor Song?")
    assert (prediction.answer, prediction.level) == ("1950", "passages")
    assert gold.calls[1:] == ["refuse", "refuse", "answer"]
    assert cited(prediction) == [("Harbor Song", 1), ("Harbor Song", 0)]  # the evidence, then where the answer stands


def test_default_when_all_refuse(filled):
    gold = GoldLM([DIRECTED], ["none"], "1950", sufficient=lambda evidence: False)
    prediction, engine = ask(filled, gold, "Who directed the film Harbor Song?")
    assert (prediction.answer, prediction.level) == ("1950", "default")
    assert gold.calls[1:] == ["refuse", "refuse", "refuse", "forced answer"]
    sufficing, forced = (prompt[-1]["content"] for prompt in engine.prompts[-2:])
    assert "Harbor Light: " not in sufficing  # it was retrieved, and no core triple is its
    assert forced.index("Harbor Song: ") < forced.index("Harbor Light: ")


def test_the_gate_fails_closed(filled):
    def reply(messages):
        if "core:" in messages[0]["content"]:
            return "core: 1\nnext_query: none"
        return "chat, no answer field" if "evidence" in messages[-1]["content"] else "answer: forced"

    prediction, engine = ask(filled, reply, "Who directed the film Harbor Song?")
    assert (prediction.answer, prediction.level) == ("forced", "default")
    assert len(engine.prompts) == 1 + 3 + 1  # the levels are not asked twice: the next one is the second try


def test_levels_can_be_chosen(filled):
    gold = GoldLM([DIRECTED], ["none"], "Ada Brook", sufficient=lambda evidence: "The film" in evidence)
    prediction, _ = ask(filled, gold, "Who directed the film Harbor Song?", levels=["passages", "sentences"])
    assert prediction.level == "sentences"
    assert gold.calls[1:] == ["answer"]
    with pytest.raises(ValueError, match="levels must be some of triples, sentences, passages, not words"):
        CIRAGModule(filled, levels=["words"])


def test_stops_at_a_query_asked_before(filled):
    question = "Who directed the film Harbor Song?"
    gold = GoldLM([DIRECTED], ["who directed the film harbor song"], "Ada Brook")
    prediction, _ = ask(filled, gold, question)
    assert (prediction.stopped, len(prediction.hops)) == ("repeated_query", 1)


def test_stops_when_a_hop_brings_nothing_new(filled):
    gold = GoldLM([DIRECTED], ["film Harbor Song or film Harbor Light", "another query"], "Ada Brook")
    prediction, _ = ask(filled, gold, "Who directed the film Harbor Song?")
    assert (prediction.stopped, len(prediction.hops)) == ("nothing_new", 2)
    assert [hop.core for hop in prediction.hops] == [(TRIPLES["Harbor Song"][1],), ()]


def test_facts_shown_before_can_become_core_once_a_name_is_known(filled):
    """K = 10 shows the whole small corpus at the first hop; the second hop still gets its turn."""
    wanted = []

    def reply(messages):
        if "core:" in messages[0]["content"]:
            wanted.append(DIRECTED if len(messages) == 2 else BORN)
        return GoldLM(wanted[-1:], ["Ada Brook was born in", "none"], "Velden", lambda evidence: True)(messages)

    prediction, _ = ask(filled, reply, "Who directed Harbor Song and where was that person born?", k=10, n=30)
    assert [hop.core for hop in prediction.hops] == [(TRIPLES["Harbor Song"][1],), (TRIPLES["Ada Brook"][1],)]
    assert (prediction.answer, prediction.stopped) == ("Velden", "no_query")


def test_stops_at_max_hops(filled):
    gold = GoldLM([RIVER], ["Ada Brook born", "Tom Hale painter", "Velden town", "Mora"], "x")
    prediction, _ = ask(filled, gold, "Who directed the film Harbor Song?", max_hops=2)
    assert (prediction.stopped, len(prediction.hops)) == ("max_hops", 2)


@pytest.mark.parametrize("asked", ["none", "who directed harbor song, and born where"])
def test_goes_on_where_too_little_is_asked_for(filled, asked):
    """Two hops at least: the second searches with what the first kept, and shows what was not shown."""
    question = "Who directed Harbor Song, and born where?"
    gold = GoldLM([DIRECTED, BORN], [asked, "none"], "Velden")
    prediction, _ = ask(filled, gold, question, min_hops=2)
    insisted = f"{question} Ada Brook"
    assert gold.calls == [f"integrate {question}", f"integrate {insisted}", "answer"]
    assert (prediction.answer, prediction.stopped) == ("Velden", "no_query")
    first, second = prediction.hops
    assert first.next_query == second.query == insisted and second.next_query == ""
    assert not set(first.candidates) & set(second.candidates)


@pytest.mark.parametrize(("knobs", "hops"), [({"min_hops": 9, "max_hops": 2}, 2), ({"min_hops": 9, "max_hops": 9}, 3)])
def test_going_on_ends(filled, knobs, hops):
    """At L hops, or when everything was shown: ten facts in all, four a hop."""
    prediction, _ = ask(filled, GoldLM([], ["none"] * 9, "x"), "Harbor Song", k=5, **knobs)
    assert (len(prediction.hops), prediction.stopped) == (hops, "no_query" if hops == 2 else "nothing_new")
    shown = [triple for hop in prediction.hops for triple in hop.candidates]
    assert len(shown) == len(set(shown))


@pytest.mark.parametrize(
    ("core", "query"),
    [
        ([BORN], "Velden"),
        ([BORN, RIVER], "the river Ree"),  # the newest
        ([SONG_YEAR], ""),  # no name in it but the question's: the question again
        ([DIRECTED, ("Ada Brook", "was a", "director")], "Ada Brook"),  # a common noun leads nowhere
    ],
)
def test_going_on_searches_with_the_newest_name(filled, core, query):
    question = "Harbor Song and Ada Brook's town Velden" if core == [BORN, RIVER] else "Harbor Song"
    prediction, _ = ask(filled, GoldLM(core, ["none"] * 2, "x"), question, min_hops=2, k=5, n=10)
    assert prediction.hops[0].next_query == f"{question} {query}".strip()


def test_grounded_evidence_and_answers(filled):
    """A core triple of something else is not kept; an answer that no evidence has is none, up to the forced one."""
    question = "Who directed the film Harbor Song?"
    gold = GoldLM([DIRECTED, ("Tom Hale", "was born in", "Mora")], ["none"], "Mora", lambda evidence: True)
    loose, _ = ask(filled, gold, question, k=5, n=10)
    assert (loose.level, len(loose.triples)) == ("triples", 2)
    gold.calls.clear()
    prediction, _ = ask(filled, gold, question, k=5, n=10, grounded=True)
    assert prediction.triples == [TRIPLES["Harbor Song"][1]] == list(prediction.hops[0].core)
    assert gold.calls[1:] == ["answer", "answer", "answer", "forced answer"]
    assert (prediction.answer, prediction.level) == ("Mora", "default")
    held = GoldLM([DIRECTED], ["none"], "Ada Brook")
    assert ask(filled, held, question, grounded=True)[0].level == "triples"


def test_garbage_at_a_hop_keeps_the_evidence_before_it(filled):
    gold = GoldLM([DIRECTED], ["Ada Brook was born in"], "Ada Brook")
    garbage = []

    def reply(messages):
        if "core:" in messages[0]["content"] and len(messages) > 2:
            garbage.append(messages)
            return "{ half"
        return gold(messages)

    prediction, _ = ask(filled, reply, "Who directed the film Harbor Song?")
    assert prediction.answer == "Ada Brook"
    assert prediction.stopped == "unreadable"
    assert prediction.hops[1].error == "the reply has no core:"
    assert prediction.triples == [TRIPLES["Harbor Song"][1]]
    assert len(garbage) == 2  # asked once more, with what was wrong
    assert "problem: the reply has no core:" in garbage[1][-1]["content"]


def test_without_the_ranker_all_triples_are_candidates_in_passage_order(filled):
    question = "Who directed Harbor Song?"
    ranked, _ = ask(filled, GoldLM([DIRECTED], ["none"], "x"), question, n=2)
    plain, _ = ask(filled, GoldLM([DIRECTED], ["none"], "x"), question, n=2, rank=False)
    assert plain.hops[0].candidates[:2] == TRIPLES["Harbor Song"]
    found = filled.triples(plain.hops[0].passage_ids)
    assert set(plain.hops[0].candidates) == {triple for triples in found.values() for triple in triples}
    assert len(ranked.hops[0].candidates) == 2
    assert ranked.hops[0].candidates[0] == TRIPLES["Harbor Song"][1]


def test_facts_in_the_evidence_are_not_offered_again(filled):
    gold = GoldLM([DIRECTED, SONG_YEAR], ["Harbor Song Ada Brook", "none"], "x")
    prediction, _ = ask(filled, gold, "Who directed the film Harbor Song?")
    assert TRIPLES["Harbor Song"][1] in prediction.hops[0].core
    assert TRIPLES["Harbor Song"][1] not in prediction.hops[1].candidates


def test_no_triples_at_all_falls_back_to_the_passages(index):
    for passage in PASSAGES.values():
        index.keep(passage.id, Extraction("empty"))
    gold = GoldLM([], [], "Ada Brook", sufficient=lambda evidence: "directed by Ada Brook" in evidence)
    prediction, _ = ask(index, gold, "Who directed the film Harbor Song?")
    assert (prediction.answer, prediction.level, prediction.hops) == ("Ada Brook", "passages", [])
    assert gold.calls == ["answer"]
    assert cited(prediction) == [("Harbor Song", 1), ("Ada Brook", 0)] or cited(prediction)[0] == ("Harbor Song", 1)


def test_an_empty_index_calls_no_lm(tmp_path):
    with CorpusIndex.create(tmp_path / "empty", WordEncoder()) as empty:
        prediction, engine = ask(empty, [], "Anything?")
    assert (prediction.answer, prediction.level, prediction.citations) == ("", "default", [])
    assert engine.prompts == []


def test_an_empty_core_with_a_query_goes_on(filled):
    def reply(messages):
        if "core:" in messages[0]["content"]:
            return '{"thought": "t", "core": [], "next_query": "Ada Brook born"}'
        return "answer: x"

    prediction, _ = ask(filled, reply, "Who directed the film Harbor Song?", max_hops=3)
    assert prediction.hops[0].error == "" and prediction.hops[0].next_query == "Ada Brook born"


def test_a_hop_cut_off_by_the_token_limit_keeps_nothing(filled):
    def reply(messages):
        return ("thought: long\ncore: 1", "length") if "core:" in messages[0]["content"] else "answer: x"

    prediction, _ = ask(filled, reply, "Who directed the film Harbor Song?")
    assert (prediction.stopped, prediction.triples) == ("unreadable", [])


def test_a_passage_longer_than_the_context_does_not_lose_the_question(tmp_path):
    from dspy.lm15 import ContextLengthError

    from cirag_dspy.schema import Passage
    from cirag_dspy.systems.native_rag import NativeRAG

    def reply(messages):
        return ContextLengthError("too long") if sum(len(m["content"]) for m in messages) > 3000 else "answer: Ada"

    long = Passage.create("Harbor Song", "The film Harbor Song was long. " * 400)
    with CorpusIndex.create(tmp_path / "long", WordEncoder()) as index:
        index.add([Document("long", (long,))])
        index.keep(long.id, Extraction("empty"))
        prediction, _ = ask(index, reply, "Who directed the film Harbor Song?")
        lm, _ = scripted_lm(reply)
        with dspy.context(lm=lm):
            plain = NativeRAG(index)(question="Who directed it?")
    assert prediction.answer == plain.answer == "Ada"


def test_an_lm_that_cannot_be_reached_fails_the_question_and_leaves_the_passages_for_later(index):
    from dspy.lm15 import ServerError
    from dspy.utils.exceptions import LMError

    with pytest.raises(LMError):
        ask(index, lambda messages: ServerError("down"), "Who directed the film Harbor Song?")
    assert (index.counts()["pending"], index.counts()["failed"]) == (5, 0)
    prediction, _ = ask(index, GoldLM([DIRECTED], ["none"], "Ada Brook"), "Who directed the film Harbor Song?")
    assert (prediction.answer, prediction.level) == ("Ada Brook", "triples")


@pytest.mark.parametrize(
    "question", ["Who directed\ud800 the film Harbor Song?", "Who\u2028directed\x00 Harbor Song?\n"]
)
def test_odd_characters_in_a_question_do_no_harm(filled, question):
    prediction, _ = ask(filled, GoldLM([DIRECTED], ["none"], "Ada Brook"), question)
    assert prediction.answer == "Ada Brook"


def test_failed_passages_are_not_asked_again_by_the_next_question(index):
    replies = []

    def reply(messages):
        if "triples:" in messages[0]["content"]:
            replies.append("extract")
            return "sorry"
        return "answer: x"

    ask(index, reply, "Who directed the film Harbor Song?")
    assert len(replies) == 4  # two passages, each asked once more
    assert index.counts()["failed"] == 2
    ask(index, reply, "Who directed the film Harbor Song?")
    assert len(replies) == 4


def test_program_is_a_dspy_program(filled, tmp_path):
    program = CIRAGModule(filled)
    names = [name for name, _ in program.named_predictors()]
    assert names == [
        "construct.extract.triples",
        "integration.integrate",
        "cascade.triples",
        "cascade.sentences",
        "cascade.passages",
        "cascade.default.read",
    ]
    program.integration.integrate.demos = [dspy.Example(question="q", core="1")]
    program.save(tmp_path / "program.json")
    again = CIRAGModule(filled)
    again.load(tmp_path / "program.json")
    assert [dict(demo) for demo in again.integration.integrate.demos] == [{"question": "q", "core": "1"}]
    copied = program.deepcopy()
    assert copied.index is filled and copied.construct.index is filled
    lm, _ = scripted_lm([])
    program.set_lm(lm)
    assert all(predictor.lm is lm for predictor in program.predictors())


def test_usage_and_async(filled):
    import asyncio

    gold = GoldLM([DIRECTED], ["none"], "Ada Brook")
    lm, _ = scripted_lm(gold)
    with dspy.context(lm=lm, track_usage=True):
        prediction = asyncio.run(dspy.asyncify(CIRAGModule(filled, k=2))(question="Who directed the film Harbor Song?"))
    assert prediction.answer == "Ada Brook"
    assert prediction.get_lm_usage()["scripted/lm"]["completion_tokens"] > 0


def test_many_questions_at_once(index):
    """In threads and in one event loop, with triples still to be extracted: same answers, each passage paid for once."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    gold = GoldLM([DIRECTED], ["none"], "Ada Brook")
    lm, _ = scripted_lm(gold)
    program = CIRAGModule(index, k=2, n=4)
    program.set_lm(lm)
    question = "Who directed the film Harbor Song?"

    async def gather():
        return await asyncio.gather(*(dspy.asyncify(program)(question=question) for _ in range(4)))

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: program(question=question), range(4)))
    answers += asyncio.run(gather())
    assert [(answer.answer, answer.level) for answer in answers] == [("Ada Brook", "triples")] * 8
    assert sorted(call for call in gold.calls if call.startswith("extract")) == [
        "extract Harbor Light",
        "extract Harbor Song",
    ]


@pytest.mark.parametrize("knob", ["k", "n", "max_hops", "threads"])
def test_knobs_are_checked(filled, knob):
    with pytest.raises(ValueError, match=f"{knob} must be at least 1, not 0"):
        CIRAGModule(filled, **{knob: 0})


@pytest.mark.parametrize(
    ("text", "facts", "question", "answer"),
    [
        (
            "《港口之歌》是1950年的电影。它由王安导演。王安出生于维尔登。",
            ["港口之歌 | 是 | 1950年的电影", "港口之歌 | 由 | 王安导演", "王安 | 出生于 | 维尔登"],
            "《港口之歌》的导演出生在哪里？",
            "维尔登",
        ),
        (
            "गीत 1950 की फ़िल्म है। गीत का निर्देशन अदा ने किया। अदा का जन्म वेल्डेन में हुआ।",
            ["गीत | है | 1950 की फ़िल्म", "गीत | निर्देशन | अदा ने किया", "अदा | जन्म | वेल्डेन में हुआ"],
            "गीत के निर्देशक का जन्म कहाँ हुआ?",
            "वेल्डेन",
        ),
    ],
)
def test_scripts_without_blanks_and_with_other_full_stops(tmp_path, text, facts, question, answer):
    passage = Passage.create("", text)

    def reply(messages):
        system, fields = messages[0]["content"], fields_of(messages[-1]["content"])
        if "triples:" in system:
            return "entities: x\ntriples:\n" + "\n".join(facts)
        if "core:" in system:
            return "thought: t\ncore: 1, 2, 3\nnext_query: none"
        return f"thought: t\nanswer: {answer if facts[2] in fields['evidence'] else 'unanswerable'}"

    with CorpusIndex.create(tmp_path / "index", WordEncoder()) as index:
        index.add([Document("a", (passage,))])
        prediction, _ = ask(index, reply, question, grounded=True)
    assert {triple.text: triple.sentence for triple in prediction.triples} == dict(zip(facts, range(3), strict=True))
    assert (prediction.answer, prediction.level) == (answer, "triples")
    assert sorted(citation.sentence for citation in prediction.citations) == [0, 1, 2]
