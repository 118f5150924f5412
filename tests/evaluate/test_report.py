import pytest

from cirag_dspy.evaluate.report import comparison_csv, comparison_lines, comparison_markdown, summary_lines


def score(mean, low=None, high=None, **p):
    return {"mean": mean, "low": low, "high": high} | p


def described(em, f1, **also):
    return {
        "n": 40,
        "errors": 0,
        "scores": {"em": em, "f1": f1, "recall@3": score(0.7, 0.6, 0.8), "recall@5": score(0.802, 0.7, 0.9)},
        "cost": {"calls": 3.8, "cached": 0.2, "prompt_tokens": 1052.4, "completion_tokens": 69.0},
        "levels": {"passages": 1, "triples": 39},
        "passages": {"k": 10},
    } | also


COMPARISON = {
    "against": "cirag",
    "seed": 0,
    "rules": {},
    "runs": {
        "cirag": described(score(0.2, 0.125, 0.275), score(0.275, 0.2, 0.35)),
        "native_rag": described(
            score(0.21, 0.13, 0.3),
            score(0.267, 0.2, 0.34),
            difference={
                "n": 40,
                "em": score(0.01, -0.05, 0.07, p=0.8312),
                "f1": score(-0.008, -0.0101, -0.005, p=0.0002),
            },
            levels={"passages": 40},
        ),
    },
}
LEGEND = (
    "Scores in percent, with 95 % bootstrap intervals; p of a paired permutation test, not corrected for several.\n"
    "Of a question: mean LM calls, cached ones included; mean prompt+reply tokens that were paid for.\n"
    "recall@K: of the gold passages (their ids in the corpus) among the first K.\n"
    "k: passages a search gives; after a slash, those that the reader sees at most, where a setting of its own says so."
)


def timed(**seconds):
    """The comparison, with the seconds of some of its runs."""
    runs = {
        name: run | {"cost": run["cost"] | ({"seconds": seconds[name]} if name in seconds else {})}
        for name, run in COMPARISON["runs"].items()
    }
    return COMPARISON | {"runs": runs}


def test_lines():
    assert comparison_lines("demo dev", COMPARISON) == (
        "demo dev\n"
        "\n"
        "             k                 EM                 F1  recall@3    @5  LM calls   tokens\n"
        "cirag       10  20.0 [12.5, 27.5]  27.5 [20.0, 35.0]      70.0  80.2       4.0  1052+69\n"
        "native_rag  10  21.0 [13.0, 30.0]  26.7 [20.0, 34.0]      70.0  80.2       4.0  1052+69\n"
        "\n"
        "minus cirag                 EM      p                 F1       p\n"
        "native_rag   +1.0 [-5.0, +7.0]  0.831  -0.8 [-1.0, -0.5]  <0.001\n"
        "\n"
        "answers from\n"
        "cirag         passages 1, triples 39\n"
        "native_rag    passages 40\n"
        "\n" + LEGEND
    )


def test_markdown():
    assert comparison_markdown("demo dev", COMPARISON) == (
        "demo dev\n"
        "\n"
        "|  | k | EM | F1 | recall@3 | @5 | LM calls | tokens |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| cirag | 10 | 20.0 [12.5, 27.5] | 27.5 [20.0, 35.0] | 70.0 | 80.2 | 4.0 | 1052+69 |\n"
        "| native_rag | 10 | 21.0 [13.0, 30.0] | 26.7 [20.0, 34.0] | 70.0 | 80.2 | 4.0 | 1052+69 |\n"
        "\n"
        "| minus cirag | EM | p | F1 | p |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| native_rag | +1.0 [-5.0, +7.0] | 0.831 | -0.8 [-1.0, -0.5] | <0.001 |\n"
        "\n"
        "| answers from |  |\n"
        "| --- | --- |\n"
        "| cirag | passages 1, triples 39 |\n"
        "| native_rag | passages 40 |\n"
        "\n" + LEGEND + "\n"
    )


def test_csv():
    assert comparison_csv(COMPARISON) == (
        "name,k,read,n,errors,em,em_low,em_high,f1,f1_low,f1_high,recall@3,recall@3_low,recall@3_high,recall@5,"
        "recall@5_low,recall@5_high,em_difference,em_difference_low,em_difference_high,em_difference_p,f1_difference,"
        "f1_difference_low,f1_difference_high,f1_difference_p,calls,cached,prompt_tokens,completion_tokens,levels\n"
        "cirag,10,,40,0,0.2,0.125,0.275,0.275,0.2,0.35,0.7,0.6,0.8,0.802,0.7,0.9,,,,,,,,,3.8,0.2,1052.4,69.0,"
        '"passages 1, triples 39"\n'
        "native_rag,10,,40,0,0.21,0.13,0.3,0.267,0.2,0.34,0.7,0.6,0.8,0.802,0.7,0.9,0.01,-0.05,0.07,0.8312,-0.008,"
        "-0.0101,-0.005,0.0002,3.8,0.2,1052.4,69.0,passages 40\n"
    )


