import pytest

from cirag_dspy.errors import DataError
from cirag_dspy.evaluate.ablate import GRIDS, find_grid
from cirag_dspy.systems import settings_of


def read(tmp_path, text):
    (tmp_path / "x.toml").write_text(text, encoding="utf-8")
    return find_grid(str(tmp_path / "x.toml"))


def test_the_paper_s_grids():
    assert list(GRIDS) == ["granularity", "n", "hops", "ranker", "extraction", "distillation", "decomposition"]
    ns, hops = find_grid("n"), find_grid("hops")
    assert (ns.knob, ns.xs, ns.reference(settings_of("cirag"))) == ("n", list(range(10, 101, 10)), "n=30")
    assert (hops.knob, hops.xs, hops.reference(settings_of("cirag"))) == ("max_hops", [1, 2, 3, 4, 5, 6], "max_hops=4")
    levels = find_grid("granularity")
    assert len(levels.points) == 7 and levels.xs is None
    assert levels.reference(settings_of("cirag")) == "all levels"
    assert levels.reference({**settings_of("cirag"), "levels": ("triples",)}) == "triples"
    assert find_grid("extraction").reference(settings_of("cirag")) == "offline"
    assert find_grid("ranker").reference(settings_of("cirag", rank=False)) == "not ranked"
    assert find_grid("decomposition").reference(settings_of("d2f_reag")) == "decomposed"


def test_variants_of_a_system():
    first, second = find_grid("extraction").variants("cirag", {"k": 3})
    assert (first.name, first.system, first.settings, first.extract) == ("offline", "cirag", {"k": 3}, "offline")
    assert (second.extract, second.student) == ("online", True)
    assert [variant.student for variant in find_grid("distillation").variants("cirag", {})] == [True, False]


def test_a_file(tmp_path):
    grid = read(
        tmp_path,
        'system = "cirag"\nsettings.k = 5\n[product]\nn = [10, 30]\nlevels = [["triples"], ["triples", "passages"]]\n'
        '[[variants]]\nname = "bare"\nrank = false\nextract = "online"\nstudent = false\n',
    )
    assert (grid.name, grid.system, grid.knob) == ("x", "cirag", "")
    assert list(grid.points) == [
        "n=10, levels=triples",
        "n=10, levels=triples+passages",
        "n=30, levels=triples",
        "n=30, levels=triples+passages",
        "bare",
    ]
    variants = grid.variants("cirag", {"max_hops": 2})
    assert variants[1].settings == {"k": 5, "max_hops": 2, "n": 10, "levels": ["triples", "passages"]}
    assert (variants[4].settings, variants[4].extract) == ({"k": 5, "max_hops": 2, "rank": False}, "online")
    assert not variants[4].student
    assert grid.reference(settings_of("cirag")) == "n=10, levels=triples"


def test_names_are_one_line(tmp_path):
    assert list(read(tmp_path, '[[variants]]\nname = "few\\nfacts"\nn = 3\n').points) == ["few facts"]


def test_what_lies_on_the_x_axis(tmp_path):
    assert read(tmp_path, "product.n = [1, 2]").xs == [1, 2]
    assert read(tmp_path, "product.n = [1, 2]\nproduct.k = [1]").xs is None
    assert read(tmp_path, "product.rank = [true, false]").xs is None
    assert read(tmp_path, 'product.n = [1]\n[[variants]]\nname = "x"\nk = 1').xs is None
    listed = '[[variants]]\nname = "few"\nn = 3\n[[variants]]\nname = "many"\nn = 30\n'
    assert (read(tmp_path, listed).xs, read(tmp_path, listed).knob) == ([3, 30], "n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("n = [", "not TOML: "),
        ("sytem = 1", "has no key sytem; there are system, settings, product, variants"),
        ('system = "magic"\nproduct.n = [1]', "system must be one of cirag, native_rag, .*, not 'magic'"),
        ("settings = 1", r"\[settings\] and \[product\] must be tables"),
        ("product.n = 3", r"\[product\] n must be a list of values"),
        ("product.n = []", r"\[product\] n must be a list of values"),
        ("variants.n = 3", r"variants must be tables with a name each: write \[\[variants\]\]"),
        ("[[variants]]\nn = 3", "variants must be tables with a name each"),
        ("product.n = [3, 3]", "two variants are named 'n=3'"),
        ('system = "cirag"', "has no variants: give"),
        ('product.extract = ["never"]', "extract=never: extract must be online or offline, not 'never'"),
        ("product.student = [1]", "student=1: student must be true or false, not 1"),
        ("product.threads = [1, 2]", "threads=1: threads is no setting to vary"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text, says, tmp_path):
    with pytest.raises(DataError, match=says) as error:
        read(tmp_path, text).variants("cirag", {})
    assert "\n" not in str(error.value)


def test_no_such_ablation():
    with pytest.raises(DataError, match="no ablation 'magic': give one of granularity, n, "):
        find_grid("magic")
