"""Our programs as DSPy's callers use them: awaited, streamed, and their predictions as JSON."""

import asyncio
import json
import logging
import re
import threading
from contextlib import nullcontext
from pathlib import Path

import dspy
import orjson
import pytest
from dspy.lm15 import response_to_events
from dspy.streaming import StatusMessage, StreamListener, StreamResponse, streaming_response
from dspy.utils.callback import BaseCallback

import cirag_dspy
from cirag_dspy.errors import RunError
from cirag_dspy.modules.extract import Extract
from cirag_dspy.modules.plain import plain
from cirag_dspy.modules.reader import Reader
from cirag_dspy.modules.streaming import LineListener
from cirag_dspy.systems import SYSTEMS, build_system
from tests.fakes import ScriptedEngine
from tests.systems.world import PASSAGES, fill, world_index

QUESTION = "Who directed Harbor Song?"
REPLY = (
    "thought: so\ncore: 1\nnext_query: none\nanswer: Ada Brook\naction: finish[Ada Brook]\nentities: x\ntriples: a | b | c\n"
    "reasoning: so\nscore: 0.9\nsummary: s\nsufficient: yes\nretrieve: no\nmissing: none\nreason: r\nreliability: 0.9"
)


class Streaming(ScriptedEngine):
    """Also streams, three letters at a time."""

    def stream(self, request):
        response = self.complete(request)
        for event in response_to_events(response):
            if event.type == "delta" and event.delta.type == "text":
                for start in range(0, len(event.delta.text), 3):
                    yield event.__class__(delta=event.delta.__class__(text=event.delta.text[start : start + 3]))
            else:
                yield event


def lm_of(reply=lambda messages: REPLY):
    engine = Streaming(reply)
    return dspy.LM("scripted/lm", engine=engine, cache=False, num_retries=0), engine


@pytest.fixture
def index(tmp_path):
    with world_index(tmp_path) as built:
        yield built


@pytest.fixture
def filled(index):
    fill(index)
    return index


async def all_of(stream):
    return [item async for item in stream]


# Awaited


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name != "flare"])  # which needs log-probabilities
def test_every_system_can_be_awaited(name, filled):
    program = build_system(name, filled)
    lm, _ = lm_of()
    with dspy.context(lm=lm):
        assert asyncio.run(program.acall(question=QUESTION)).toDict() == program(question=QUESTION).toDict()


def test_modules_can_be_awaited_by_themselves(filled):
    lm, _ = lm_of()
    passage = next(iter(PASSAGES.values()))
    with dspy.context(lm=lm):
        assert asyncio.run(Reader().acall(question=QUESTION, passages=[passage])).answer == "Ada Brook"
        assert asyncio.run(Extract().acall(passage=passage)).extraction.triples[0].head == "a"


def test_an_awaited_program_sees_its_callers_settings(filled, caplog):
    seen = []

    class Callback(BaseCallback):
        def on_module_start(self, call_id, instance, inputs):
            seen.append(type(instance).__name__)

    lm, engine = lm_of(lambda messages: "[[ ## answer ## ]]\nAda Brook\n\n[[ ## completed ## ]]")
    program = build_system("native_rag", filled)
    with (
        dspy.context(lm=lm, adapter=dspy.ChatAdapter(), track_usage=True, callbacks=[Callback()]),
        caplog.at_level(logging.WARNING),
    ):
        prediction = asyncio.run(program.acall(question=QUESTION))
    assert prediction.answer == "Ada Brook" and "[[ ## answer ## ]]" in engine.prompts[0][-1]["content"]
    assert list(prediction.get_lm_usage()) == ["scripted/lm"]
    assert seen == ["NativeRAG", "Reader", "Predict"] and not caplog.records


def test_many_at_once(filled):
    together = threading.Barrier(3, timeout=20)

    def reply(messages):
        together.wait()
        return f"answer: {re.search(r'number (.)', messages[-1]['content'])[1]}"

    program = build_system("native_rag", filled)

    async def ask():
        return await asyncio.gather(*(program.acall(question=f"Harbor number {number}") for number in "123"))

    lm, engine = lm_of(reply)
    engine.lock = nullcontext()
    with dspy.context(lm=lm):
        assert [one.answer for one in asyncio.run(ask())] == ["1", "2", "3"]


def test_nothing_is_begun_for_a_caller_who_has_gone(filled):
    started, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def reply(messages):
        started.set()
        go_on.wait(20)
        return "thought: t\ncore: 1\nnext_query: something else"

    lm, engine = lm_of(reply)
    program = build_system("cirag", filled)
    run = program._gather

    def gather(question):
        try:
            return run(question)
        finally:
            ended.set()

    program._gather = gather

    async def ask():
        task = asyncio.create_task(program.acall(question=QUESTION))
        await asyncio.to_thread(started.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        await asyncio.to_thread(ended.wait, 20)

    with dspy.context(lm=lm):
        asyncio.run(ask())
    assert len(engine.prompts) == 1


def test_errors_come_through(filled):
    with dspy.context(lm=lm_of(lambda messages: dspy.LMAuthError("no key"))[0]), pytest.raises(dspy.LMError):
        asyncio.run(build_system("native_rag", filled).acall(question=QUESTION))


# Streamed


def test_steps_are_told(filled):
    stream = dspy.streamify(build_system("cirag", filled), status_message_provider=cirag_dspy.StepMessages())
    with dspy.context(lm=lm_of()[0]):
        items = asyncio.run(all_of(stream(question=QUESTION)))
    told = [item.message for item in items if isinstance(item, StatusMessage)]
    assert told[0] == f"hop: searching for {QUESTION}" and re.fullmatch(r"facts: \d+ of 5 passages", told[1])
    assert told[2:] == ["gate: triples suffice", "answer: Ada Brook (triples)"]
    assert items[-1].answer == "Ada Brook"


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name not in ("flare", "dualrag")])
@pytest.mark.parametrize("awaited", [False, True])
def test_every_system_tells_its_searches_and_its_answer(name, awaited, filled):
    class Brief(cirag_dspy.StepMessages):
        def hop_status_message(self, query):
            return "hop"

        def answer_status_message(self, answer, level):
            return answer

    program = build_system(name, filled)
    stream = dspy.streamify(program, status_message_provider=Brief(), is_async_program=awaited)
    with dspy.context(lm=lm_of()[0]):
        items = asyncio.run(all_of(stream(question=QUESTION)))
    told = [item.message for item in items if isinstance(item, StatusMessage)]
    assert told[-1] == items[-1].answer == "Ada Brook"
    assert name == "react" or "hop" in told