def test_seconds_are_shown_where_all_runs_were_timed():
    both = timed(cirag=2.125, native_rag=130.4)
    lines = comparison_lines("x", both).splitlines()
    assert lines[2].split()[-1] == "s" and (lines[3].split()[-1], lines[4].split()[-1]) == ("2.12", "130")
    assert lines[-3] == "s: median seconds of a question, one at a time, without a cache."
    assert ",seconds,levels" in comparison_csv(both) and "| s |" in comparison_markdown("x", both)
    one = timed(cirag=2.125)
    assert "seconds" not in comparison_csv(one) + comparison_lines("x", one) and "| s |" not in comparison_markdown(
        "x", one
    )


def test_other_numbers_of_passages_are_told():
    runs = {
        "cirag": COMPARISON["runs"]["cirag"],
        "kirag": described(score(0.2), score(0.2), passages={"k": 10, "read": 3}),
        "ours": described(score(0.2), score(0.2), passages={}),
    }
    lines = comparison_lines("x", {"against": "cirag", "runs": runs}).splitlines()
    assert lines[4].split()[:2] == ["kirag", "10/3"]
    assert lines[-1] == "Note: k is not the same (cirag 10, kirag 10/3, ours none); -k sets it for all."
    assert comparison_csv({"runs": runs}).splitlines()[2].startswith("kirag,10,3,40,")


def test_recall_by_title_is_shown_where_it_is_another():
    scores = {"em": score(0.5), "f1": score(0.5), "recall@5": score(0.5), "recall@5:title": score(0.5)}
    same = {"against": "a", "runs": {"a": described(score(0), score(0), scores=scores)}}
    assert "title" not in comparison_lines("x", same).splitlines()[2]
    assert "recall@5:title" in comparison_csv(same).splitlines()[0]
    other = {"a": described(score(0), score(0), scores=scores | {"recall@5:title": score(0.75)})}
    lines = comparison_lines("x", same | {"runs": other}).splitlines()
    assert "recall@5  @5:title" in lines[2] and "75.0" in lines[3]
    assert "recall@K:title: of the gold titles" in "".join(lines)


SUMMARY = {
    "em": 0.5,
    "f1": 0.6,
    "intervals": {"f1": score(0.6, 0.4, 0.8)},
    "recall": {"@5": 0.5},
    "title_recall": {"@5": 0.75},
    "answer_recall": {},
    "levels": {},
    "errors": 0,
    "unreadable_hops": 0,
    "lm_per_question": {"calls": 3.0, "cached": 1.0, "prompt_tokens": 100.4, "completion_tokens": 9.0},
}


def test_the_summary_of_a_run():
    assert summary_lines("x", SUMMARY, {"k": 10}).splitlines() == [
        "x",
        "  EM 50.0   F1 60.0 [40.0, 80.0]",
        "  recall of gold passages: @5 50.0",
        "  recall of gold titles: @5 75.0",
        "  levels: none   errors 0   unreadable hops 0",
        "  per question: 3.0 LM calls, 1.0 cached; 100 prompt + 9 reply tokens; k 10",
    ]
    timed = SUMMARY | {"seconds_per_question": {"median": 1.5}, "recall": {}, "title_recall": {}}
    lines = summary_lines("x", timed | {"answer_recall": {"@5": 1.0}}).splitlines()
    assert lines[2] == "  answer recall, passages that hold an answer: @5 100.0"
    assert lines[-1].endswith("9 reply tokens; 1.5 s (median, one at a time)")
    assert "recall: none" in summary_lines("x", timed)


def test_ten_systems_at_their_widest_fit_a_terminal():
    full = score(1.0, 1.0, 1.0)
    widest = described(
        full,
        full,
        errors=9999,
        scores=dict.fromkeys(("em", "f1", "recall@3", "recall@5"), full),
        cost={"calls": 99.9, "cached": 0, "prompt_tokens": 99999, "completion_tokens": 9999, "seconds": 9999.9},
        levels=dict.fromkeys(("triples", "sentences", "passages", "default"), 9999),
        difference={"n": 9, "em": score(-1.0, -1.0, -1.0, p=0.0), "f1": score(-1.0, -1.0, -1.0, p=0.0)},
    )
    names = ["cirag", "kirag", "d2f_reag", "ircot", "flare", "react", "metarag", "dualrag", "logicrag", "native_rag"]
    text = comparison_lines("x", {"against": "cirag", "runs": dict.fromkeys([*names, "sentences+passages"], widest)})
    assert max(map(len, text.splitlines())) <= 120
    assert "errors" in text and text.count("9999") > 30


@pytest.mark.parametrize("kind", ["recall", "answer_recall"])
def test_what_is_not_there(kind):
    one = described(score(1.0), score(1.0), scores={"em": score(1.0), "f1": score(1.0), f"{kind}@5": score(0.5)})
    two = described(score(1.0), score(1.0), scores={"em": score(1.0), "f1": score(1.0)}, difference={"n": 0}, levels={})
    comparison = {"against": "a", "runs": {"a": one, "b": two}}
    scores, differences, levels, _ = comparison_lines("x", comparison).split("\n\n")[1:]
    header = {"recall": "recall@5", "answer_recall": "answer@5"}[kind]
    assert [line.split()[:4] for line in scores.splitlines()] == [
        ["k", "EM", "F1", header],
        ["a", "10", "100.0", "100.0"],
        ["b", "10", "100.0", "100.0"],
    ]
    assert differences.splitlines()[1] == "b" and levels.splitlines()[2].split() == ["b", "none"]
    assert comparison_csv(comparison).splitlines()[2].startswith("b,10,,40,0,1.0,,,1.0,,,,,,,,")
