from __future__ import annotations

import contextvars
from concurrent.futures import ThreadPoolExecutor

import dspy
import pytest
from dspy.lm15 import Message, Response, ServerError, Usage
from dspy.utils.callback import BaseCallback

from cirag_dspy.lms import LMMeter


class Scripted:
    """Answers with known counts: 7 tokens in, one out per word; fails on "fail"; reports nothing on "silent"."""

    def complete(self, request):
        text = request.messages[-1].text
        if text.startswith("fail"):
            raise ServerError("down")
        usage = Usage() if text == "silent" else Usage(input_tokens=7, output_tokens=len(text.split()))
        return Response(id=None, model="m", message=Message.assistant("ok"), finish_reason="stop", usage=usage)


@pytest.fixture
def lm():
    return dspy.LM("local/scripted", engine=Scripted(), cache=True, num_retries=0)


def counts(calls=0, cached=0, failed=0, prompt_tokens=0, completion_tokens=0, cut_replies=0, cut_prompts=0):
    return locals()


def totals(meter):
    return {name: value for name, value in meter.snapshot().items() if name != "by_module"}


def ask_all(lm, prefix):
    with ThreadPoolExecutor(8) as pool:
        jobs = []
        for thread in range(8):
            context = contextvars.copy_context()
            jobs.append(pool.submit(context.run, lambda t=thread: [lm(f"{prefix} {t} {i}") for i in range(5)]))
        for job in jobs:
            job.result()


def test_threads_sum_exactly_and_cached_calls_are_free(lm):
    meter, rerun = LMMeter(), LMMeter()
    with meter.context():
        ask_all(lm, "a b")
    assert totals(meter) == counts(calls=40, prompt_tokens=280, completion_tokens=160)
    with rerun.context():
        ask_all(lm, "a b")
    assert totals(rerun) == counts(cached=40)
    assert meter.snapshot()["calls"] == 40


def test_dspy_parallel_and_modules_with_usage_tracking(lm):
    class Ask(dspy.Module):
        def forward(self, text):
            lm(text)
            return dspy.Prediction(answer="x")

    meter = LMMeter()
    with dspy.context(track_usage=True), meter.context():
        dspy.Parallel(num_threads=4, disable_progress_bar=True)(
            [(Ask(), dspy.Example(text=f"p {i}").with_inputs("text")) for i in range(12)]
        )
    assert totals(meter) == counts(calls=12, prompt_tokens=84, completion_tokens=24)


def test_failures_and_silent_providers_count(lm):
    meter = LMMeter()
    with meter.context():
        for text in ("fail", "silent", "one"):
            try:
                lm(text)
            except dspy.LMError:
                assert text == "fail"
    assert totals(meter) == counts(calls=2, failed=1, prompt_tokens=7, completion_tokens=1)


def test_meters_nest_and_keep_what_was_there(lm):
    class Seen(BaseCallback):
        n = 0

        def on_lm_start(self, call_id, instance, inputs):
            self.n += 1

    seen, outer, inner = Seen(), LMMeter(), LMMeter()
    with dspy.context(callbacks=[seen]), dspy.track_usage() as tracker, outer.context():
        lm("one")
        with inner.context(), inner.context():
            lm("two words")
        with dspy.track_usage() as nested:
            lm("three more words")
    assert totals(inner) == counts(calls=1, prompt_tokens=7, completion_tokens=2)
    assert totals(outer) == counts(calls=3, prompt_tokens=21, completion_tokens=6)
    assert tracker.get_total_tokens()["local/scripted"]["completion_tokens"] == 6
    assert nested.get_total_tokens()["local/scripted"]["completion_tokens"] == 3
    assert seen.n == 3


def test_async_calls(lm):
    import asyncio

    class Async:
        async def complete(self, request):
            return Scripted().complete(request)

    lm = lm.copy(engine=Scripted(), async_engine=Async())
    meter = LMMeter()

    async def main():
        with meter.context():
            await asyncio.gather(*(lm.acall(f"q {i}") for i in range(10)))

    asyncio.run(main())
    assert totals(meter) == counts(calls=10, prompt_tokens=70, completion_tokens=20)


def test_other_names_for_usage():
    meter = LMMeter()
    with meter.context():
        dspy.settings.usage_tracker.add_usage("m", {"input_tokens": 4, "output_tokens": None})
    assert meter.snapshot()["prompt_tokens"] == 4


def test_calls_are_told_apart_by_module(lm):
    class Inner(dspy.Module):
        def __init__(self):
            super().__init__()
            self.predict = dspy.Predict("question -> answer")

        def forward(self):
            lm("one two")

    class Outer(dspy.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self):
            self.inner()
            lm("three")

    meter = LMMeter()
    with meter.context():
        Outer()()
        lm("four")
    found = {name: module["completion_tokens"] for name, module in meter.snapshot()["by_module"].items()}
    assert found == {"Inner": 2, "Outer": 1, "no module": 1}


def test_a_nested_usage_tracker_leaves_no_negative_counts(lm):
    class Inner(dspy.Module):
        def forward(self):
            lm("one two")

    class Outer(dspy.Module):
        def forward(self):
            with dspy.track_usage():
                Inner()()

    meter = LMMeter()
    with meter.context():
        Outer()()
    assert meter.snapshot()["by_module"]["Inner"] == counts(calls=1, prompt_tokens=7, completion_tokens=2)
    assert all(value >= 0 for module in meter.snapshot()["by_module"].values() for value in module.values())


def test_replies_cut_at_the_limit_of_their_tokens_are_counted():
    from cirag_dspy.modules.ask import ask
    from tests.fakes import scripted_lm

    cut, _ = scripted_lm([("thought: it goes on", "length"), ("thought: t\nanswer: Oslo", "stop")])
    meter = LMMeter()
    with dspy.context(lm=cut), meter.context():
        reply = ask(dspy.Predict("question -> thought, answer"), {"question": "q"})
    assert reply["answer"] == "Oslo"
    assert (meter.snapshot()["cut_replies"], meter.snapshot()["calls"]) == (1, 2)