def test_extraction_in_threads_does_not_break_a_stream(index, caplog):
    program = build_system("cirag", index, threads=4)
    stream = dspy.streamify(program, status_message_provider=cirag_dspy.StepMessages())
    with dspy.context(lm=lm_of()[0]), caplog.at_level(logging.WARNING):
        items = asyncio.run(all_of(stream(question=QUESTION)))
    assert items[-1].answer == "Ada Brook" and not caplog.records


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("answer: Ada Brook", "Ada Brook"),
        ("thought: the answer is: no\nanswer: Ada\nBrook", "Ada\nBrook"),
        ("**Answer:** Łódź", "Łódź"),
        ("thought: t\n### Answer\nVelden\n", "Velden"),
    ],
)
def test_an_answer_is_streamed_as_it_is_written(reply, expected, filled):
    program = build_system("cirag", filled)
    listeners = cirag_dspy.listeners(program)
    assert [one.predict_name for one in listeners] == [
        *("cascade.triples", "cascade.sentences", "cascade.passages", "cascade.default.read")
    ]
    stream = dspy.streamify(program, stream_listeners=listeners)
    replies = lambda messages: reply if "facts" not in messages[-1]["content"] else REPLY  # noqa: E731
    with dspy.context(lm=lm_of(replies)[0]):
        items = asyncio.run(all_of(stream(question=QUESTION)))
    chunks = [item for item in items if isinstance(item, StreamResponse) and item.predict_name == "cascade.triples"]
    assert "".join(one.chunk for one in chunks) == expected
    assert [one.is_last_chunk for one in chunks] == [False] * (len(chunks) - 1) + [True]
    assert isinstance(items[-1], dspy.Prediction)


def test_dspys_own_listener_is_refused_with_what_to_do(filled):
    program = build_system("native_rag", filled)
    stream = dspy.streamify(program, stream_listeners=[StreamListener("answer")])
    with dspy.context(lm=lm_of()[0]), pytest.raises(RunError) as error:
        asyncio.run(all_of(stream(question=QUESTION)))
    assert "use cirag_dspy.listeners(program), or dspy.context(adapter=dspy.ChatAdapter())" in str(error.value)
    assert "\n" not in str(error.value)
    marked = "[[ ## answer ## ]]\nAda Brook\n\n[[ ## completed ## ]]"
    stream = dspy.streamify(program, stream_listeners=[StreamListener("answer")])
    with dspy.context(lm=lm_of(lambda messages: marked)[0], adapter=dspy.ChatAdapter()):
        items = asyncio.run(all_of(stream(question=QUESTION)))
    assert "".join(item.chunk for item in items if isinstance(item, StreamResponse)) == "Ada Brook"


def test_without_a_provider_the_stream_is_what_dspys_server_helper_takes(filled):
    stream = dspy.streamify(build_system("native_rag", filled), stream_listeners=[])
    with dspy.context(lm=lm_of()[0]):
        lines = asyncio.run(all_of(streaming_response(stream(question=QUESTION))))
    assert lines[-1] == "data: [DONE]\n\n" and json.loads(lines[-2][6:])["prediction"]["answer"] == "Ada Brook"


def test_listeners_of_another_field(filled):
    (listener,) = cirag_dspy.listeners(build_system("cirag", filled), "next_query")
    assert isinstance(listener, LineListener) and listener.predict_name == "integration.integrate"


def test_the_page_of_examples_runs(filled, tmp_path):
    text = (Path(__file__).parents[1] / "docs" / "dspy.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.S))
    told = []
    with dspy.context(lm=lm_of()[0]):
        exec(
            code.replace('"my-program"', repr(str(tmp_path / "p"))),
            {"index": filled, "print": lambda *given, **_: told.append(given[0])},
        )
    assert "hop: searching for Who directed Harbor Song?" in told and told.count("Ada Brook") >= 3


# Predictions as JSON


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name != "flare"])
def test_a_prediction_is_json(name, filled):
    with dspy.context(lm=lm_of()[0]):
        prediction = build_system(name, filled)(question=QUESTION)
    made = plain(prediction)
    assert json.loads(json.dumps(made)) == made == json.loads(orjson.dumps(prediction.toDict(), default=plain))
    assert made["answer"] == "Ada Brook" and made["passages"] is not None
    assert all(hop.keys() >= {"query", "passage_ids", "candidates"} for hop in made["hops"])
