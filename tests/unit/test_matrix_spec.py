"""Mistakes in the matrix are reported with their place."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from ivhl.cli.names import find_cell
from ivhl.errors import SpecError, UnknownNameError
from ivhl.matrix.project import find_root, load_project
from ivhl.matrix.spec import CellSpec, Matrix, load_matrix

VALID = """
exclude-newer = 2026-11-15
platform = "x86_64-manylinux_2_28"
also = ["flit_core==3.12.0"]
[[python]]
version = "3.13"
[[python]]
version = "3.9"
[[torch]]
release = "2.10.0"
tier = "extended"
[[torch]]
release = "2.9.1"
tier = "default"
[[forced]]
torch = "2.9.1"
package = "triton"
pythons = ["3.9"]
reason = "no wheel"
"""


def load(text: str, folder: Path) -> Matrix:
    path = folder / "matrix.toml"
    path.write_text(text, encoding="utf-8")
    return load_matrix(path)


def mistakes(text: str, folder: Path) -> str:
    with pytest.raises(SpecError) as caught:
        load(text, folder)
    assert "correct " in caught.value.hint
    return str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            'release = "2.10.0"',
            "release = 2.9",
            "matrix.toml: torch.0.release: must be a string in quotes (got 2.9)",
        ),
        ('"2.10.0"', '"2.10"', "torch.0.release: must be written as 2.10.0 (got '2.10')"),
        ('"2.10.0"', '"2.x"', "torch.0.release: must be a PyTorch release like 2.6.0"),
        ('"2.10.0"', '"2.6.0+cpu"', "is in no package registry (got '2.6.0+cpu')"),
        (
            'tier = "extended"',
            'tier = "weekly"',
            "torch.0.tier: must be 'default', 'extended' or 'next'",
        ),
        ('tier = "extended"', 'teir = "extended"', "torch.0.teir: is no known key; did you mean "),
        ('tier = "extended"', "", "torch.0.tier: must be there"),
        ('"3.13"', '"313"', "python.0.version: must be a Python like 3.13, or 3.14t"),
        ('"3.13"', '"3.013"', "python.0.version: must be a Python like 3.13"),
        ('"3.13"', '"3.9"', "python: must not list 3.9 twice (got "),
        ('"2.10.0"', '"2.9.1"', "torch: must not list 2.9.1 twice"),
        ("2026-11-15", '"2026-11-15"', "exclude-newer: must be a date like 2026-11-15, without"),
        (
            "exclude-newer",
            "exclude_newer",
            "exclude_newer: is no known key; did you mean exclude-",
        ),
        ("==3.12.0", ">=3.12.0", "also.0: must be pinned and nothing more"),
        ("==3.12.0", "==3.*", "also.0: must be pinned and nothing more"),
        ("flit_core==", "torch==", "also: must not name torch"),
        ('["flit', '["Flit-Core==3.11.0", "flit', "also: must not list flit-core twice"),
        ('["3.9"]', '["3.8"]', "forced: must name a Python or release with a row, unlike 3.8"),
        (
            'torch = "2.9.1"',
            'torch = "2.9.0"',
            "forced: must name a Python or release with a row, unlike 2.9.0",
        ),
        ('reason = "no wheel"', 'reason = ""', "forced.0.reason: must not be empty (got '')"),
        ("[[python]]", "[[python", "matrix.toml: is not valid TOML: "),
        ("[[python]]", "[[python", "(at line 5, column "),
    ],
)
def test_a_mistake_has_place_rule_and_value(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    assert old in VALID
    assert expected in mistakes(VALID.replace(old, new, 1), tmp_path)


def test_all_mistakes_are_reported_together(tmp_path: Path) -> None:
    text = VALID.replace('"3.13"', '"3.9"').replace('"2.10.0"', "2.9").replace("no wheel", "")
    told = mistakes(text.replace("platform", "plattform"), tmp_path).splitlines()
    assert [line.split(": ")[1] for line in told] == [
        "platform",
        "python",
        "torch.0.release",
        "forced.0.reason",
        "plattform",
    ]


def test_a_list_of_wrong_items_is_not_reported_as_empty(tmp_path: Path) -> None:
    text = VALID.replace('"2.10.0"', "2.9").replace('release = "2.9.1"', "release = 1")
    told = mistakes(text, tmp_path)
    assert "must not be empty" not in told
    empty = mistakes(VALID.replace('["3.9"]', "[]"), tmp_path)
    assert "forced.0.pythons: must not be empty (got [])" in empty


def test_a_missing_file_is_an_error_without_traceback(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"matrix\.toml: cannot be read"):
        load_matrix(tmp_path / "matrix.toml")


def test_cells_are_ordered_by_version_number(tmp_path: Path) -> None:
    matrix = load(VALID, tmp_path)
    assert [cell.id for cell in matrix.cells(tier="extended")] == [
        "py3.9-torch2.9.1",
        "py3.9-torch2.10.0",
        "py3.13-torch2.9.1",
        "py3.13-torch2.10.0",
    ]
    assert matrix.pythons == ("3.9", "3.13")


def test_extended_tier_includes_the_default_tier(tmp_path: Path) -> None:
    matrix = load(VALID, tmp_path)
    assert matrix.releases() == ("2.9.1",)
    assert matrix.releases("extended") == ("2.9.1", "2.10.0")
    cells = [CellSpec("3.13", release) for release in ("2.9.1", "2.10.0", "2.8.0")]
    assert [matrix.tier(cell) for cell in cells] == ["default", "extended", None]


def test_a_python_of_the_extended_tier_is_in_no_cell_of_the_default_tier(tmp_path: Path) -> None:
    row = '[[python]]\nversion = "3.14"\ntier = "extended"\n[[python]]\nversion = "3.9"'
    matrix = load(VALID.replace('[[python]]\nversion = "3.9"', row), tmp_path)
    assert [cell.python for cell in matrix.cells()] == ["3.9", "3.13"]
    assert {cell.python for cell in matrix.cells(tier="extended")} == {"3.9", "3.13", "3.14"}
    assert matrix.tier(CellSpec("3.14", "2.9.1")) == "extended"
    # Who names it, or a release, means it.
    assert matrix.cells(["3.14"]) == (CellSpec("3.14", "2.9.1"),)
    assert CellSpec("3.14", "2.10.0") in matrix.cells(releases=["2.10.0"])


def test_a_free_threaded_python_needs_only_a_row(tmp_path: Path) -> None:
    rows = '[[python]]\nversion = "3.13t"\n[[python]]\nversion = "3.9"'
    matrix = load(VALID.replace('[[python]]\nversion = "3.9"', rows), tmp_path)
    assert matrix.pythons == ("3.9", "3.13", "3.13t")
    assert matrix.newest_python == "3.13"
    assert matrix.cells(["3.13t"])[0].id == "py3.13t-torch2.9.1"
    assert find_cell(matrix, "py3.13t-torch2.10.0") == CellSpec("3.13t", "2.10.0")


def test_a_release_outside_the_matrix_can_be_selected(tmp_path: Path) -> None:
    matrix = load(VALID, tmp_path)
    assert matrix.cells(["3.13"], ["2.8"]) == (CellSpec("3.13", "2.8.0"),)
    with pytest.raises(UnknownNameError, match=r"unknown cell 'py3\.13-torch2\.8\.0'"):
        find_cell(matrix, "py3.13-torch2.8.0")
    assert find_cell(matrix, "py3.13-torch2.8.0", ["2.8.0"]) == CellSpec("3.13", "2.8.0")


def test_an_unknown_name_suggests_the_nearest(tmp_path: Path) -> None:
    matrix = load(VALID, tmp_path)
    with pytest.raises(UnknownNameError) as caught:
        find_cell(matrix, "py3.13-torch2.9.2")
    assert "did you mean py3.13-torch2.9.1" in caught.value.hint
    with pytest.raises(UnknownNameError, match=r"unknown Python '3\.14'"):
        matrix.cells(["3.14"])
    with pytest.raises(SpecError, match=r"PyTorch release: .* \(got '2\.9\.x'\)") as wrong:
        matrix.cells((), ["2.9.x"])
    assert wrong.value.hint.startswith("did you mean 2.9.1")
    with pytest.raises(SpecError) as silly:
        matrix.cells((), ["banana"])
    assert silly.value.hint == "known: 2.9.1, 2.10.0"
    with pytest.raises(UnknownNameError) as far:
        find_cell(matrix, "x")
    cells = ("py3.9-torch2.9.1", "py3.9-torch2.10.0", "py3.13-torch2.9.1", "py3.13-torch2.10.0")
    assert far.value.hint == f"known: {', '.join(cells)}"
    assert UnknownNameError("machine", "x", ()).hint == "known: none"


@pytest.mark.parametrize(
    ("written", "release"),
    [("2.6", "2.6.0"), ("v2.6.0", "2.6.0"), ("2.6.0.0", "2.6.0"), ("2.16rc1", "2.16.0rc1")],
)
def test_all_spellings_of_a_release_are_one_cell(
    tmp_path: Path, written: str, release: str
) -> None:
    assert load(VALID, tmp_path).release(written) == release


PYTHONS = st.builds("3.{}{}".format, st.integers(0, 30), st.sampled_from(["", "t"]))
RELEASES = st.builds("{}.{}.{}".format, *[st.integers(0, 30)] * 3)


def made_of(pythons: list[str], releases: dict[str, str]) -> Matrix:
    return Matrix.model_validate(
        {
            "exclude-newer": dt.date(2026, 1, 1),
            "platform": "linux",
            "python": [{"version": python} for python in pythons],
            "torch": [{"release": r, "tier": tier} for r, tier in releases.items()],
        }
    )


MATRICES = st.builds(
    made_of,
    st.lists(PYTHONS, min_size=1, max_size=5, unique=True),
    st.dictionaries(RELEASES, st.sampled_from(["default", "extended"]), min_size=1, max_size=6),
)


@given(MATRICES)
def test_ids_are_unique_and_select_their_cell(matrix: Matrix) -> None:
    cells = matrix.cells(tier="extended")
    assert len({cell.id for cell in cells}) == len(cells) > 0
    assert all(find_cell(matrix, cell.id) == cell for cell in cells)


@given(MATRICES, st.data())
def test_a_selection_keeps_the_order_of_the_matrix(matrix: Matrix, data: st.DataObject) -> None:
    every = matrix.cells(tier="extended")
    pythons = data.draw(st.lists(st.sampled_from(matrix.pythons)))
    releases = data.draw(st.lists(st.sampled_from(matrix.releases("extended")), min_size=1))
    chosen = matrix.cells(pythons, releases)
    assert chosen == tuple(
        c for c in every if c.python in (pythons or matrix.pythons) and c.torch in releases
    )


@given(MATRICES)
def test_each_python_has_its_releases_oldest_first(matrix: Matrix) -> None:
    cells = matrix.cells(tier="extended")
    for python in matrix.pythons:
        releases = [Version(cell.torch) for cell in cells if cell.python == python]
        assert releases == sorted(releases)


def test_root_is_found_from_a_subfolder(tmp_path: Path) -> None:
    (tmp_path / "envs").mkdir()
    load(VALID, tmp_path / "envs")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert find_root(below) == tmp_path
    with pytest.raises(SpecError, match=r"no envs/matrix\.toml in .* or in a folder above it"):
        find_root(tmp_path.parent)


def test_the_project_is_read_from_pyproject() -> None:
    project = load_project(find_root(Path(__file__).parent))
    assert (project.name, project.workloads) == ("ivhl", "benchmarks")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '[project]\nname = 3\n[tool.ivhl]\nworkload = "a:B"\n',
            [
                "pyproject.toml: project.name: must be a string in quotes (got 3)",
                "pyproject.toml: tool.ivhl.workload: is no known key; did you mean workloads?",
            ],
        ),
        (
            '[project]\nname = "x"\n[tool.ivhl]\nworkloads = "a.B"\n',
            ["tool.ivhl.workloads: must be of the form 'module:ATTRIBUTE' (got 'a.B')"],
        ),
        (
            '[project]\nname = "x"\n[tool.ivhl]\nbenchmarks = "a/b"\n',
            ["tool.ivhl.benchmarks: must be the name of a folder beside pyproject.toml"],
        ),
        (
            '[project]\nname = "x"\n[tool.ivhl]\n',
            [("pyproject.toml: tool.ivhl: must have either benchmarks or workloads")],
        ),
        (
            '[project]\nname = "x"\n[tool.ivhl]\nbenchmarks = "b"\nworkloads = "a:B"\n',
            ["pyproject.toml: tool.ivhl: must have either benchmarks or workloads"],
        ),
        ("tool = 3\n", ["pyproject.toml: project.name: must exist"]),
        ("[project\n", ["pyproject.toml: is not valid TOML"]),
    ],
)
def test_mistakes_in_pyproject_are_reported_together(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_project(tmp_path)
    assert [e for e in expected if e not in str(caught.value)] == []


def test_a_missing_pyproject_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"no pyproject\.toml in "):
        load_project(tmp_path)
