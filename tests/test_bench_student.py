"""The student's table, from run folders with hand-made rows."""

import json

import pytest

from bench.student import main

IDS = "0123456789abcdef" * 4


def row(id, f1, **more):
    counts = {"calls": 2, "cached": 1, "failed": 0, "prompt_tokens": 100, "completion_tokens": 10}
    scores = {"em": float(f1 == 1), "f1": f1, "str_acc": f1, "recall": {"5": 0.5}, "answer_recall": {}}
    return {"id": id, "answer": "x", "error": "", "level": "passages", "seconds": 1.0, "lm": counts, **scores, **more}


def save(folder, system, k, rows, n=4, ids=IDS):
    folder.mkdir(parents=True)
    draw = {"kind": "random", "seed": 0, "n": n, "of": 9}
    dataset = {"n": n, "ids_sha256": ids, "source": "/data/dev.json sha256:ab", "draw": draw}
    (folder / "run.json").write_text(json.dumps({"dataset": dataset, "system": {"name": system, "k": k}}))
    (folder / "questions.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    (folder / "results.json").write_text("{}")


@pytest.fixture
def runs(tmp_path):
    musique = tmp_path / "musique"
    save(musique / "native_rag-k5", "native_rag", 5, [row(str(n), 0.5) for n in range(4)])
    save(musique / "native_rag-k10", "native_rag", 10, [row(str(n), 0.0, answered=n > 0) for n in range(4)])
    answers = [row("0", 1.0), row("1", 1.0), row("2", 1.0), row("3", 0.0, answer="", answered=False)]
    save(musique / "cirag-saved", "cirag", 10, answers)
    return tmp_path


def table(monkeypatch, capsys, *arguments):
    monkeypatch.setattr("sys.argv", ["student", *map(str, arguments)])
    main()
    lines = capsys.readouterr().out.splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")], lines


def test_the_difference_is_to_plain_rag_at_the_same_k(runs, monkeypatch, capsys):
    rows, lines = table(monkeypatch, capsys, runs)
    cirag, ten, five = rows[2:]
    # F1 1, 1, 1, 0 beside 0 four times: on average .75 more, and 1 question of 4 abstained.
    assert cirag[:5] == ["musique", "cirag-saved", "4", "10", "75.0"]
    assert cirag[5].startswith("75.0 [") and cirag[6].startswith("+75.0 [")
    assert cirag[7:] == ["50.0", "25.0 %", "3.0", "100 + 10"]
    assert (ten[1], ten[5], ten[6], ten[8]) == ("native_rag-k10", "0.0 [0.0, 0.0]", "", "25.0 %")
    assert (five[1], five[3], five[5], five[6]) == ("native_rag-k5", "5", "50.0 [50.0, 50.0]", "")
    assert lines[-1].startswith(
        "musique: 4 of 9 questions drawn at random, --seed 0 --limit 4; ids sha256 0123456789ab"
    )


def test_a_run_that_is_not_finished_is_left_out_and_said(runs, monkeypatch, capsys):
    save(runs / "musique" / "cirag-full", "cirag", 10, [row("0", 1.0)])
    monkeypatch.setattr("sys.argv", ["student", str(runs)])
    main()
    said = capsys.readouterr()
    assert "cirag-full is not finished (1 of 4 questions)" in said.err and "cirag-full" not in said.out


@pytest.mark.parametrize("folder", ["musique", "nowhere"])
def test_what_can_not_be_compared_is_one_line(folder, runs, monkeypatch, capsys):
    save(runs / "musique" / "other", "cirag", 10, [row(str(n), 1.0) for n in range(4)], ids="f" * 64)
    with pytest.raises(SystemExit) as stopped:
        table(monkeypatch, capsys, runs if folder == "musique" else runs / folder)
    assert str(stopped.value).startswith("error: ") and "\n" not in str(stopped.value)
