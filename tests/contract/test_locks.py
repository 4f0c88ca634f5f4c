"""Every cell of the matrix has a valid lock, or a statement why it cannot have one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ivhl.matrix.check import check_locks
from ivhl.matrix.diff import diff_cells
from ivhl.matrix.locks import lock_mistakes, lock_state
from ivhl.matrix.project import load

if TYPE_CHECKING:
    from ivhl.matrix.spec import CellSpec

ROOT, MATRIX = load(Path(__file__).parent)
CELLS = MATRIX.cells(tier="extended")


def test_the_matrix_and_its_locks_have_no_problems() -> None:
    assert check_locks(ROOT, MATRIX) == []


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.id)
def test_each_lock_is_fresh_hashed_and_without_address_or_path(cell: CellSpec) -> None:
    state = lock_state(ROOT, cell)
    assert state.kind != "missing"
    assert lock_mistakes(state, MATRIX) == []
    text = state.path.read_text(encoding="utf-8")
    assert "://" not in text
    assert "index-url" not in text
    assert "find-links" not in text
    assert all(pin.hashes for pin in state.pins)


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.id)
def test_each_lock_holds_torch_with_its_closure_and_what_the_cell_needs(cell: CellSpec) -> None:
    state = lock_state(ROOT, cell)
    if state.kind == "unavailable":
        assert f"torch=={cell.torch}" in state.message
        assert not state.pins
        return
    tools = {"asv-runner", "flit-core", "opt-einsum"}
    assert state.closure("torch") | tools == set(state.packages)
    assert not tools & state.closure("torch")
    assert state.packages["torch"] == cell.torch


@pytest.mark.parametrize("release", MATRIX.releases("extended"))
def test_the_cells_of_a_release_are_matched(release: str) -> None:
    cells = MATRIX.cells(releases=[release])
    locked = [cell for cell in cells if lock_state(ROOT, cell).kind == "locked"]
    assert locked, f"{release} is available for no Python"
    for other in locked[1:]:
        assert diff_cells(ROOT, MATRIX, locked[0], other).reasons == ()


def test_the_default_tier_is_the_oldest_the_founding_pair_and_the_newest_three() -> None:
    default, every = MATRIX.releases("default"), MATRIX.releases("extended")
    # 2.2.2 refuses the only Python that it is there for (docs/findings.md).
    assert default == (every[1], "2.5.1", "2.6.0", *every[-3:])


def test_every_cell_of_the_default_tier_has_a_lock_or_no_wheels() -> None:
    kinds = {cell: lock_state(ROOT, cell).kind for cell in MATRIX.cells()}
    assert set(kinds.values()) == {"locked", "unavailable"}
    newest = MATRIX.releases()[-1]
    assert {kinds[cell] for cell in MATRIX.cells(MATRIX.pythons_of("default"), [newest])} == {
        "locked"
    }
    founding = MATRIX.cells(["3.12", "3.13"], ["2.5.1", "2.6.0"])
    assert {kinds[cell] for cell in founding} == {"locked"}


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.id)
def test_the_lock_of_the_founding_benchmark_fits_on_top_of_each_cell(cell: CellSpec) -> None:
    text = (ROOT / "envs" / "founding" / "founding.txt").read_text(encoding="utf-8")
    on_top = dict(re.findall(r"^([\w.-]+)==(\S+)", text, flags=re.MULTILINE))
    assert "ase" in on_top
    assert "torch" not in on_top
    assert "://" not in text
    shared = [pin for pin in lock_state(ROOT, cell).pins if pin.name in on_top]
    assert all(pin.version == on_top[pin.name] for pin in shared)
