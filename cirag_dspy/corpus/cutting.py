"""Running text cut into passages of whole sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import regex

from cirag_dspy.text import split_sentences

PASSAGE_WORDS = 120
_LETTERS_A_WORD = 8
# Scripts that are written without blanks between words; two of their letters count as a word.
_DENSE = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Yi}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}\p{Tai_Le}"
    r"\p{New_Tai_Lue}\p{Tai_Tham}\p{Javanese}\p{Balinese}]"
)
_LETTERS_A_DENSE_WORD = 2
# Up to and with punctuation and the marks on it: never within a grapheme.
_PHRASE = regex.compile(r"[^\p{P}=+]*(?:[\p{P}=+][\p{M}\p{Cf}]*)+|[^\p{P}=+]+")
_GRAPHEME = regex.compile(r"\X")


def cut(text: str, words: int = PASSAGE_WORDS) -> list[list[str]]:
    """Running text as passages: lists of whole sentences of at most ``words`` words together.

    Paragraphs (set apart by blank lines) stay whole where they fit. A sentence that is too long alone, as in a list or
    a table without full stops, is cut between words; a word that is too long (Chinese, Thai, an address), behind its
    punctuation marks or else between graphemes.
    """
    return pack(map(split_sentences, re.split(r"\n\s*\n", text)), words)


def pack(paragraphs: Iterable[list[str]], words: int = PASSAGE_WORDS) -> list[list[str]]:
    """Paragraphs, which are lists of sentences, as passages of at most ``words`` words; ``cut`` says how."""
    passages: list[list[str]] = [[]]
    filled = 0
    for paragraph in paragraphs:
        sentences = [piece for sentence in paragraph for piece in _pieces(sentence, words)]
        if filled and filled + sum(map(size, sentences)) > words:
            passages.append([])
            filled = 0
        for sentence in sentences:
            if filled and filled + size(sentence) > words:
                passages.append([])
                filled = 0
            passages[-1].append(sentence)
            filled += size(sentence)
    return [passage for passage in passages if passage]


def size(text: str) -> int:
    """Length in words. Letters of scripts without blanks count two a word, those of long words eight a word."""
    return _words(*_measure(text))


def _measure(text: str) -> tuple[int, int, int]:
    """Words, characters, and letters of scripts without blanks; the latter are not among the former."""
    rest, dense = _DENSE.subn("", text)
    return len(rest.split()), len(rest), dense


def _words(words: int, characters: int, dense: int) -> int:
    return max(words, characters // _LETTERS_A_WORD) + (dense + _LETTERS_A_DENSE_WORD - 1) // _LETTERS_A_DENSE_WORD


def _pieces(sentence: str, words: int) -> Iterator[str]:
    """The sentence, or where it is too long its parts."""
    if size(sentence) <= words:
        yield sentence
    else:
        yield from _fill((part for word in sentence.split() for part in _parts(word, words)), words, " ")


def _parts(word: str, words: int) -> Iterator[str]:
    """The word, or where it is too long its parts: those that follow each other do not fit into one piece."""
    if size(word) <= words:
        yield word
    else:
        yield from _fill((atom for phrase in _PHRASE.findall(word) for atom in _atoms(phrase, words)), words, "")


def _atoms(phrase: str, words: int) -> Iterator[str]:
    if size(phrase) <= words:
        yield phrase
        return
    for grapheme in _GRAPHEME.findall(phrase):
        # A letter under a thousand accents is no letter.
        yield from [grapheme] if size(grapheme) <= words else grapheme


def _fill(parts: Iterable[str], words: int, glue: str) -> Iterator[str]:
    """Parts joined to pieces as large as ``words`` lets them be."""
    held: list[str] = []
    total = (0, 0, 0)
    for part in parts:
        count, characters, dense = _measure(part)
        # Without a blank between them two words are one.
        grown = (
            total[0] + count if glue else max(total[0], count),
            total[1] + characters + len(glue),
            total[2] + dense,
        )
        if held and _words(*grown) > words:
            yield glue.join(held)
            held, grown = [], (count, characters, dense)
        held.append(part)
        total = grown
    if held:
        yield glue.join(held)
