"""A reply without the thinking of a reasoning model."""

from __future__ import annotations

import re

_NAME = (
    r"think(?:ing)?|thoughts?|thought[_ -]process|reason(?:ing)?|reflect(?:ion)?|scratch[_ -]?pad|analysis|cot"
    r"|chain[_-]of[_-]thought|inner[_ -]?(?:thoughts?|monologue)|monologue|deliberation|planning"
)
_SPACE = r"(?:[\w.-]{1,20}[:_])?"  # as in <seed:think>, <longcat_think>
# How models open and close their thinking. The name that a block opens with is the one that it closes with.
_WRAPPERS = (
    (rf"<(?P<n>{_SPACE}(?:{_NAME}))(?:\s[^<>\n]*)?>", r"</\s*{n}\s*>"),
    (rf"\[(?P<n>{_NAME})\]", r"\[/\s*{n}\s*\]"),  # Magistral
    (rf"◁(?P<n>{_NAME})▷", r"◁/{n}▷"),  # Kimi
    (rf"<\|(?P<n>{_NAME})\|>", r"<\|(?:/|end_?(?:of_)?){n}\|>"),
    (rf"<\|begin_of_(?P<n>{_NAME})\|>", r"<\|end_of_{n}\|>"),  # Sky-T1, OpenThinker
    (rf"<\|start_(?P<n>{_NAME})\|>", r"<\|end_{n}\|>"),  # Command A
    (r"<\|(?P<n>inner)_prefix\|>", r"<\|{n}_suffix\|>"),  # Apertus
    (r"<\|(?P<n>channel)>(?:thought|analysis)\b", r"<{n}\|>"),  # Gemma
    (rf"```(?P<n>{_NAME})[^\S\n]*$", r"^```[^\S\n]*$"),
)
_FLAGS = re.I | re.M
_OPENINGS = [(re.compile(opening, _FLAGS), closing) for opening, closing in _WRAPPERS]
_BEFORE = r"^[^\S\n]*(?:[*_#>-]+[^\S\n]*)?"
_FIRST = re.compile("|".join(f"(?:{_BEFORE}(?:{re.sub('P<n>', ':', opening)}))" for opening, _ in _WRAPPERS), _FLAGS)
_ANY_CLOSING = re.compile(
    "|".join(closing.replace("{n}", f"{_SPACE}(?:{_NAME})") for _, closing in _WRAPPERS[:6]), _FLAGS
)
# What may stay open: a bracketed word alone is rather a heading.
_STAYS_OPEN = re.compile(r"\s*(?:<|◁|```|\[think)", re.I)

# gpt-oss writes messages into channels; servers that drop its special tokens leave the names of the channels.
_MESSAGE = re.compile(
    r"(?:<\|start\|>\s*(?:assistant)?\s*)?<\|channel\|>\s*(?P<channel>\w+)[^\n]{0,80}?<\|message\|>"
    r"|\A\s*(?:assistant)?(?P<stripped>analysis|commentary|final)[^\S\n]*<\|message\|>",
    re.I,
)
_MESSAGE_END = re.compile(r"<\|(?:end|return|call|start)\|>")
_IS_CHANNELS = re.compile(
    r"\A\s*(?:<\|start\|>|<\|channel\|>|(?:assistant)?(?:analysis|commentary|final)[^\S\n]*<\|message\|>)"
    r"|<\|end\|>\s*<\|start\|>\s*assistant",
    re.I,
)
_BARE_CHANNELS = re.compile(r"\A\s*(?:assistant)?\s*(?:analysis|commentary)(?=[A-Z\W]|\w*?[A-Z])")
_BARE_FINAL = re.compile(r"assistant\s?final\b|assistantfinal")
_GLUED = re.compile(r"\A\s*(?:analysis|commentary)(?=[A-Z])")
# What stands around a whole reply: special tokens, and tags that only say that it is one.
_SHELL = r"response|reply|output|final|final_response|solution|result|message|tool_call|function_call"
_LEADS = re.compile(rf"\A\s*(?:<\|[\w/ ]{{1,40}}\|>|<(?:{_SHELL})>|<s>)\s*(?:assistant\s*\n)?", re.I)
_TRAILS = re.compile(rf"(?:<\|[\w/ ]{{1,40}}\|>|</(?:{_SHELL})>|</s>|<end_of_turn>|<eos>)\Z", re.I)
_LABEL = re.compile(r"^[\s*_#>`•\"'{\[-]*[A-Za-z][A-Za-z _-]{0,30}[\s*_`\"']*[:：]", re.M)


