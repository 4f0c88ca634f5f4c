"""A lock with one package swapped differs in this package only, or there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ivhl.errors import LockError, SpecError
from ivhl.matrix import swap
from ivhl.matrix.locks import lock_path, lock_state, parse_lock
from ivhl.matrix.spec import CellSpec
from ivhl.matrix.swap import swap_package
from tests.unit.test_matrix_locks import HASH, MATRIX, write

if TYPE_CHECKING:
    from pathlib import Path

    from ivhl.matrix.spec import Matrix
    from ivhl.matrix.swap import Swap

CELL = CellSpec("3.12", "2.5.1")
OTHER = HASH.replace("0" * 64, "f" * 64)


def swapped(
    root: Path, monkeypatch: pytest.MonkeyPatch, pin: str, **changes: str | None
) -> tuple[Swap, list[str]]:
    """Return the swap with a resolver that answers as uv does, and what it was asked."""
    asked: list[str] = []

    def resolve(
        root: Path,
        matrix: Matrix,
        python: str,
        requirements: list[str],
        seed: dict[str, str],
        *options: str,
    ) -> tuple[str, str | None]:
        del root, matrix, python
        assert options[0] == "--override"
        asked.extend(requirements)
        name, _, version = pin.partition("==")
        packages: dict[str, str | None] = {**seed, name: version, **changes}
        lines = []
        for package, at in packages.items():
            if at is not None:
                lines += [f"{package}=={at} \\", f"    {OTHER if package == name else HASH}"]
                lines += ["    # via", f"    #   --override {options[1]}", "    #   torch"]
        return "", "\n".join(lines) + "\n"

    monkeypatch.setattr(swap, "resolve_requirements", resolve)
    return swap_package(root, MATRIX, lock_state(root, CELL), pin), asked


def test_only_the_package_changes_and_the_lock_stays_that_of_its_matrix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, CELL)
    found, asked = swapped(tmp_path, monkeypatch, "sympy==1.14.0")
    assert (found.before, found.after) == ("sympy==1.13.1", "sympy==1.14.0")
    assert "sympy==1.14.0" in asked
    assert "mpmath==1.3.0" in asked
    path = lock_path(tmp_path, CELL)
    was = {pin.name: pin for pin in parse_lock(path.read_text())}
    now = {pin.name: pin for pin in parse_lock(found.text.decode())}
    assert {name for name in was if was[name] != now[name]} == {"sympy"}
    assert now["sympy"].hashes == (OTHER.removeprefix("--hash="),)
    assert now["sympy"].via == was["sympy"].via
    path.write_bytes(found.text)  # as in the clone in which it is measured
    state = lock_state(tmp_path, CELL)
    assert (state.sha256, state.stale(MATRIX)) == (found.state.sha256, False)


@pytest.mark.parametrize("change", [{"mpmath": "1.4.0"}, {"mpmath": None}, {"new": "1.0"}])
def test_a_swap_with_which_other_packages_change_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, str | None]
) -> None:
    write(tmp_path, CELL)
    with pytest.raises(LockError, match=f"not the only difference: {next(iter(change))}"):
        swapped(tmp_path, monkeypatch, "sympy==1.14.0", **change)


@pytest.mark.parametrize(
    ("pin", "said"),
    [
        ("sympy", "must be a package with its other version"),
        ("sympy>=1.14", "must be a package with its other version"),
        ("sympy==1.*", "must be a package with its other version"),
        ("sympy===", "must be a package with its other version"),
        ("numpy==2.0", "unknown package of the lock of py3.12-torch2.5.1 'numpy'"),
        ("torch==2.6.0", "another torch is another cell"),
        ("Sympy==1.13.1", "has sympy 1.13.1 already"),
    ],
)
def test_a_pin_that_swaps_nothing_is_a_sentence(tmp_path: Path, pin: str, said: str) -> None:
    write(tmp_path, CELL)
    with pytest.raises(SpecError) as error:
        swap_package(tmp_path, MATRIX, lock_state(tmp_path, CELL), pin)
    assert said in str(error.value)
    assert error.value.hint


def test_a_version_without_a_wheel_and_a_cell_without_a_lock_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LockError, match="has no lock"):
        swap_package(tmp_path, MATRIX, lock_state(tmp_path, CELL), "sympy==1.14.0")
    write(tmp_path, CELL)
    monkeypatch.setattr(
        swap, "resolve_requirements", lambda *_: ("there is no version\n of it", None)
    )
    with pytest.raises(LockError, match=r"cannot have sympy==99: there is no version of it"):
        swap_package(tmp_path, MATRIX, lock_state(tmp_path, CELL), "sympy==99")
