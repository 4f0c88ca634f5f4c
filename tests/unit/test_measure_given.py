"""A container proves which image it is: it holds what the image's bill lists, file by file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ivhl.errors import SpecError
from ivhl.image.bill import make_bill
from ivhl.image.build import Image
from ivhl.measure import contents as measured
from ivhl.measure import given
from ivhl.measure.given import given_image
from ivhl.records.record import Cell

if TYPE_CHECKING:
    from pathlib import Path

CELL = Cell(id="py3.12-torch2.6.0", python="3.12", torch="2.6.0", lock_sha256=None)
IMAGE = Image(
    id=f"sha256:{'a' * 64}",
    cell=CELL.id,
    lock="b" * 64,
    recipe="c",
    base="debian:trixie",
    commit="e" * 40,
    size_bytes=1,
    created="2026-11-23T00:00:00",
    tags=(),
)
HELD = {
    "python": {"Python": "3.12.12"},
    "package": {"torch": "2.6.0+cpu (0123456789abcdef)", "numpy": "2.1.0 (fedcba9876543210)"},
    "system package": {"libc6:amd64": "2.41-12", "g++": "4:14.2.0-1"},
}


@pytest.fixture
def bill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the bill of an image, in a container that is this image."""
    monkeypatch.setattr(given, "contents", lambda: HELD)
    monkeypatch.setattr(given, "changed_files", list)
    monkeypatch.setattr(given, "this_cell", lambda: CELL)
    path = tmp_path / "bill.json"
    path.write_text(json.dumps(make_bill(IMAGE, HELD)))
    return path


def test_a_container_of_the_image_measures_in_its_locked_cell(bill: Path) -> None:
    cell = Cell(id=CELL.id, python="3.12", torch="2.6.0", lock_sha256="b" * 64)
    assert given_image(bill) == (cell, IMAGE.id)


@pytest.mark.parametrize(
    ("kind", "name", "version", "says"),
    [
        ("package", "numpy", "2.1.1 (fedcba9876543210)", "numpy is 2.1.1 (fedcba9876543210), in"),
        ("package", "numpy", "2.1.0 (0000000000000000)", "in the bill 2.1.0 (fedcba9876543210)"),
        ("package", "more", "1 (0)", "more is 1 (0), in the bill not there"),
        ("system package", "g++", None, "g++ is not there, in the bill 4:14.2.0-1"),
        ("python", "Python", "3.12.1", "python Python is 3.12.1, in the bill 3.12.12"),
    ],
)
def test_any_other_container_is_refused_and_the_difference_named(  # noqa: PLR0917  (rows)
    bill: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    name: str,
    version: str | None,
    says: str,
) -> None:
    names = {k: v for k, v in {**HELD[kind], name: version}.items() if v is not None}
    monkeypatch.setattr(given, "contents", lambda: {**HELD, kind: names})
    with pytest.raises(SpecError, match="this is not the image sha256:aaaaaaaaaaaa: ") as refused:
        given_image(bill)
    assert says in str(refused.value)


def test_a_file_that_was_changed_in_the_container_is_named(
    bill: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(given, "changed_files", lambda: ["torch/nn/functional.py"])
    with pytest.raises(SpecError, match=r"torch/nn/functional\.py is not the file of its package"):
        given_image(bill)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"metadata": {"component": []}}'])
def test_what_is_no_bill_is_refused(bill: Path, text: str) -> None:
    bill.write_text(text)
    with pytest.raises(SpecError, match="is no bill of an image"):
        given_image(bill)
    with pytest.raises(SpecError, match="is no bill of an image"):
        given_image(bill.with_name("missing.json"))


def test_files_are_compared_with_the_hashes_of_their_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "thing-1.0.dist-info").mkdir()
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing" / "a.py").write_text("x = 1\n")
    digest = "sha256=nia_NpkRxFwkPGhBR7I_yeHc_PJX0pmhxjIBam_NM_Q"
    record = f"thing/a.py,{digest},6\nthing/gone.py,{digest},6\nthing/__pycache__/a.pyc,,\n"
    (tmp_path / "thing-1.0.dist-info" / "RECORD").write_text(record)
    (tmp_path / "thing-1.0.dist-info" / "METADATA").write_text("Name: thing\nVersion: 1.0\n")
    monkeypatch.setattr(measured, "_site", lambda: [str(tmp_path)])
    assert list(measured.contents()["package"]) == ["thing"]
    assert measured.changed_files() == ["thing/gone.py"]
    (tmp_path / "thing" / "a.py").write_text("x = 2\n")
    assert measured.changed_files() == ["thing/a.py", "thing/gone.py"]
