"""Plain text: sentences, words, normalisation, refusals and short answers. No model, no I/O."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence

_WORD = re.compile(r"\w+")
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

# A sentence ends at . ! or ? (with closing quotes or brackets) before white space and something that can open one;
# CJK full stops need no white space behind them.
_BOUNDARY = re.compile(r"(?<=[.!?])[\"'”’)\]]*\s+(?=[\"'“‘(\[]?[^\W_a-z])|(?<=[。！？])\s*")
_INITIALS = re.compile(r"[^\W\d_](?:\.[^\W\d_])*")
_ABBREVIATIONS = frozenset(
    re.findall(
        r"\w+",
        "mr mrs ms dr prof rev hon st sr jr lt col gen sgt capt cmdr adm gov sen rep pres no vol fig pp ca cf vs inc "
        "ltd co corp dept est approx bros messrs mt ft jan feb mar apr jun jul aug sep sept oct nov dec",
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
    r"|(?:the )?(?:given |provided )?(?:evidence|passages?|context) (?:does not|do not|doesn't|don't) "
    r"(?:say|provide|mention|state|contain|specify|give|include)\b)",
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
# "The answer is:" counts at the start of a line or sentence and after a connective, not inside "I can't determine the
# answer: ...".
_ANSWER_LEAD = re.compile(
    r"^(?:.{0,400}?[.!?,;]\s+)?(?:(?:so|thus|hence|therefore)[,:]?\s+)?(?:the\s+|my\s+)?(?:final\s+|short\s+)?"
    r"answer(?:\s+to\s+(?:the|this|your)\s+question)?\s*(?:is\s*:?|:)\s*",
    re.I,
)


def split_sentences(text: str) -> list[str]:
    """Split running text into sentences; white space inside each is collapsed, none is empty.

    A rule-based splitter: common abbreviations and initials (``J. R.``, ``U.S.``) do not end a sentence.
    """
    sentences: list[str] = []
    start = 0
    for match in _BOUNDARY.finditer(text):
        piece = text[start : match.end()]
        last = piece.rstrip().rsplit(None, 1)[-1] if piece.strip() else ""
        token = last.rstrip(".").lstrip("(\"'“‘[")
        if last.endswith(".") and (token.lower() in _ABBREVIATIONS or _INITIALS.fullmatch(token)):
            continue
        sentences.append(one_line(piece))
        start = match.end()
    sentences.append(one_line(text[start:]))
    return [sentence for sentence in sentences if sentence]


def one_line(text: str) -> str:
    """Text as one line of valid Unicode that cannot open or close a field of a prompt, safe to put into any of ours.

    Untrusted text (corpus, questions) goes through here before it enters a prompt: without line breaks it cannot
    start a labelled line, and DSPy's ``[[ ## field ## ]]`` markers lose the blanks that make them markers.
    """
    # Half a character (a lone surrogate, as JSON and file names can hold) would stop every encoder behind this.
    text = text.encode("utf-8", "replace").decode("utf-8")
    return " ".join(text.split()).replace("[[ ##", "[[##").replace("## ]]", "##]]")


def words(text: str) -> list[str]:
    """Case-folded, NFC-normalised words of any script; what provenance and matching compare."""
    return _WORD.findall(unicodedata.normalize("NFC", text).casefold())


def content_words(text: str) -> set[str]:
    """The words that tell what a text is about: those that are no function words."""
    return set(words(text)) - FUNCTION_WORDS


def match_key(text: str) -> str:
    """Key under which two spellings of a name or title count as the same: words only, accents kept.

    Symbols that tell names apart (``C++`` from ``C#``) stay when a text has no letters or digits besides one.
    """
    folded = unicodedata.normalize("NFC", text).casefold()
    key = " ".join(_WORD.findall(folded))
    return "".join(folded.split()) if len(key) <= 1 else key


def normalize_answer(text: str) -> str:
    """Official answer normalisation of HotpotQA, 2Wiki, MuSiQue and FiD: lower-case, delete ASCII punctuation,
    drop articles, squeeze white space. No Unicode normalisation, as in the official scripts.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def is_refusal(answer: str | None) -> bool:
    """Whether an answer counts as a refusal (``Suf(a) = 0`` in CIRAG eq. 6): no words, or exactly a refusal phrase.

    Exact match after normalisation, never a substring: "Unknown Pleasures" is an answer. So are only whole sentences
    that begin as a refusal does: "Unanswerable. The evidence is silent.", "The question cannot be answered from ..."
    """
    answer = answer or ""
    return not words(answer) or normalize_answer(answer) in _REFUSALS or bool(_REFUSED_IN_A_SENTENCE.match(answer))


def is_empty_query(query: str | None) -> bool:
    """Whether a next-hop query says that there is none, with or without a reason behind it."""
    return not words(query or "") or bool(_EMPTY_QUERY.match(query or ""))


def short_answer(text: str) -> str:
    """The bare answer inside what a reader LM wrote: the first line that says something, without "The answer is:",
    wrapping quotes, markdown emphasis or a closing full stop. Initials keep their stop ("Washington, D.C.").
    """
    line = next(filter(None, map(_bare, text.splitlines())), "")
    if len(line) > 1 and line[0] in "\"'“‘" and line[-1] in "\"'”’" and not set(line[1:-1]) & set('"“”'):
        line = line[1:-1].strip()
    if line.endswith(".") and not re.search(r"\b(?:\w\.)+$|\b(?:Jr|Sr|Inc|Ltd|Co|Corp|St)\.$", line):
        line = line[:-1].rstrip().rstrip("*_`")
    return line


def _bare(line: str) -> str:
    """A line without fences, bullets, tags, boxes, emphasis or the words that announce an answer."""
    line = re.sub(r"^\s*(?:```\w*|[-•]\s+)|</?answer>|\\boxed\{([^{}]*)\}", r"\1", line, flags=re.I)
    return _ANSWER_LEAD.sub("", line.strip().lstrip("*_`# "), count=1).strip().strip("*_`").strip()


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
