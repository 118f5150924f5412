"""What may go of training rows: whole lines from the end, never what the reply rests on. Worked out by hand."""

import dspy
import pytest

from cirag_dspy.distill.encode import encode_rows
from cirag_dspy.distill.evidence import edited, rests_on
from cirag_dspy.distill.rows import chat_rows, extraction_rows, read_rows, write_rows
from cirag_dspy.distill.trajectories import Call, Trajectory
from cirag_dspy.schema import Passage, Triple
from cirag_dspy.systems import SYSTEMS, build_system
from tests.tiny import CHATML, LLAMA3, QWEN, tiny_tokenizer

QUESTION = "Where was the director of Harbor Song born?"
PASSAGES = ["Harbor Song: A film.", "Ada Brook: She was born in Velden.", "Mora: A town.", "Tom Hale: A man of Mora."]


def rows_of(*calls, system="cirag", adapter=None):
    with dspy.context(adapter=adapter):
        return chat_rows(build_system(system, None), [Trajectory("1", QUESTION, "a", 1.0, True, "", list(calls))])


def shown(row, message=1):
    """The message as it is, then after each of its edits."""
    content = row["messages"][message]["content"]
    return [content, *(edited(content, edit) for edit in row["evidence"].get(str(message), []))]


def reading(answer):
    return Call("reader.read", {"question": QUESTION, "passages": "\n".join(PASSAGES)}, {"answer": answer})


def test_passages_go_from_the_end_up_to_the_one_that_holds_the_answer():
    [row] = rows_of(reading("Velden"), system="native_rag")
    assert shown(row) == [f"question: {QUESTION}\npassages:\n" + "\n".join(PASSAGES[:left]) for left in (4, 3, 2)]


def test_an_answer_of_yes_rests_on_no_line_and_the_last_one_stays():
    [row] = rows_of(reading("yes"), system="native_rag")
    assert len(shown(row)) == 4
    assert shown(row)[-1] == f"question: {QUESTION}\npassages: {PASSAGES[0]}"


def test_facts_go_up_to_the_last_that_is_kept_and_keep_their_numbers():
    facts = [f"{n}. {h} | is | {n}" for n, h in enumerate("abcdef", 1)]
    inputs = {"question": QUESTION, "query": "q", "facts": "\n".join(facts)}
    [row] = rows_of(Call("integration.integrate", inputs, {"core": "2, 4", "next_query": "f"}))
    assert shown(row)[-1] == f"question: {QUESTION}\nquery: q\nfacts:\n" + "\n".join(facts[:4])
    [row] = rows_of(Call("integration.integrate", inputs, {"core": "none", "next_query": "x"}))
    assert shown(row)[-1] == f"question: {QUESTION}\nquery: q\nfacts: {facts[0]}"


def test_a_passage_loses_sentences_up_to_the_last_that_a_triple_is_from():
    passage = Passage.create("Ada Brook", "Ada Brook is a director. She was born in Velden. She paints. She sings.")
    triples = [Triple("Ada Brook", "was born in", "Velden", passage.id, 1)]
    [row] = extraction_rows(build_system("cirag", None), [(passage, triples)])
    assert [text.partition("passage: ")[2] for text in shown(row)] == [
        "Ada Brook is a director. She was born in Velden. She paints. She sings.",
        "Ada Brook is a director. She was born in Velden. She paints.",
        "Ada Brook is a director. She was born in Velden.",
    ]


@pytest.mark.parametrize(
    ("gone", "outputs", "needed"),
    [
        ("Velden lies on the Ree.", {"answer": "the Ree"}, True),
        ("Velden lies on the Ree.", {"answer": "Ada Brook"}, False),
        ("Velden lies on the Ree.", {"answer": "unanswerable"}, False),
        ("Velden lies on the Ree.", {"thought": "Ada Brook was born in Velden, on the Ree."}, False),
        ("Velden lies on the Ree.", {"thought": "So it is Velden on the Ree."}, True),
        ("Velden lies on the Ree.", {"action": "finish[the Ree]"}, True),
        ("Velden lies on the Ree.", {"action": "search[the Ree]"}, False),
        ("Velden lies on the Ree.", {"next_query": "the Ree"}, False),
        ("京都は川の町です。", {"answer": "京都"}, True),
        ("京都は川の町です。", {"answer": "東京"}, False),
    ],
)
def test_what_a_reply_rests_on(gone, outputs, needed):
    left = ["Ada Brook was born in Velden.", "東京は首都です。"]
    assert rests_on(gone, left, {"passages": "\n".join([*left, gone])}, outputs) is needed


