import pytest

from cirag_dspy.errors import RunError
from cirag_dspy.evaluate.plot import draw, require_plot


def score(mean, low=None, high=None):
    return {"mean": mean, "low": low, "high": high}


COMPARISON = {
    "against": "n=10",
    "runs": {
        "n=10": {"scores": {"em": score(0.1, 0.05, 0.2), "f1": score(0.2, 0.1, 0.3)}},
        "n=30": {"scores": {"em": score(0.3), "f1": score(0.4)}},
    },
}


def test_what_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    draw(COMPARISON, tmp_path / "a.svg", title="n of cirag", xs=[10, 30], label="n")
    draw(COMPARISON, tmp_path / "b.svg", title="n of cirag", xs=[10, 30], label="n")
    drawing = (tmp_path / "a.svg").read_text()
    assert drawing == (tmp_path / "b.svg").read_text()  # the same drawing is the same file
    assert all(f"<!-- {text} -->" in drawing for text in ("n of cirag", "n", "F1", "EM", "10", "30"))
    draw(COMPARISON, tmp_path / "c.svg", title="n of cirag")
    assert "<!-- n=30 -->" in (tmp_path / "c.svg").read_text()
    for ending in ("png", "pdf"):
        draw(COMPARISON, tmp_path / f"a.{ending}", title="n of cirag")
        assert (tmp_path / f"a.{ending}").stat().st_size > 1000


def test_a_name_is_no_formula(tmp_path):
    pytest.importorskip("matplotlib")
    runs = {"$x^$": {"scores": {"em": score(0.1), "f1": score(0.2)}}}
    draw({"runs": runs}, tmp_path / "a.svg", title="$\\foo$")
    assert all(f"<!-- {text} -->" in (tmp_path / "a.svg").read_text() for text in ("$x^$", "$\\foo$"))


def test_what_can_not_be_drawn(tmp_path):
    with pytest.raises(RunError, match=r"x.jpeg: a drawing ends in .svg, .png, .pdf"):
        require_plot(tmp_path / "x.jpeg")
