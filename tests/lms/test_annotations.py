"""The annotations teacher: what it replies follows from gold and prompt, and nothing it says is known from gold alone."""

import dspy
import pytest

from cirag_dspy.adapter import LineAdapter
from cirag_dspy.errors import ModelError
from cirag_dspy.lms import load_lm
from cirag_dspy.schema import Passage, Triple
from cirag_dspy.signatures import (
    AnswerAnyway,
    AnswerIfSufficient,
    CompleteChain,
    ExtractTriples,
    FindEntities,
    Integrate,
    IntegrateByCopying,
    RelateEntities,
)
from tests.lms.annotated import ALL, BROOK, CORPUS, HOTPOT, LIGHT, MUSIQUE, OLDER, SONG, WIKI, YES, teach


@pytest.fixture(params=[LineAdapter, lambda: dspy.ChatAdapter(use_json_adapter_fallback=False)], ids=["lines", "chat"])
def ask(request):
    """Calls a signature; the teacher reads and writes either adapter's form."""
    lm = load_lm("annotations", examples=ALL, passages=CORPUS)

    def call(signature, **inputs):
        with dspy.context(lm=lm, adapter=request.param()):
            return dspy.Predict(signature)(**inputs)

    return call


def facts(*lines):
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))


def integrate(ask, example, query, shown, turns=()):
    return ask(
        Integrate,
        history=dspy.History(messages=list(turns)),
        question=example.question,
        query=query,
        facts=facts(*shown),
    )


def turn(example, query, shown, core, next_query, thought="t"):
    return {
        "question": example.question,
        "query": query,
        "facts": facts(*shown),
        "thought": thought,
        "core": core,
        "next_query": next_query,
    }


FIRST = (
    "Harbor Light | directed by | Tom Hale",
    "Harbor Song | directed by | Ada Brook",
    "Harbor Song | shot in | Mora",
)


def test_keeps_what_states_a_step_and_asks_for_the_next_evidence(ask):
    reply = integrate(ask, WIKI, WIKI.question, FIRST)
    assert (reply.core, reply.next_query) == ("2", "Ada Brook place of birth")
    assert reply.thought == "Harbor Song directed by Ada Brook"


def test_facts_without_numbers_and_turns_that_copied_them(ask):
    """As the program shows them to a student that copies; the teacher still answers with numbers."""
    first = turn(WIKI, WIKI.question, FIRST, FIRST[1], "Ada Brook place of birth") | {"facts": "\n".join(FIRST)}
    reply = ask(
        IntegrateByCopying,
        history=dspy.History(messages=[first]),
        question=WIKI.question,
        query="Ada Brook place of birth",
        facts="Tom Hale | born in | Mora\nAda Brook | was born in | Velden",
    )
    assert (reply.core, reply.next_query) == ("2", "none")


def test_the_conversation_counts_and_the_last_step_ends_it(ask):
    first = turn(WIKI, WIKI.question, FIRST, "2", "Ada Brook place of birth")
    shown = ("Tom Hale | born in | Mora", "Ada Brook | was born in | Velden")
    reply = integrate(ask, WIKI, "Ada Brook place of birth", shown, [first])
    assert (reply.core, reply.next_query) == ("2", "none")


def test_a_name_that_was_not_found_is_not_asked_for(ask):
    reply = integrate(ask, WIKI, WIKI.question, ("Harbor Song | shot in | Mora",))
    assert reply.core == "none"
    assert reply.next_query == "Harbor Song director"  # not Ada Brook: only gold knows her
    asked = turn(WIKI, WIKI.question, ("Harbor Song | shot in | Mora",), "none", "Harbor Song director")
    again = integrate(ask, WIKI, "Harbor Song director", ("Harbor Song | is a | film",), [asked])
    assert again.next_query == "none"  # asked for already, and nothing else can be named


def test_both_sides_of_a_comparison_are_gathered(ask):
    reply = integrate(ask, OLDER, OLDER.question, FIRST)
    assert (reply.core, reply.next_query) == ("1, 2", "Ada Brook date of birth")
    first = turn(OLDER, OLDER.question, FIRST, "1, 2", "Ada Brook date of birth")
    born = ("Ada Brook | born | May 3, 1901",)
    second = integrate(ask, OLDER, "Ada Brook date of birth", born, [first])
    assert (second.core, second.next_query) == ("1", "Tom Hale date of birth")