# Thinking directly behind a label, with the field's text behind it.
_BEHIND_LABEL = re.compile(
    rf"^([^\S\n]*[*_#>-]*[A-Za-z][A-Za-z _-]{{0,30}}[*_]*[:：][*_]*[^\S\n]*)<({_NAME})>.*?</\2>\s*(?=\w)",
    _FLAGS | re.S,
)


def without_thinking(reply: str) -> str:
    """A reply without the blocks of thinking before and between what it says, of any wrapper; nested ones too.

    A block begins a line, and one that never ends leaves nothing behind it. Where only the end of a block is there (the
    prompt's template opened it), all before it was thinking. Of the channels of gpt-oss, the last final message is the
    reply. A wrapper that is mentioned inside a line of text stays as it is.
    """
    reply = _BEHIND_LABEL.sub(r"\1", reply.lstrip("\ufeff\u200b\u200c\u200d\u2060"))
    reply = _without_blocks(_final_message(reply)).lstrip("\ufeff\u200b\u2060")
    for _ in range(6):
        if trail := _TRAILS.search(reply.rstrip()[-60:]):
            reply = reply.rstrip().removesuffix(trail[0])
        reply = _LEADS.sub("", reply, count=1)
    return reply


def _final_message(reply: str) -> str:
    if _IS_CHANNELS.search(reply):
        messages = list(_MESSAGE.finditer(reply))
        finals = [m for m in messages if (m["channel"] or m["stripped"]).lower() == "final"]
        if messages and not finals:
            return ""
        if finals:
            return _MESSAGE_END.split(reply[finals[-1].end() :], maxsplit=1)[0]
    if _BARE_CHANNELS.match(reply):
        *_, last = [None, *_BARE_FINAL.finditer(reply)]
        if last is not None:
            return reply[last.end() :]
        return "" if _GLUED.match(reply) else reply
    return reply


def _without_blocks(reply: str) -> str:
    place = 0
    while found := _FIRST.search(reply, place):
        if place and not _ANY_CLOSING.search(reply, place) and "```" not in reply[place:]:
            break
        start = found.start()
        end = _end_of_block(reply, start, found.end())
        if end is not None:
            reply = f"{reply[:start]}{reply[end:]}"
            place = start
        elif not reply[:start].strip() and _STAYS_OPEN.match(reply, start):
            return ""
        else:
            place = found.end()
    return _without_unopened(reply)


def _end_of_block(reply: str, start: int, opened: int) -> int | None:
    """Where the block that opens at ``start`` ends, its inner blocks of the same name passed over."""
    for opening, closing in _OPENINGS:
        match = opening.search(reply, start, opened)
        if match is None or match.end() != opened:
            continue
        both = re.compile(
            rf"(?P<close>{closing.format(n=re.escape(match['n']))})|{re.sub('P<n>', ':', opening.pattern)}", _FLAGS
        )
        depth, last = 1, None
        for mark in both.finditer(reply, opened):
            depth += -1 if mark["close"] else 1
            last = mark.end() if mark["close"] else last
            if depth == 0:
                return mark.end()
        if last is not None:
            return last  # one of the inner ones was a mention
    other = _ANY_CLOSING.search(reply, opened)
    return other.end() if other and reply[start:opened].lstrip(" *_#>-")[:1] in "<[◁" else None


def _without_unopened(reply: str) -> str:
    for closing in reversed([*_ANY_CLOSING.finditer(reply)][-20:]):
        before, behind = reply[: closing.start()], reply[closing.end() :]
        line = before.rpartition("\n")[2]
        if not line.strip(" *_"):
            return behind
        label = _LABEL.match(line)
        opened = label is not None and any(opening.search(line, label.end()) for opening, _ in _OPENINGS)
        mentioned = opened or (line[-1] in " \t\"'`“‘(" and (_LABEL.search(before) or not behind.strip()))
        if not mentioned:
            return behind
    return reply
