"""Every name of ``ivhl.ops`` exists and is documented; a broken module leaves the others usable."""

from __future__ import annotations

import importlib

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")

from ivhl import ops

pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning")


@pytest.mark.parametrize("name", ops.__all__)
def test_every_public_name_has_a_home_and_a_docstring(name: str) -> None:
    found = getattr(ops, name)
    assert found is getattr(importlib.import_module(f"ivhl.ops.{ops._HOMES[name]}"), name)
    for part in ("Args:", "Returns:"):
        assert part in (found.__doc__ or ""), f"{name} has no {part}"


def test_homes_and_exports_are_the_same_names() -> None:
    assert sorted(ops._HOMES) == ops.__all__ == sorted(ops.__all__)
    assert set(ops.__all__) <= set(dir(ops))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'compute_everything'"):
        _ = ops.compute_everything
