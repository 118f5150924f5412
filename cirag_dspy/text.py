"""Plain text: sentences, words, normalisation and refusals. No model, no I/O."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence

import regex

# Letters with the marks that belong to them: Python's own \\w tears "हिन्दी" apart at its vowel signs.
_WORD = regex.compile(r"[\p{L}\p{N}_][\p{L}\p{N}\p{M}_]*")
_LETTER = r"[\p{L}\p{N}\p{M}_]"
_SIGNED = regex.compile(
    rf"(?<!{_LETTER})\p{{L}}[-−](?!{_LETTER})"
    rf"|(?:(?<!{_LETTER})[-−](?=\p{{N}})|(?<![\p{{L}}\p{{N}}\p{{M}}_.])\.(?=\p{{L}}))?"
    rf"[\p{{L}}\p{{N}}_]{_LETTER}*(?:\${_LETTER}+)*[+#♯♭]*"
)
# Vowel signs of Arabic and Hebrew, and the dash that stretches a word: written or not, it is the same word.
_VOWELS = regex.compile(r"[\u064b-\u065f\u0670\u0640\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7]+")
_ARABIC = str.maketrans("أإآٱکیى", "اااا\u0643\u064a\u064a")  # letters that are spelt in several ways
_INVISIBLE = regex.compile(r"\p{Cf}+")  # soft hyphens, joiners, direction marks: spelling, not meaning
# Scripts that write no blanks between words, and Korean, which writes particles onto them.
_UNSPACED = (
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Javanese}\p{Balinese}"
    r"\p{Tai_Tham}\p{New_Tai_Lue}\p{Tai_Le}\p{Tai_Viet}\p{Yi}\p{Tangut}\p{Nushu}ー々〆〇]"
)
_SYLLABLE = r"[\u1100-\u115f][\u1160-\u11a7]*[\u11a8-\u11ff]*"  # Korean as NFD writes it
_PIECE = regex.compile(rf"{_SYLLABLE}|{_UNSPACED}\p{{M}}*|(?:(?!{_UNSPACED})[\p{{L}}\p{{N}}\p{{M}}_])+")
_UNSPACED_LETTER = regex.compile(_UNSPACED)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)

# English words that say nothing of what a name or a fact is about.
FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an the of in on at by for to from with and or is was are were be been he she it they his her its their who "
        "whom which that what when where how did do does has had have as into also",
    )
)

# Where a sentence may end. Latin marks need white space behind them and then no lower-case letter; full stops of other
# scripts (。 ． । ۔ ። ။) need neither. Runs of marks ("?!", "……。") and what closes behind them (quotes, brackets,
# emphasis) stay with the sentence. Thai and Lao write blanks between sentences, and no stop.
_CLOSING = r"[\p{Pe}\p{Pf}\"'“‘”’»«*_]*+"
_OPENING = r"(?:[\p{Ps}\p{Pi}\"'“‘„»«¿¡*_–—-]|\p{So}[\p{M}\p{Sk}\u200d]*\s*)*"  # emoji, too
_BOUNDARY = regex.compile(
    rf"(?P<latin>(?<![.!?…])…*+(?:[.!?‼⁇⁈⁉]|(?<=\p{{Greek}})[;;])[.!?…]*+{_CLOSING}\s+(?={_OPENING}(?!\p{{Ll}})[\p{{L}}\p{{N}}]))"
    rf"|(?<![.!?…])[.!?…]*+(?:(?![!?‼⁇⁈⁉၊])\p{{SB=ST}}|[．﹒](?![\p{{L}}\p{{N}}]|$)|[．﹒](?={_UNSPACED})(?!(?<=\p{{N}}[．﹒])[〇一二三四五六七八九十])|།)"
    rf"[\p{{SB=ST}}．།!?….]*+{_CLOSING}\s*"
    rf"|(?<={_UNSPACED})(?:[.!?]++|…{{2,}}+){_CLOSING}(?={_UNSPACED})"
    r"|(?P<blank>(?<=[\p{Thai}\p{Lao}])\s+(?=[\p{Thai}\p{Lao}]))"
)
_SHORTEST_UNMARKED = 20  # letters of a Thai or Lao sentence at least
_INITIALS = re.compile(r"[^\W\d_](?:\.[^\W\d_])*|[^\W\d_]{1,2}(?:\.[^\W\d_]{1,2})+")  # J, U.S, Ph.D
_GERMAN_DAY = regex.compile(r"\b\d{1,2}\.\s+\K(?:Jan|Feb|März|April|Mai|Juni|Juli|Aug|Sept|Okt|Nov|Dez|Jahrhundert|Jh)")
_ABBREVIATIONS = frozenset(
    re.findall(
        r"\w+",
        "mr mrs ms dr prof rev hon st sr jr lt col gen sgt capt cmdr adm gov sen rep pres no vol fig pp ca cf vs inc "
        "ltd co corp dept est approx al bros messrs mt ft jan feb mar apr jun jul aug sep sept oct nov dec",
    )
)
_REFUSALS = frozenset(
    {
        "unanswerable",
        "not answerable",
        "cannot be answered",
        "cannot answer",
        "cannot be determined",
        "cannot determine",
        "not enough information",
        "insufficient information",
        "insufficient",
        "information not provided",
        "not provided",
        "not specified",
        "not mentioned",
        "unknown",
        "unclear",
        "unsure",
        "undetermined",
        "not available",
        "not applicable",
        "tbd",
        "idk",
        "unbekannt",
        "inconnu",
        "desconocido",
        "information not found",
        "no one knows",
        "it is impossible to say",
        "i do not have enough information",
        "i dont have enough information",
        "i dont know",
        "dont know",
        "i do not know",
        "do not know",
        "insufficient evidence",
        "not enough evidence",
        "evidence does not say",
        "evidence is not enough",
        "evidence is insufficient",
        "evidence does not provide enough information",
        "cannot be determined from evidence",
        "cannot be answered from evidence",
        "not found",
        "not stated",
        "not given",
        "no answer",
        "none",
        "na",
        "null",
        "noanswer",
    }
)
_REFUSED_IN_A_SENTENCE = re.compile(
    r"^\W*(?:unanswerable\s*(?:[.,;:(\[>\"—–-]|$|(?:based|from|given|because|since|with|as)\b)"
    r"|(?:the |this )?(?:question|answer|it) is (?:unanswerable|not (?:known|given|stated|provided|specified))\b"
    r"|(?:the |this )?(?:question|answer|it) (?:cannot|can't|can not|could not) be (?:answered|determined|found)\b"
    r"|(?:not enough|insufficient) (?:information|evidence)\b"
    r"|(?:the )?(?:given |provided )?(?:evidence|passages?|context|texts?|documents?|articles?|sources?) "
    r"(?:does not|do not|doesn't|don't) (?:explicitly |directly |actually )?"
    r"(?:say|provide|mention|state|contain|specify|give|include)\b"
    r"|(?:there (?:is|was) )?(?:no|not enough|insufficient) (?:relevant |specific |further |such )?"
    r"(?:information|evidence|mention|details?)\b"
    r"|(?:the |this )?(?:question|answer|it|information) (?:is|was|are) (?:not|n['’]t) (?:mentioned|available|"
    r"found|clear|in the (?:evidence|passages?|context|text))\b"
    r"|not (?:(?:mentioned|stated|specified|given|provided|found|available) )?(?:in|by) (?:the |any |these |this )"
    r"(?:\w+ )?(?:passages?|evidence|context|texts?|documents?|facts?|sources?)\b"
    r"|not (?:mentioned|stated|specified|given|provided|found|available) (?:in|by) (?:the|any|these)\b"
    r"|(?:it )?(?:cannot|can['’]t|can not|could not) be (?:determined|answered|inferred) (?:from|based|with)\b"
    r"|i (?:do not|don['’]t|cannot|can['’]t|am (?:not able|unable) to) (?:know|say|tell|determine|answer|find)"
    r"(?:\W*$|[.,;:]|\s+(?:the answer|this|that|from|based|for sure|with)\b)"
    r"|(?:the )?answer is not (?:in|given|stated|found) (?:in )?(?:the|any|these)\b"
    r"|(?:none|neither) of the (?:given |provided )?(?:passages|texts|documents|sources) (?:\w+ ){0,2}"
    r"(?:mentions?|says?|states?|contains?|gives?)\b|no relevant (?:passages?|evidence|facts?)\b"
    r"|i (?:do not|don['’]t) have (?:enough|any|the|sufficient) (?:\w+ )?(?:information|evidence|context)\b"
    r"|i apologi[sz]e,? (?:but|i)\b|as an ai\b.{0,60}\b(?:cannot|can['’]t|do not|don['’]t|unable)\b"
    r"|i(?: a|['’])m not sure\b|(?:i(?: a|['’])m )?sorry,? (?:but\b|i\b|the (?:passages?|evidence|context|text)\b)"
    r"|(?:ich wei(?:ß|ss) (?:es )?nicht|keine ahnung|je ne sais pas|no (?:lo )?s[ée]|non lo so|n[ãa]o sei|не знаю|"
    r"nie wiem|ik weet het niet|jag vet inte)\W*$"
    r"|我?不知道\W*$|无法(?:回答|确定)|無法(?:回答|確定)|(?:分|わ)かりません|모르겠습니다|मुझे नहीं पता|لا أعرف)",
    re.I,
)
# "None", also with a reason behind it ("None, the facts suffice"), but no title ("Nothing (2003 film) director").
_EMPTY_QUERY = re.compile(
    r"^\W*(?:(?:n/?a|null|stop|done|empty|nothing|no|not needed)\W*$"
    r"|(?:none(?: needed| required| necessary)?|nothing (?:is missing|more|else)"
    r"|no(?: further| more| next| other)?(?: search)? (?:query|queries|questions?|search|searches|information)"
    r"(?: is| are)?(?: needed| required| necessary)?)"
    r"(?:\W*$|\s*[.;]|\s+[—–-]\s|\s*[(,]\s*(?-i:[a-z])))",
    re.I,
)


def split_sentences(text: str) -> list[str]:
    """Split running text of any script into sentences; white space inside each is collapsed, none is empty.

    A rule-based splitter over Unicode's sentence terminals: common English abbreviations and initials (``J. R.``,
    ``U.S.``) do not end a sentence. Thai and Lao, which have no full stop, are split at blanks between long pieces.
    """
    sentences: list[str] = []
    start = 0
    for match in _BOUNDARY.finditer(text):
        piece = text[start : match.end()]
        if match["latin"] and (_ends_abbreviated(piece) or _is_german_day(text, match)):
            continue
        if match["blank"] and min(match.start() - start, _run_behind(text, match.end())) < _SHORTEST_UNMARKED:
            continue
        sentences.append(one_line(piece))
        start = match.end()
    sentences.append(one_line(text[start:]))
    return [sentence for sentence in sentences if sentence]


def _ends_abbreviated(piece: str) -> bool:
    last = piece.rstrip().rsplit(None, 1)[-1] if piece.strip() else ""
    token = last.rstrip(".").lstrip("(\"'“‘[")
    return last.endswith(".") and (token.lower() in _ABBREVIATIONS or bool(_INITIALS.fullmatch(token)))


def _is_german_day(text: str, match: regex.Match[str]) -> bool:
    """Whether a full stop makes an ordinal of a number ("am 3. Oktober")."""
    return any(day.start() == match.end() for day in _GERMAN_DAY.finditer(text, max(0, match.start() - 3)))


def _run_behind(text: str, place: int) -> int:
    """Letters from a place to the next blank."""
    blank = regex.search(r"\s|$", text, pos=place)
    return blank.start() - place if blank else 0


def one_line(text: str) -> str:
    """Text as one line of valid Unicode that cannot open or close a field of a prompt, safe to put into any of ours.

    Untrusted text (corpus, questions) goes through here before it enters a prompt: without line breaks it cannot
    start a labelled line, and DSPy's ``[[ ## field ## ]]`` markers lose the blanks that make them markers.
    """
    # Half a character (a lone surrogate, as JSON and file names can hold) would stop every encoder behind this.
    text = text.encode("utf-8", "replace").decode("utf-8")
    return " ".join(text.split()).replace("[[ ##", "[[##").replace("## ]]", "##]]")


def words(text: str) -> list[str]:
    """Case-folded, NFKC-normalised words of any script; what provenance, grounding and matching compare.

    Scripts without blanks (Chinese, Japanese, Thai, ...) and Korean give each letter and each pair of neighbours, in
    order: "北京市" is 北, 北京, 京, 京市, 市. So a name is found inside a longer run, and letters that merely occur
    somewhere are not taken for it.
    """
    folded = _folded(text)
    if not _UNSPACED_LETTER.search(folded):
        return _WORD.findall(folded)
    found: list[str] = []
    for run in _WORD.findall(folded):
        before = ""
        for piece in _PIECE.findall(run):
            unspaced = bool(_UNSPACED_LETTER.match(piece))
            found += [before + piece, piece] if unspaced and before else [piece]
            before = piece if unspaced else ""
    return found


def word_count(text: str) -> int:
    """How many words a text has, where scripts without blanks count a word for two letters."""
    pieces = [piece for run in _WORD.findall(_folded(text)) for piece in _PIECE.findall(run)]
    letters = sum(bool(_UNSPACED_LETTER.match(piece)) for piece in pieces)
    return len(pieces) - letters + (letters + 1) // 2


def holds_run(text: str, wanted: str) -> bool:
    """Whether the words of ``wanted`` stand in ``text`` in a row; never so where it has none."""
    tokens, run = words(text), words(wanted)
    return bool(run) and any(tokens[i : i + len(run)] == run for i in range(len(tokens) - len(run) + 1))


def letter_runs(text: str) -> Iterator[str]:
    """Runs of letters, digits and marks, and each other visible sign by itself; of scripts without blanks (and Korean)
    each letter is a run.
    """
    for token in regex.findall(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]", text):
        yield from _PIECE.findall(token) or [token]


def _folded(text: str) -> str:
    """Text under which two spellings are the same: compatibility forms, case and invisible signs out of the way."""
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).casefold()
    folded = _VOWELS.sub("", unicodedata.normalize("NFKC", folded)).translate(_ARABIC)
    return folded.replace("i\u0307", "i")  # the Turkish İ, whose fold leaves its dot


def content_words(text: str) -> set[str]:
    """The words that tell what a text is about: those that are no function words."""
    return set(words(text)) - FUNCTION_WORDS


def signed_words(text: str) -> list[str]:
    """Words with the signs that tell them apart: ``C++`` from ``C#``, ``-5`` from ``5``, ``.NET`` from ``NET``, ``A+``
    from ``A-``, ``Ke$ha`` from ``Ke ha``.
    """
    return [token.replace("−", "-") for token in _SIGNED.findall(_folded(text))]


def match_key(text: str) -> str:
    """Key under which two spellings of a name or title count as the same: words only, accents kept, and of the symbols
    those that tell words apart (``C++`` from ``C#``). All symbols stay where a text has no letters or digits but one.
    """
    folded = _folded(text)
    return " ".join(signed_words(text)) if len(" ".join(_WORD.findall(folded))) > 1 else "".join(folded.split())


def normalize_answer(text: str) -> str:
    """Official answer normalisation of HotpotQA, 2Wiki, MuSiQue and FiD: lower-case, delete ASCII punctuation,
    drop articles, squeeze white space. No Unicode normalisation, as in the official scripts.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def is_refusal(answer: str | None) -> bool:
    """Whether an answer counts as a refusal (``Suf(a) = 0`` in CIRAG eq. 6): neither words nor a sign that can
    be an answer (``∞``), or exactly a refusal phrase.

    Exact match after normalisation, never a substring: "Unknown Pleasures" is an answer. So are only whole sentences
    that begin as a refusal does: "Unanswerable. The evidence is silent.", "The question cannot be answered from ..."
    """
    answer = (answer or "").replace("’", "'")
    if not words(answer):
        return not any(not sign.isascii() and unicodedata.category(sign) in ("Sc", "Sm", "So") for sign in answer)
    return normalize_answer(answer) in _REFUSALS or bool(_REFUSED_IN_A_SENTENCE.match(answer))


def is_empty_query(query: str | None) -> bool:
    """Whether a next-hop query says that there is none, with or without a reason behind it."""
    return not words(query or "") or bool(_EMPTY_QUERY.match(query or ""))


def word_f1(some: Sequence[str], others: Sequence[str]) -> float:
    """F1 of two bags of words, 0 to 1; of none 0."""
    shared = (Counter(some) & Counter(others)).total()
    return 2 * shared / max(1, len(some) + len(others))


def fact_lines(text: str) -> list[str]:
    """The facts of a prompt, one a line, without their numbers where they are numbered."""
    lines = text.splitlines()
    if all(line.startswith(f"{number}. ") for number, line in enumerate(lines, 1)):
        return [line.partition(". ")[2] for line in lines]
    return lines


def best_sentence(text: str, sentences: Sequence[str]) -> int:
    """Index of the sentence that holds most of the distinct words of ``text``; ties go to the first.

    Returns 0 when no sentence shares a word. ``sentences`` must not be empty.
    """
    wanted = set(words(text))
    scores = [len(wanted.intersection(words(sentence))) for sentence in sentences]
    return max(range(len(scores)), key=scores.__getitem__)
