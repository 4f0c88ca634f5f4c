"""A software bill of materials of an image, in CycloneDX 1.6."""

from __future__ import annotations

import uuid
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ivhl.image.build import Image


def make_bill(image: Image, contents: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return the bill of an image, the same for the same image.

    Args:
        image: The image.
        contents: From ``ivhl.image.packages.contents``.
    """
    components = [_base(image)]
    for name, value in sorted(contents.get("python", {}).items()):
        components.append(_component("application", name, value, f"pkg:generic/cpython@{value}"))
    for name, value in sorted(contents.get("package", {}).items()):
        # The version, and in brackets a digest of the list of files.
        number, _, digest = value.partition(" ")
        one = _component("library", name, number, f"pkg:pypi/{name}@{quote(number)}")
        one["properties"] = [{"name": "ivhl:record", "value": digest.strip("()")}]
        components.append(one)
    for name, value in sorted(contents.get("system package", {}).items()):
        # dpkg names the architecture where a package has several: libc6:amd64.
        short = name.partition(":")[0]
        purl = f"pkg:deb/debian/{quote(short)}@{quote(value)}"
        components.append(_component("library", name, value, purl))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, image.id)}",
        "version": 1,
        "metadata": {
            "tools": {
                "components": [_component("application", "ivhl", version("ivhl"), "pkg:pypi/ivhl")]
            },
            "component": {
                "type": "container",
                "bom-ref": image.id,
                "name": image.cell,
                "version": image.id,
                "properties": [{"name": "ivhl:lock", "value": image.lock}],
            },
        },
        "components": components,
    }


def _base(image: Image) -> dict[str, Any]:
    name, _, digest = image.base.partition("@")
    return {
        "type": "container",
        "bom-ref": image.base,
        "name": name,
        "version": digest or "unknown",
    }


def _component(kind: str, name: str, number: str, purl: str) -> dict[str, Any]:
    return {"type": kind, "bom-ref": purl, "name": name, "version": number, "purl": purl}
