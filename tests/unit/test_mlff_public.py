"""``ivhl.mlff`` has its public names, and needs only packages of a cell."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
from ivhl import mlff

pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning")


@pytest.mark.parametrize("name", [n for n in mlff.__all__ if n != "PaiNNCalculator"])
def test_public_names_are_there(name: str) -> None:
    assert callable(getattr(mlff, name))


def test_every_name_has_its_module() -> None:
    assert sorted(mlff._MODULES) == sorted(mlff.__all__)
    with pytest.raises(AttributeError, match=r"'ivhl\.mlff' has no attribute 'nothing'"):
        mlff.nothing  # noqa: B018  (looking it up is what is tested)


def test_importing_it_imports_neither_ase_nor_any_form_of_the_model() -> None:
    code = (
        "import sys, ivhl.mlff, ivhl.mlff.painn; "
        "print([m for m in ('ase', 'vesin', 'ivhl.mlff.batch', 'ivhl.compile')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
