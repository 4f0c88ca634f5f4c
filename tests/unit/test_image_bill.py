"""The bill of materials of an image lists all that is in it, the same for the same image."""

from __future__ import annotations

from ivhl.image.bill import make_bill
from ivhl.image.build import Image

IMAGE = Image(
    id=f"sha256:{'a' * 64}",
    cell="py3.12-torch2.6.0",
    lock="b" * 64,
    recipe="c",
    base=f"debian:trixie@sha256:{'d' * 64}",
    commit="e" * 40,
    size_bytes=1,
    created="2026-11-23T00:00:00",
    tags=(),
)
CONTENTS = {
    "python": {"Python": "3.12.12"},
    "package": {"torch": "2.6.0+cpu (0123456789abcdef)", "numpy": "2.1.0 (fedcba9876543210)"},
    "system package": {"libc6:amd64": "2.41-12", "g++": "4:14.2.0-1"},
}


def test_everything_in_an_image_is_a_component_once() -> None:
    bill = make_bill(IMAGE, CONTENTS)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["version"] == IMAGE.id
    found = {one["bom-ref"]: one for one in bill["components"]}
    assert len(found) == len(bill["components"]) == 6
    assert found[IMAGE.base]["version"] == f"sha256:{'d' * 64}"
    assert found["pkg:pypi/torch@2.6.0%2Bcpu"]["properties"] == [
        {"name": "ivhl:record", "value": "0123456789abcdef"}
    ]
    assert found["pkg:deb/debian/g%2B%2B@4%3A14.2.0-1"]["name"] == "g++"
    assert found["pkg:deb/debian/libc6@2.41-12"]["version"] == "2.41-12"


def test_the_same_image_has_the_same_bill() -> None:
    assert make_bill(IMAGE, CONTENTS) == make_bill(IMAGE, dict(reversed(CONTENTS.items())))
