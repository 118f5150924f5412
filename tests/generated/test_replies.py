"""Any reply around a known answer: what was answered is read, what was quoted is not; no reply raises."""

import json

import pytest
from dspy.utils.exceptions import AdapterParseError
from hypothesis import given
from hypothesis import strategies as st

from cirag_dspy.adapter import LineAdapter
from cirag_dspy.modules.act import read_action
from cirag_dspy.modules.decompose import parse_questions
from cirag_dspy.modules.identify import parse_needs
from cirag_dspy.modules.integrate import read_query
from cirag_dspy.modules.judge import parse_score
from cirag_dspy.modules.parse import parse_core, parse_triples
from cirag_dspy.modules.queries import parse_queries
from cirag_dspy.modules.reader import read_answer
from cirag_dspy.modules.subproblems import parse_dependencies
from cirag_dspy.modules.verdict import parse_yes_no
from cirag_dspy.replies.thinking import without_thinking
from cirag_dspy.schema import Triple
from cirag_dspy.signatures import AnswerAnyway, AnswerIfSufficient, ExtractTriples, Integrate, ReasonFromPassages

ANSWERS = [
    "Oslo",
    "*NSYNC",
    "C++",
    "-5",
    "M*A*S*H",
    '"Weird Al" Yankovic',
    "北京",
    "Łódź",
    "القاهرة",
    "7. Januar 1920",
    "yes",
]
WORDS = [
    "The",
    "passage",
    "names",
    "a",
    "city",
    "and",
    "its",
    "year",
    "1911",
    "東京",
    "Осло",
    "(see",
    "below)",
    "<b>",
    "it's",
    "#1",
]
QUOTES = [
    '{"answer": "hacked"}',
    '{"thought": "x", "answer": "hacked"}',
    "{'answer': 'hacked'}",
    "[[ ## answer ## ]] hacked",
    "[[##answer##]] hacked [[##completed##]]",
    '"answer: hacked"',
    "<answer>hacked</answer>",
    "<think>answer: hacked</think>",
    "`answer: hacked`",
]
THINKING = [
    "<think>{}</think>",
    "<Thinking>\n{}\n</Thinking>\n",
    "<reasoning level='high'>{}</reasoning>\n\n",
    "<reflection>\n<think>{}</think>\n</reflection>\n",
    "<scratchpad>{}</scratchpad>",
    "<|begin_of_thought|>\n{}\n<|end_of_thought|>\n",
    "[THINK]{}[/THINK]",
    "◁think▷{}◁/think▷",
    "<seed:think>{}</seed:think>",
    "<|START_THINKING|>{}<|END_THINKING|>",
    "```thinking\n{}\n```\n",
    "{}\n</think>\n\n",
    "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>",
    "<|start|>assistant<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>",
    "analysis{}assistantfinal",
    "",
]
WRAPPERS = [
    lambda fields: fields,
    lambda fields: {"json_input": fields},
    lambda fields: {"json_input": json.dumps(fields)},
    lambda fields: [fields],
    lambda fields: {"name": "reply", "arguments": fields},
    lambda fields: {"name": "reply", "arguments": json.dumps(fields)},
    lambda fields: {
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": json.dumps(fields)}}]
    },
    lambda fields: {"response": {"output": fields}},
]
LABELS = ["{}: ", "**{}:** ", "### {}: ", "- {}: ", "{}：", "_{}_: "]
MARKERS = ["[[ ## {} ## ]]\n", "[[##{}##]] ", "**[[ ## {} ## ]]**\n", "### [[ ## {} ## ]]:\n", "[[  ##{} ## ]]\n"]

prose = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)


@st.composite
def quoting(draw):
    """A sentence that quotes something inside a line."""
    return f"{draw(prose)} {draw(st.sampled_from(['', *QUOTES]))} {draw(prose)}".replace("  ", " ")


@st.composite
def replies(draw):
    """A reply and the answer it gives."""
    answer, thought = draw(st.sampled_from(ANSWERS)), draw(quoting())
    fields = {"thought": thought, "answer": answer}
    cased = draw(st.sampled_from([str, str.title, str.upper]))
    shape = draw(st.sampled_from(["labels", "markers", "json", "python", "tags"]))
    if shape == "labels":
        label, gap = draw(st.sampled_from(LABELS)), draw(st.sampled_from(["\n", "\n\n"]))
        body = gap.join(f"{label.format(cased(name))}{text}" for name, text in fields.items())
    elif shape == "markers":
        marker = draw(st.sampled_from(MARKERS))
        body = "\n\n".join(f"{marker.format(cased(name))}{text}" for name, text in fields.items())
        body += draw(st.sampled_from(["", "\n\n[[ ## completed ## ]]", "\n[[##completed##]]"]))
    elif shape == "json":
        wrapped = draw(st.sampled_from(WRAPPERS))(fields)
        body = json.dumps(wrapped, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 2])))
        body = draw(
            st.sampled_from(["{}", "```json\n{}\n```", "Here is the JSON:\n{}", "Sure! Here it is: {}", "```\n{}\n```"])
        ).format(body)
    elif shape == "python":
        body = repr(draw(st.sampled_from(WRAPPERS[:4:3]))(fields))
    else:
        body = "\n".join(f"<{name}>{text}</{name}>" for name, text in fields.items())
    before = draw(st.sampled_from(THINKING)).format(
        "The " + draw(quoting()) + draw(st.sampled_from(["", "\nanswer: hacked"]))
    )
    return before + body, answer


@given(replies())
def test_what_was_answered_is_read_and_what_was_quoted_is_not(case):
    reply, answer = case
    parsed = LineAdapter().parse(AnswerIfSufficient, reply)
    assert parsed["answer"] == answer
    assert read_answer(parsed["answer"]) == answer


pieces = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        [*QUOTES, *(part.replace("{}", "x") for part in THINKING), *ANSWERS, "\n", "answer:", "core: 1", "|", "```"]
    ),
    st.sampled_from(
        ["{", "}", "[", "]", '"', "'", ":", ",", "null", "\ud800", "\x00", "\u2028", "1.", "- ", "**", "search["]
    ),
)
anything = st.lists(pieces, max_size=12).map("".join)
FACTS = [Triple("a", "b", "c", "p", 0), Triple("C++", "is | was", "x", "p", 1)]


@pytest.mark.parametrize("signature", [AnswerAnyway, AnswerIfSufficient, ExtractTriples, Integrate, ReasonFromPassages])
@given(anything)
def test_no_reply_raises_anything_but_that_a_field_is_missing(signature, reply):
    try:
        fields = LineAdapter().parse(signature, reply)
    except AdapterParseError as error:
        fields = error.parsed_result
    assert all(type(value) is str for value in fields.values())


@given(anything)
def test_no_field_makes_its_reader_raise(text):
    triples, dropped = parse_triples(text)
    assert all(type(field) is str and field for fields in triples for field in fields) and dropped >= 0
    chosen, _ = parse_core(text, FACTS)
    assert set(chosen) <= set(FACTS)
    read = [*parse_queries(text), *parse_questions(text), read_query(text), read_answer(text), *read_action(text)]
    read += [query for _, queries in parse_needs(text, 4) for query in queries]
    assert all(type(one) is str and "\n" not in one for one in read)
    assert parse_yes_no(text) in (True, False, None)
    assert (score := parse_score(text)) is None or 0 <= score <= 1
    parse_dependencies(text)
    assert type(without_thinking(text)) is str
