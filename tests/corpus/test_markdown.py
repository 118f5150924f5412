"""Markdown to a title and paragraphs."""

import pytest

from cirag_dspy.corpus.cutting import pack
from cirag_dspy.corpus.markdown import read_markdown

CASES = {
    "headings": (
        "Before.\n\n# The *title* #\nBody.\n## Part\nMore.",
        "The *title*",
        [["Before."], ["Body."], ["Part", "More."]],
    ),
    "a fence before the title": (
        "```sh\n# remove\nrm -rf\n```\n# It\nText.",
        "It",
        [["# remove", "rm -rf"], ["Text."]],
    ),
    "a fence of tildes, longer than the one within": (
        "~~~~\n# a\n~~~\n# b\n~~~~\n# It\nText.",
        "It",
        [["# a", "~~~", "# b"], ["Text."]],
    ),
    "a fence that never ends": ("# T\n\n```\nunclosed\n# x\n", "T", [["unclosed", "# x"]]),
    "a fence within an item": ("1. a\n\n    ```\n    # no\n    ```\n# Yes\nx", "Yes", [["1. a"], ["# no"], ["x"]]),
    "a fence that is code itself": ("    ```\n    # no\n\n# Yes\nx", "Yes", [["``` # no"], ["x"]]),
    "ticks in a line are no fence": ("``` a ```\n# Yes\nx", "Yes", [["``` a ```"], ["x"]]),
    "YAML": ('---\ntitle: "Foo: bar"\ntags:\n- a\n---\nText.', "Foo: bar", [["Text."]]),
    "YAML, single quotes and a comment": ("---\ntitle: 'It''s' # c\n---\n# It's\nText.", "It's", [["Text."]]),
    "YAML, plain": ("---\n# all\nTitle: Plain # comment\n---\n# Head\nText.", "Plain", [["Head", "Text."]]),
    "YAML, on the lines below": ("---\ntitle: >-\n  Long\n  title\nx: 1\n...\nText.", "Long title", [["Text."]]),
    "YAML without a title": ("---\nlayout: post\nmeta:\n  title: no\n---\n# Yes\nText.", "Yes", [["Text."]]),
    "TOML": ("+++\ntitle = 'Toml'\n[extra]\na = 1\n+++\nText.", "Toml", [["Text."]]),
    "a rule is no front matter": (
        "---\n\nProse: or not, it is prose.\nMore.\n\n---\nEnd.",
        "",
        [["Prose: or not, it is prose.", "More."], ["End."]],
    ),
    "front matter without an end": ("---\nkey: value\n\nText", "", [["key: value"], ["Text"]]),
    "underlined headings": ("Title\n=====\n\nOne.\n\nSub\n---\nTwo.", "Title", [["One."], ["Sub", "Two."]]),
    "a rule below a paragraph": ("one\ntwo\n---\nnext", "", [["one two"], ["next"]]),
    "no blank, no heading": (
        "#hashtag\n\n#5 too\n####### seven\n# C#\ntext",
        "C#",
        [["#hashtag"], ["#5 too ####### seven"], ["text"]],
    ),
    "comments": (
        "<!-- # no\n```\n-->\n# Yes\nText <!-- in --> here. `<!--` stays `-->`.",
        "Yes",
        [["Text here. `<!--` stays `-->`."]],
    ),
    "a comment that never ends": ("<!-- open\n# Head\ntext", "Head", [["<!-- open"], ["text"]]),
    "table and items": (
        "# T\n| a | b |\n|---|:-:|\n| 1 | 2 |\n\n- one\n- two\n  more\n1. three",
        "T",
        [["| a | b |", "| 1 | 2 |"], ["- one", "- two more", "1. three"]],
    ),
    "a link in the title": ("# [Foo](http://x) bar\nA [link](http://y).", "Foo bar", [["A [link](http://y)."]]),
    "headings only": ("# A\n## B\n### C\n", "A", [["B", "C"]]),
    "a title only": ("# A", "A", [["A"]]),
    "quoted headings": ("> # quoted\n\n# Real\nx", "Real", [["> # quoted"], ["x"]]),
    "Windows": ("---\r\ntitle: W\r\n---\r\nOne.\r\n".replace("\r\n", "\n"), "W", [["One."]]),
    "nothing": ("", "", []),
}


@pytest.mark.parametrize("name", CASES)
def test_markdown(name):
    text, title, paragraphs = CASES[name]
    page = read_markdown(text)
    assert (page.title, page.paragraphs) == (title, paragraphs)


def test_a_heading_stays_with_its_section():
    page = read_markdown("# T\n" + "Word " * 110 + ".\n\n## Part\n\n" + "Part " * 20 + ".")
    assert [passage[0].split()[0] for passage in pack(page.paragraphs)] == ["Word", "Part"]
    assert pack(page.paragraphs)[1][0] == "Part"