def test_a_decomposition_has_earlier_answers_filled_in(ask):
    reply = integrate(ask, MUSIQUE, MUSIQUE.question, FIRST)
    assert (reply.core, reply.next_query) == ("2", "In which town was Ada Brook born?")
    assert (
        integrate(ask, MUSIQUE, MUSIQUE.question, ("Harbor Song | shot in | Mora",)).next_query
        == "Harbor Song director"
    )


def test_supporting_sentences_are_searched_for_by_title(ask):
    reply = integrate(ask, HOTPOT, HOTPOT.question, FIRST)
    assert (reply.core, reply.next_query) == ("2", "Ada Brook born")


@pytest.mark.parametrize(
    ("example", "chain", "following"),
    [
        (WIKI, "none yet", "2"),
        (WIKI, "Harbor Song | directed by | Ada Brook", "4"),
        (WIKI, "Harbor Song | directed by | Ada Brook\nAda Brook | was born in | Velden", "none"),
        (WIKI, "Ada Brook | was born in | Velden", "none"),  # it answers, whatever was left out on the way
        (OLDER, "none yet", "2, 1"),  # either may come first; a director is born before nobody has named her
        (OLDER, "Harbor Song | directed by | Ada Brook", "1, 5"),
    ],
)
def test_a_chain_is_completed_with_what_is_missing_and_named(ask, example, chain, following):
    shown = facts(*FIRST, "Ada Brook | was born in | Velden", "Ada Brook | born | 3 May 1901")
    assert ask(CompleteChain, question=example.question, chain=chain, facts=shown).next == following


def test_at_most_two_facts_a_step(ask):
    shown = (
        "Harbor Song | director | Ada Brook",
        "Harbor Song | directed by | Ada Brook",
        "Harbor Song | by | Ada Brook",
    )
    assert integrate(ask, WIKI, WIKI.question, shown).core == "1, 2"


@pytest.mark.parametrize(
    ("example", "evidence", "answer"),
    [
        (WIKI, "Ada Brook | born in | Velden", "Velden"),
        (WIKI, "Harbor Song | directed by | Ada Brook", "unanswerable"),
        (WIKI, "Velden | is a | town", "unanswerable"),  # the word is there, the fact is not
        (MUSIQUE, "Ada Brook: She was born in Velden.", "Velden"),
        (MUSIQUE, "Harbor Song | directed by | Ada Brook", "unanswerable"),
        (HOTPOT, "Ada Brook | born in | Velden", "Velden"),
        (HOTPOT, "Harbor Song | directed by | Ada Brook", "unanswerable"),
        # A comparison names its answer in the question: nothing less than all that is compared will do.
        (OLDER, "Harbor Song | director | Ada Brook\nAda Brook | born | 3 May 1901", "unanswerable"),
        (
            OLDER,
            "Harbor Song | director | Ada Brook\nHarbor Light | director | Tom Hale\n"
            "Ada Brook | born | 3 May 1901\nTom Hale | born | July 8, 1920",
            "Harbor Song",
        ),
        (YES, "Harbor Song | directed by | Ada Brook", "unanswerable"),
        (YES, "Harbor Song | directed by | Ada Brook\nHarbor Light | directed by | Tom Hale", "no"),
    ],
)
def test_an_answer_never_leaks_into_evidence_that_does_not_hold_it(ask, example, evidence, answer):
    assert ask(AnswerIfSufficient, question=example.question, evidence=evidence).answer == answer
    forced = ask(AnswerAnyway, question=example.question, passages=evidence).answer
    choice = {OLDER.question: "Harbor Song", YES.question: "no"}  # drawn by the question
    assert forced == (choice.get(example.question, answer) if answer == "unanswerable" else answer)


@pytest.mark.parametrize(
    ("question", "sides"),
    [
        ("Which film came out first, Harbor Song or Harbor Light?", {"Harbor Song", "Harbor Light"}),
        ("Who is older, Ada Brook, the director or Tom Hale?", {"Ada Brook, the director", "Tom Hale"}),
        ("Are Harbor Song and Harbor Light from the same country?", {"yes", "no"}),
        ("Is Harbor Song or Harbor Light a film?", {"unanswerable"}),
        ("Where was Ada Brook born?", {"unanswerable"}),
    ],
)
def test_a_forced_answer_is_a_guess_that_gold_has_no_part_in(question, sides):
    guesses = set()
    for gold in ("Harbor Song", "Harbor Light", "yes", "no", "Velden"):
        example = dspy.Example(question=question, answer=gold, gold_passages=[SONG.id])
        with dspy.context(lm=load_lm("annotations", examples=[example], passages=CORPUS), adapter=LineAdapter()):
            guesses.add(dspy.Predict(AnswerAnyway)(question=question, passages="x: y").answer)
    assert len(guesses) == 1 and guesses < sides | {""}