def test_any_adapter_whose_turns_are_rendered_alike():
    [row] = rows_of(reading("Velden"), system="native_rag", adapter=dspy.ChatAdapter())
    whole, *less = shown(row)
    assert PASSAGES[3] in whole and len(less) == 2
    assert PASSAGES[1] in less[-1] and PASSAGES[2] not in less[-1] and QUESTION in less[-1]
    assert less[-1].endswith(whole[-40:])  # the reminder of the format stays


@pytest.mark.parametrize("template", [CHATML, QWEN, LLAMA3])
@pytest.mark.parametrize("room", range(60, 420, 40))
def test_no_row_loses_its_instructions_its_question_or_its_reply(template, room):
    """One token a byte; whatever fits is whole lines, and no line more than needed is lost."""
    tokenizer = tiny_tokenizer(template)
    [row] = rows_of(reading("Velden"), system="native_rag")
    [whole], _ = encode_rows([row], tokenizer, [tokenizer.eos_token_id], max_length=10_000)
    limit = len(whole.ids) - 200 + room // 2
    try:
        [encoded], report = encode_rows([row], tokenizer, [tokenizer.eos_token_id], max_length=limit)
    except Exception as error:
        assert "nothing to train on" in str(error)
        return
    text = tokenizer.decode(encoded.ids)
    assert len(encoded.ids) <= limit and report.lost == len(whole.ids) - len(encoded.ids)
    assert row["messages"][0]["content"] in text and f"question: {QUESTION}" in text and "answer: Velden" in text
    kept = [line for line in PASSAGES if line in text]
    assert kept == PASSAGES[: len(kept)] and PASSAGES[1] in kept
    if len(kept) < 4:
        assert len(encoded.ids) + len(PASSAGES[len(kept)]) + 1 > limit


@pytest.mark.parametrize("system", [name for name in SYSTEMS if name != "flare"])
def test_every_prompt_of_every_system_knows_what_may_go(system):
    program = build_system(system, None)
    for name, predictor in program.named_predictors():
        fields = predictor.signature.input_fields
        given = {key: "One.\nTwo.\nThree." if key != "title" else "t" for key in fields if key != "history"}
        outputs = dict.fromkeys(predictor.signature.output_fields, "none")
        if "triples" in outputs:
            given["passage"] = "One. Two. Three."
        for row in rows_of(Call(name, given, outputs | {"answer": "unanswerable"}), system=system):
            evidence = {"facts", "passages", "passage", "evidence", "knowledge", "observation", "notes", "summary"}
            assert bool(row["evidence"]) >= bool(evidence & given.keys()), name


def test_what_may_go_is_read_again_from_beside_the_rows_also_of_some_of_them(tmp_path):
    rows = rows_of(reading("Velden"), reading("Mora"), system="native_rag")
    write_rows(tmp_path / "rows", rows)
    lines = (tmp_path / "rows" / "joint.jsonl").read_text().splitlines()
    (tmp_path / "rows" / "some.jsonl").write_text(
        f'{lines[1]}\n{{"messages": [{{"role": "user", "content": "q"}}, {{"role": "assistant", "content": "a"}}]}}\n'
    )
    ours, foreign = read_rows(tmp_path / "rows" / "some.jsonl")
    assert (ours["id"], ours["predictor"], shown(ours)) == ("1", "reader.read", shown(rows[1]))
    assert (foreign["id"], foreign["predictor"]) == ("line 2", "") and "evidence" not in foreign
