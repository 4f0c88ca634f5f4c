"""What the public modules promise is kept, and they load without the tool, which needs no torch."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from functools import cache
from typing import Final

import pytest

from tests.contract.api import NAMES, ROOT, breaks, package_at, promised, stubs

# Everything that `pip install ivhl` brings, and torch does not.
OF_THE_TOOL: Final = (
    *("asv", "asv_runner", "click", "docker", "jinja2", "nox", "packaging", "pydantic"),
    *("pydantic_core", "rich", "typer", "uv"),
)
LOADS: Final = """
import importlib, pkgutil, sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {refused!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refusing())
{work}
print("loaded", sorted({{name.partition(".")[0] for name in sys.modules}} & {{*{refused!r}}}))
"""
LIBRARIES: Final = """
for module in {modules!r}:
    found = importlib.import_module(f"ivhl.{{module}}")
    for name in getattr(found, "__all__", ()):
        if name != "PaiNNCalculator":  # of the extra `ase`
            getattr(found, name)
"""
TOOL: Final = """
import ivhl.cli
for found in pkgutil.iter_modules(ivhl.cli.__path__):
    importlib.import_module(f"ivhl.cli.{found.name}")
ivhl.cli.app(["compat", "--torch", "2.15.0", "--workload", "ops.intensity"], standalone_mode=False)
"""


@cache
def now() -> dict[str, str]:
    return stubs(package_at(ROOT))


def test_no_promise_is_broken() -> None:
    assert breaks(promised(), now()) == []


def test_what_is_promised_is_written() -> None:
    """Write it anew with ``python -m tests.contract.api``."""
    assert promised() == now()


@pytest.mark.parametrize("module", NAMES)
def test_the_names_of_a_module_are_the_promised_ones(module: str) -> None:
    pytest.importorskip("torch", reason="torch is only in the cells")
    found = importlib.import_module(f"ivhl.{module}")
    tree = ast.parse(promised()[module])
    names = {
        getattr(node, "name", None) or ast.unparse(getattr(node, "target", node)).split(" = ")[0]
        for node in tree.body
        if not isinstance(node, ast.ImportFrom | ast.Import)
    }
    assert names == set(getattr(found, "__all__", names))
    assert all(hasattr(found, name) for name in names - {"PaiNNCalculator"})  # `ase`


# In what was promised, a text in place of what is there, and what is then reported as broken.
@pytest.mark.parametrize(
    ("module", "there", "before", "broken"),
    [
        (
            "device",
            "def get_device(",
            "def gone():\n    ...\ndef get_device(",
            ".gone: Public obj",
        ),
        ("device", "def get_device()", "def get_device(kind=1)", ".get_device: Parameter was"),
        ("device", "sort_by:", "order_by:", ".Profile.table: Parameter was removed: order_by"),
        (
            "device",
            "row_limit: int=20",
            "row_limit: int=10",
            ".Profile.table: Parameter default was cha",
        ),
        ("workload", "    version: int\n", "", ".Workload.__init__: Parameter was added as req"),
        (
            "workload",
            "    finish:",
            "    after: str = 1\n    finish:",
            ".Variant.after: Public obj",
        ),
        ("workload", "'torchscript', ", "'torchscript', 'onnx', ", ".Engine: lost a word: onnx"),
        # Names of packages, which their modules import when they are first used.
        ("ops", "def ascend(", "def ascend(up, ", ".ascend: Parameter was removed: up"),
        ("mlff", "class PaiNNCalculator(", "class Other(", ".Other: Public object"),
        (
            "rollout",
            "def evolve(",
            "evolve: int\ndef other(",
            ".evolve: Public object points to a",
        ),
    ],
)
def test_a_planted_break_is_found(module: str, there: str, before: str, broken: str) -> None:
    stub = promised()[module]
    assert there in stub
    found = breaks({module: stub.replace(there, before, 1)}, promised())
    assert any(line.startswith(f"ivhl.{module}{broken}") for line in found), found


@pytest.mark.parametrize(
    ("there", "before"),
    [
        ("    finish: str | None = None\n", ""),
        ("'torchscript', ", ""),
        ("class Cost:", "class _Cost:"),
    ],
)
def test_what_only_adds_breaks_nothing(there: str, before: str) -> None:
    stub = promised()["workload"]
    assert there in stub
    assert breaks({"workload": stub.replace(there, before, 1)}, promised()) == []


def loads(work: str, *refused: str) -> str:
    code = LOADS.format(refused=refused, work=work)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, check=False, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_libraries_load_without_what_the_tool_needs() -> None:
    pytest.importorskip("torch", reason="torch is only in the cells")
    said = loads(LIBRARIES.format(modules=tuple(NAMES)), *OF_THE_TOOL)
    assert said.splitlines()[-1] == "loaded []"


def test_the_tool_loads_and_answers_without_torch() -> None:
    said = loads(TOOL, "torch")
    assert "ops.intensity" in said
    assert said.splitlines()[-1] == "loaded []"


def test_readme_and_pages_advertise_only_what_is_promised() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    advertised = text.split("**Libraries in this package:**")[1].split("- **")[0]
    pages = {line.partition(")")[0] for line in advertised.split("](docs/")[1:]}
    for page in pages:
        said = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert "](api.md)" in said, page
    listed = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert all(f"api/{module}.pyi" in listed for module in NAMES)