def test_a_fact_of_the_sentence_that_states_a_step_leads_to_it(ask):
    """Nothing names the director, but the sentence of the first fact does: the next level will read it."""
    shown = ("Harbor Song | was released in | Mora", "Harbor Song | is | 1950 film", "Harbor Light | is | 1961 film")
    reply = integrate(ask, WIKI, WIKI.question, shown)
    assert (reply.core, reply.next_query) == ("2", "Harbor Song director")
    sentence = f"Harbor Song: {SONG.sentences[0]}"
    assert ask(AnswerIfSufficient, question=OLDER.question, evidence=sentence).answer == "unanswerable"
    # What only gold knows to be of use is not kept: nothing has named Ada Brook yet.
    assert integrate(ask, WIKI, WIKI.question, ("Ada Brook | born on | May 1901",)).core == "none"


def answers(examples, passages, example, evidence):
    call = teach(examples, passages)
    return call(AnswerIfSufficient, question=example.question, evidence=evidence).answer


BOTH = "Harbor Song | directed by | Ada Brook\nHarbor Light | directed by | Tom Hale"


def test_a_comparison_is_not_answered_in_words_of_the_gold():
    """HotpotQA's answer may be a longer name than the one in the question."""
    longer = YES.copy(question="Which is older, Harbor Song or Harbor Light?", answers=["Harbor Song (Reprise)"])
    assert answers([longer], CORPUS, longer, BOTH) == "unanswerable"
    assert answers([longer], CORPUS, longer, BOTH + "\nHarbor Song | known as | Reprise") == "Harbor Song (Reprise)"


def test_the_answer_is_the_alias_that_the_context_holds():
    place = dspy.Example(
        question="Where was Ada Brook born?",
        answers=["Velden am See", "Velden"],
        decomposition=[{"question": "Ada Brook >> born", "answer": "Velden", "passage_id": BROOK.id}],
    )
    assert answers([place], CORPUS, place, "Ada Brook | born in | Velden") == "Velden"
    assert answers([place], CORPUS, place, "Ada Brook | born in | Velden am See") == "Velden am See"


@pytest.mark.parametrize(
    "gold",
    [
        {"gold_missing": 1, "gold_passages": [SONG.id]},  # the corpus lacks the other side
        {"gold_passages": [SONG.id, LIGHT.id]},  # a sentence beyond the end of its passage was left out
    ],
)
def test_one_side_of_a_comparison_does_not_pass_for_both(gold):
    half = YES.copy(gold_sentences=[(SONG.id, 0)], **gold)
    assert answers([half], CORPUS, half, "Harbor Song | directed by | Ada Brook") == "unanswerable"


@pytest.mark.parametrize("answer", ["", "?", "北京", "Zoë"])
def test_answers_without_words_or_of_any_script(answer):
    place = dspy.Example(
        question="Where was Ada Brook born?",
        answer=answer,
        decomposition=[{"question": "Ada Brook >> born", "answer": answer, "passage_id": BROOK.id}],
    )
    assert answers([place], CORPUS, place, "Ada Brook | born in | Velden") == "unanswerable"
    held = answers([place], CORPUS, place, f"Ada Brook | born in | {answer}")
    assert held == (answer if answer.isalpha() else "unanswerable")


def test_a_name_that_only_the_gold_knows_is_not_asked_for():
    """The gold may name a thing otherwise than question and facts do."""
    strange = WIKI.copy(
        evidences=[("Harbor Song", "director", "Ada Brook"), ("Lady Zed", "place of birth", "Velden")],
    )
    call = teach([strange], CORPUS)
    asked = turn(strange, strange.question, ("Mora | is a | town",), "none", "Harbor Song director")
    inputs = {"question": strange.question, "facts": "1. Mora | is a | town", "query": "Harbor Song director"}
    assert call(Integrate, history=dspy.History(messages=[asked]), **inputs).next_query == "none"
    # In another spelling it may: a part of the name was seen.
    close = strange.copy(evidences=[("Harbour Song", "director", "Ada Brook"), ("Ada Brook", "born", "Velden")])
    reply = teach([close], CORPUS)(Integrate, history=dspy.History(messages=[]), **inputs)
    assert reply.next_query == "Harbour Song director"


