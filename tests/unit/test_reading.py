"""A file of benchmarks that holds its functions is read without torch and without the project."""

from __future__ import annotations

import dataclasses
import math
import sys
from typing import TYPE_CHECKING

import pytest

from ivhl.errors import SpecError
from ivhl.workload import broken_benchmarks, load_workloads, resolve, workload

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = """
import torch
import torch.nn.functional as F
from dataclasses import dataclass
from functools import partial
from torch import nn
from mypkg.ops import gelu
from .beside import rows
from ivhl.workload import Variant, workload

SEED = torch.manual_seed(0)

@dataclass
class Size:
    n: int

@torch.no_grad()
def softplus(x: torch.Tensor | None):
    return torch.log1p(torch.exp(-x.abs())) + x.clamp(min=0.0)

def inputs(size, generator):
    return torch.randn(size.n, generator=generator)

def parts(compiler):
    return compiler(softplus)

class Net(nn.Module):
    def __init__(self, n, heads=1):
        super().__init__()
        self.fc = nn.Linear(n, n)

workload(
    softplus, inputs=inputs, sizes={"small": Size(8), "large": Size(1 << 20)},
    variants=(Variant(name="parts", call=parts, compiles="parts"),),
)
workload(gelu, inputs=rows)
workload(F.softmax, inputs=inputs, name="f.softmax", reference=softplus)
workload(torch.special.erf, inputs=inputs)
workload(Net(64, heads=2), inputs=rows, passes="forward")
workload(partial(Net, 64), inputs=rows, name="m.partial")
workload(nn.GELU, inputs=rows)
workload("mypkg.models:make(3)", inputs=inputs)
"""


def write(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """Write a package with one file, ``it.py``, and return its name."""
    package = f"held_{folder.name}"
    (folder / package).mkdir()
    (folder / package / "__init__.py").write_text("")
    (folder / package / "it.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    return package


def test_functions_and_models_get_the_names_by_which_a_cell_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = write(tmp_path, monkeypatch, WHOLE)
    home = f"{package}.it"
    found = {one.name: one for one in load_workloads(package)}
    assert {name: one.eager or one.make_model for name, one in found.items()} == {
        "it.softplus": f"{home}:softplus",
        "ops.gelu": "mypkg.ops:gelu",
        "f.softmax": "torch.nn.functional:softmax",
        "torch.special.erf": "torch:special.erf",
        "it.Net": f"{home}:Net(64, heads=2)",
        "m.partial": f"{home}:Net(64)",
        "nn.GELU": "torch.nn:GELU()",
        "models.make": "mypkg.models:make(3)",
    }
    assert [name for name, one in found.items() if one.make_model] == [
        "it.Net", "m.partial", "nn.GELU", "models.make",
    ]  # fmt: skip
    first = found["it.softplus"]
    assert (first.make_inputs, first.version, first.default_size) == (f"{home}:inputs", 1, "small")
    assert first.sizes["small"].n == 8
    assert first.variants[0].call == f"{home}:parts"
    assert found["ops.gelu"].make_inputs == f"{package}.beside:rows"
    assert found["f.softmax"].reference == f"{home}:softplus"
    assert first.reference == "float64"
    assert found["it.Net"].passes == "forward"


def test_reading_imports_nothing_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = write(tmp_path, monkeypatch, WHOLE)
    load_workloads(package)
    before = set(sys.modules)
    assert len(load_workloads(package)) == 8
    assert len(load_workloads(f"{package}.it:WORKLOADS")) == 8
    assert set(sys.modules) == before
    assert f"{package}.it" not in before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("workload(f, inputs=3)", "line 5: inputs must be a function of this file"),
        ("workload(f, inputs=lambda: ())", "without a name"),
        ("workload('f', inputs=f)", "the first argument must be a function of this file"),
        ("workload(missing, inputs=f)", "line 5: NameError: name 'missing' is not defined"),
        ("workload(f, inputs=f, size=3)", "line 5: unknown field of a workload 'size'"),
        ("workload(f)", "line 5: TypeError: "),
        ("W = 2 * torch.ones(3)", "line 5: TypeError: "),
        ("from mypkg import *", "line 5: "),
        ("workload(torch.nn.Linear(torch.n), inputs=f)", "literal arguments, such as Linear"),
        ("workload(torch.make(3).net, inputs=f)", "the first argument must be a function"),
    ],
)
def test_a_wrong_declaration_is_one_sentence_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    whole = f"import torch\nfrom ivhl.workload import workload\ndef f(): ...\n\n{text}\n"
    package = write(tmp_path, monkeypatch, whole)
    (broken,) = broken_benchmarks(package)
    assert broken.startswith(f"{package}.it does not import: line 5: ")
    assert says in broken
    assert "; " in broken  # the next step
    assert "\n" not in broken


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("workload(inputs=f)", "eager is missing"),
        ("workload(f, inputs=f, sizes=3)", "sizes must be a dictionary"),
        ("workload(f, inputs=f)\nworkload(f, inputs=f)", "listed twice"),
    ],
)
def test_what_does_not_go_together_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    whole = f"import torch\nfrom ivhl.workload import workload\ndef f(): ...\n{text}\n"
    with pytest.raises(SpecError, match=says):
        load_workloads(write(tmp_path, monkeypatch, whole))


def test_a_tuple_in_the_file_chooses_and_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "from ivhl.workload import workload\ndef f(): ...\ndef g(): ...\n"
        "a, b = workload(f, inputs=f), workload(g, inputs=f)\nWORKLOADS = (b,)\n"
    )
    (only,) = load_workloads(write(tmp_path, monkeypatch, text))
    assert only.name == "it.g"


def test_a_call_by_its_name_is_made_anew_each_time() -> None:
    make = resolve("fractions:Fraction(3, denominator=4)")
    assert make(1) == make() == 0.75
    assert resolve("os:path.join")("a", "b") == "a/b"
    with pytest.raises(SpecError, match="did you mean Fraction") as caught:
        resolve("fractions:Fractoin(3)")
    assert caught.value.hint == "name what fractions defines"
    with pytest.raises(SpecError, match="literal arguments"):
        resolve("fractions:Fraction(x)")


def test_an_import_in_a_cell_declares_without_a_complaint() -> None:
    """A cell imports the file for its functions: the objects there have no names."""
    real = workload(math.sqrt, inputs=object())
    assert (real.eager, real.make_inputs) == ("math:sqrt", "")
    assert dataclasses.replace(real, version=2).version == 2
