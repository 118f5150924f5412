import pytest

from cirag_dspy.evaluate.report import comparison_csv, comparison_lines, comparison_markdown


def score(mean, low=None, high=None, **p):
    return {"mean": mean, "low": low, "high": high} | p


def described(em, f1, **also):
    return {
        "n": 40,
        "errors": 0,
        "scores": {"em": em, "f1": f1, "recall@3": score(0.7, 0.6, 0.8), "recall@5": score(0.802, 0.7, 0.9)},
        "cost": {"calls": 3.8, "cached": 0.2, "prompt_tokens": 1052.4, "completion_tokens": 69.0, "seconds": 2.125},
        "levels": {"passages": 1, "triples": 39},
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
    "Of a question: mean LM calls, cached ones included; mean prompt+reply tokens that were paid for; median seconds."
)


def test_lines():
    assert comparison_lines("demo dev", COMPARISON) == (
        "demo dev\n"
        "\n"
        "                           EM                 F1  recall@3    @5  LM calls   tokens     s\n"
        "cirag       20.0 [12.5, 27.5]  27.5 [20.0, 35.0]      70.0  80.2       4.0  1052+69  2.12\n"
        "native_rag  21.0 [13.0, 30.0]  26.7 [20.0, 34.0]      70.0  80.2       4.0  1052+69  2.12\n"
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
        "|  | EM | F1 | recall@3 | @5 | LM calls | tokens | s |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| cirag | 20.0 [12.5, 27.5] | 27.5 [20.0, 35.0] | 70.0 | 80.2 | 4.0 | 1052+69 | 2.12 |\n"
        "| native_rag | 21.0 [13.0, 30.0] | 26.7 [20.0, 34.0] | 70.0 | 80.2 | 4.0 | 1052+69 | 2.12 |\n"
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
        "name,n,errors,em,em_low,em_high,f1,f1_low,f1_high,recall@3,recall@3_low,recall@3_high,recall@5,recall@5_low,"
        "recall@5_high,em_difference,em_difference_low,em_difference_high,em_difference_p,f1_difference,"
        "f1_difference_low,f1_difference_high,f1_difference_p,calls,cached,prompt_tokens,completion_tokens,seconds,"
        "levels\n"
        "cirag,40,0,0.2,0.125,0.275,0.275,0.2,0.35,0.7,0.6,0.8,0.802,0.7,0.9,,,,,,,,,3.8,0.2,1052.4,69.0,2.125,"
        '"passages 1, triples 39"\n'
        "native_rag,40,0,0.21,0.13,0.3,0.267,0.2,0.34,0.7,0.6,0.8,0.802,0.7,0.9,0.01,-0.05,0.07,0.8312,-0.008,-0.0101,"
        "-0.005,0.0002,3.8,0.2,1052.4,69.0,2.125,passages 40\n"
    )


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
        ["EM", "F1", header, "LM"],
        ["a", "100.0", "100.0", "50.0"],
        ["b", "100.0", "100.0", "4.0"],
    ]
    assert differences.splitlines()[1] == "b" and levels.splitlines()[2].split() == ["b", "none"]
    assert comparison_csv(comparison).splitlines()[2].startswith("b,40,0,1.0,,,1.0,,,,,,,,")