def test_a_line_that_looks_like_a_field_changes_nothing_about_the_question(ask):
    evidence = "Ada Brook | born in | Velden\nfacts: 1. x | y | z\npassage: Velden"
    assert ask(AnswerIfSufficient, question=WIKI.question, evidence=evidence).answer == "Velden"


def test_passages_are_known_by_what_they_say_not_by_their_ids(ask):
    own = Passage.create("Odd", ["Odd, as they say, Velden.", "北京。天津。"], id="doc 7")
    example = dspy.Example(
        question="q?", answer="Velden", evidences=[("Odd", "place", "Velden")], gold_passages=[own.id]
    )
    for adapter in (LineAdapter(), dspy.ChatAdapter(use_json_adapter_fallback=False)):
        with dspy.context(lm=load_lm("annotations", examples=[example], passages=[own]), adapter=adapter):
            reply = dspy.Predict(ExtractTriples)(title=own.title, passage=own.text)
        assert reply.triples == "Odd | place | Velden"


def test_extraction_by_pattern_and_by_gold(ask):
    reply = ask(ExtractTriples, title=SONG.title, passage=SONG.text)
    assert reply.triples.splitlines() == [
        "Harbor Song | is | 1950 film",
        "Harbor Song | directed by | Ada Brook",
        "Harbor Song | was released in | Mora",
    ]
    # No pattern knows this tail, the gold does.
    strange = Passage.create("Odd", ["Odd, as they say, Velden."])
    example = dspy.Example(
        question="q?", answer="Velden", evidences=[("Odd", "place", "Velden")], gold_sentences=[(strange.id, 0)]
    )
    lm = load_lm("annotations", examples=[example], passages=[strange])
    with dspy.context(lm=lm, adapter=LineAdapter()):
        told = dspy.Predict(ExtractTriples)(title="Odd", passage=strange.text)
        assert told.triples == "Odd | place | Velden"
        assert dspy.Predict(FindEntities)(title="Odd", passage=strange.text).entities == "Odd; Velden"
        related = dspy.Predict(RelateEntities)(title="Odd", passage=strange.text, entities="Odd")
        assert related.triples == "Odd | place | Velden"


def test_given_triples_come_first():
    given = {SONG.id: [Triple("Harbor Song", "tells of", "a harbour", SONG.id, 0)]}
    lm = load_lm("annotations", examples=ALL, passages=CORPUS, triples=given)
    with dspy.context(lm=lm, adapter=LineAdapter()):
        assert (
            dspy.Predict(ExtractTriples)(title=SONG.title, passage=SONG.text).triples
            == "Harbor Song | tells of | a harbour"
        )
    assert lm.model != load_lm("annotations", examples=ALL, passages=CORPUS).model


def test_another_gold_is_another_teacher():
    """DSPy's cache goes by the name: replies of one must not be given for the other."""
    name = load_lm("annotations", examples=[WIKI], passages=CORPUS).model
    assert name == load_lm("annotations", examples=[WIKI], passages=CORPUS).model
    evidences = [("Harbor Song", "writer", "Ada Brook"), ("Ada Brook", "place of birth", "Velden")]
    assert name != load_lm("annotations", examples=[WIKI.copy(evidences=evidences)], passages=CORPUS).model
    assert name != load_lm("annotations", examples=[WIKI], passages=CORPUS[:1]).model


def test_what_it_cannot_answer_is_said(ask):
    with pytest.raises(Exception, match="no annotations for the question 'Who\\?'"):
        ask(AnswerAnyway, question="Who?", passages="x")
    with pytest.raises(Exception, match="give a real LM for anything else"):
        ask("subject -> joke", subject="x")
    with pytest.raises(ModelError, match="answers a benchmark's own questions from gold"):
        load_lm("annotations")


def test_async(ask):
    import asyncio

    lm = load_lm("annotations", examples=ALL, passages=CORPUS)

    async def call():
        with dspy.context(lm=lm, adapter=LineAdapter()):
            return await dspy.Predict(AnswerAnyway).acall(
                question=WIKI.question, passages="Ada Brook | born in | Velden"
            )

    assert asyncio.run(call()).answer == "Velden"
