"""Sentences, provenance and grounding over generated texts of ten and more scripts."""

from hypothesis import assume, given
from hypothesis import strategies as st

from cirag_dspy.modules.grounding import holds_answer
from cirag_dspy.modules.reader import cite_answer
from cirag_dspy.schema import Passage
from cirag_dspy.text import best_sentence, holds_run, one_line, split_sentences, words

# Letters, what stands between words, full stops, and what stands between sentences.
SCRIPTS = {
    "latin": ("abcdefghijklmnopqrstuvwxyzéöß", " ", ".!?", " "),
    "cyrillic": ("абвгдежзиклмнопрстуфхцчшщыьэюя", " ", ".!?", " "),
    "greek": ("αβγδεζηθικλμνξοπρστυφχψω", " ", ".!", " "),
    "armenian": ("աբգդեզէըթժիլխծկհձղճմյնշոչպջռսվտր", " ", "։", " "),
    "arabic": ("ابتثجحخدذرزسشصضطظعغفقكلمنهوي", " ", "؟۔!", " "),
    "hebrew": ("אבגדהוזחטיכלמנסעפצקרשת", " ", ".!?", " "),
    "devanagari": ("कखगघचछजझटठडढतथदधनपफबभमयरलवशषसह", " ", "।॥?", " "),
    "bengali": ("কখগঘচছজঝটঠডঢতথদধনপফবভমযরলশষসহ", " ", "।!", " "),
    "ethiopic": ("ሀለሐመሠረሰቀበተኀነአከወዘየደገጠጸፀፈፐ", " ", "።፧", " "),
    "korean": ("가나다라마바사아자차카타파하거너더러머버서어저처커터퍼허", " ", ".!?", " "),
    "chinese": ("北京上海天地人山水火木金土日月星雨風雲花鳥魚馬牛羊", "", "。！？｡．", ""),
    "japanese": ("あいうえおかきくけこさしすせそタチツテトナニヌネノ東西南北", "", "。！？", ""),
    "burmese": ("ကခဂဃငစဆဇဈဉညဋဌဍဎဏတထဒဓနပဖဗဘမယရလဝသဟ", "", "။", " "),
    "khmer": ("កខគឃងចឆជឈញដឋឌឍណតថទធនបផពភមយរលវសហ", "", "។៕", " "),
}
CLOSING = ("", "”", "’", '"', ")", "」", "»", "』", "**")


@st.composite
def sentences(draw, script):
    """A few sentences of distinct words, each as it is written with its full stop, and their words."""
    letters, blank, stops, _ = SCRIPTS[script]
    size = 3 if blank else 2
    word = st.text(st.sampled_from(letters), min_size=size, max_size=size + 4)
    count = draw(st.integers(2, 5))
    told = draw(st.lists(word, min_size=3 * count, max_size=3 * count, unique=True))
    written = []
    for number in range(count):
        body = blank.join(told[3 * number : 3 * number + 3])
        if blank:
            body = body[0].upper() + body[1:]
        written.append(body + draw(st.sampled_from(stops)) + draw(st.sampled_from(CLOSING)))
    return written, [told[3 * number : 3 * number + 3] for number in range(count)]


@st.composite
def texts(draw):
    script = draw(st.sampled_from(sorted(SCRIPTS)))
    written, told = draw(sentences(script))
    return script, written, told


@given(texts())
def test_sentences_are_split_where_they_end(made):
    script, written, _ = made
    assert split_sentences(SCRIPTS[script][3].join(written)) == written


@given(texts())
def test_a_fact_cites_the_sentence_that_states_it(made):
    _, written, told = made
    units = [set(words(sentence)) for sentence in written]
    for number, (head, relation, tail) in enumerate(told):
        fact = f"{head} {relation} {tail}"
        overlaps = [len(unit & set(words(fact))) for unit in units]
        assume(overlaps.count(max(overlaps)) == 1)  # by chance, letters of another sentence spell the same
        assert best_sentence(fact, written) == number


@given(texts())
def test_an_answer_is_held_and_cited_where_it_stands_and_nowhere_else(made):
    _, written, told = made
    passage = Passage("p", "", tuple(written))
    for number, (_, _, answer) in enumerate(told):
        assert holds_run(written[number], answer)
        assert holds_answer(written, answer, "?")
        first = next(i for i, sentence in enumerate(written) if holds_run(sentence, answer))
        assert [citation.sentence for citation in cite_answer(answer, [passage])] == [first]
        backwards = answer[::-1]
        if not any(set(words(backwards)) <= set(words(sentence)) for sentence in written):
            assert not holds_answer(written, backwards, "?")


@given(st.text(max_size=300) | st.text(st.sampled_from('ab .!?。．।"”)（」\n་།…กขABÀÉ1४'), max_size=80))
def test_splitting_loses_nothing_and_never_fails(text):
    found = split_sentences(text)
    assert "".join("".join(found).split()) == "".join(one_line(text).split())
    assert all(sentence == one_line(sentence) and sentence for sentence in found)


@given(st.text(max_size=60), st.text(max_size=20), st.text(max_size=60))
def test_words_that_stand_in_a_text_are_found_in_it(before, wanted, after):
    text = f"{before} {wanted} {after}"
    if words(wanted):
        assert holds_run(text, wanted)
        assert set(words(wanted)) <= set(words(text))
