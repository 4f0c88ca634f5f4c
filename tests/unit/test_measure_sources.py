"""The hash of a case changes with all code and data that it reaches, and with little else."""

from __future__ import annotations

import ast
import atexit
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ivhl.measure.harness import harness, is_harness
from ivhl.measure.sources import (
    _declared,
    _digest_of,
    _functions,
    _Project,
    _Reach,
)
from ivhl.records.reader import read_record
from ivhl.workload import Case, Variant, Workload, load_workloads
from studies.house import LIBRARIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
PROJECT = {
    "demo/__init__.py": "VERSION = 1\n",
    "demo/workloads/__init__.py": """
        from demo.workloads import one, two
        WORKLOADS = (one.WORKLOAD, two.WORKLOAD)
    """,
    "demo/workloads/one.py": """
        from dataclasses import dataclass
        from ivhl.workload import Variant, Workload
        from demo.workloads.variants import more
        @dataclass(frozen=True)
        class Size:
            n: int
            @property
            def twice(self): return 2 * self.n
        WORKLOAD = Workload(
            name="one", version=1, title="One", sizes={"small": Size(1), "large": Size(2)},
            default_size="small", make_inputs="demo.calls:make", eager="demo.ops.a:eager",
            reference="demo.calls:reference", outputs=("x",),
            variants=(Variant(name="v", call="demo.ops.a:fast"), *more()),
        )
    """,
    "demo/workloads/two.py": """
        from dataclasses import replace
        from demo.workloads import one
        WORKLOAD = replace(one.WORKLOAD, name="two", eager="demo.ops.b:eager", version=3)
    """,
    "demo/workloads/variants.py": """
        from ivhl.workload import Variant
        def more(): return (Variant(name="w", call="demo.ops.a:fast", dynamic=True),)
    """,
    "demo/calls.py": """
        from demo.helpers import constant
        def make(size, generator): return (size.twice, constant)
        def reference(x): return x
    """,
    "demo/helpers.py": "constant = 1\n",
    "demo/ops/__init__.py": """
        from demo.ops.a import fast
        from demo.ops.b import eager as other
    """,
    "demo/ops/a.py": """
        import torch
        from demo.shared import base
        def eager(x): return base(x)
        def fast(x):
            from demo.hidden import inner
            return inner(x)
    """,
    "demo/ops/b.py": """
        import torch
        def eager(x): return x
    """,
    "demo/shared.py": "def base(x): return x\n",
    "demo/hidden.py": "def inner(x): return x\n",
    "demo/unused.py": "def f(x): return x\n",
    "demo/setter.py": "import os\nos.environ['X'] = '1'\n",
    "demo/pipe.py": """
        import operator
        ALL = {}
        class P:
            def __or__(self, other): ALL[1] = other
        p = P()
        def keep(x): ALL.setdefault(1, x)
    """,
    "demo/data/table.txt": "1 2 3",
    "demo/store/__init__.py": "",
    "demo/store/named.dat": "1",
    "demo/ops/weights.bin": "weights",
}


def dedent(text: str) -> str:
    lines = text.strip("\n").splitlines()
    margin = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    return "\n".join(line[margin:] for line in lines) + "\n"


class Demo:
    """A project in a folder; computes the hash of a case in a new process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in PROJECT.items():
            self.write(name, dedent(text))

    def write(self, name: str, text: str) -> None:
        """Write a file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def change(self, name: str, old: str, new: str) -> None:
        """Replace a text in a file."""
        text = (self.folder / name).read_text(encoding="utf-8")
        assert old in text
        self.write(name, text.replace(old, new))

    def add(self, name: str, text: str) -> None:
        """Add to the end of a file."""
        path = self.folder / name
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        self.write(name, before + dedent(text))

    def hash(self, workload: str = "one", variant: str = "v", after: str = "", **case: str) -> str:
        """Return the hash of a case.

        Args:
            workload: Name of the workload.
            variant: Name of the variant.
            after: Code to run before the hash is computed.
            case: Other arguments of ``select_cases``.
        """
        code = f"""
            import sys
            sys.path[:0] = [{str(self.folder)!r}, {str(ROOT)!r}]
            from ivhl.workload import load_workloads, select_cases
            from ivhl.measure.sources import reached_sources
            every = load_workloads("demo.workloads:WORKLOADS")
            names = dict(names=["{workload}"], variants=["{variant}"], **{case!r})
            (case,) = select_cases(every, **names)
            {after or "pass"}
            print(reached_sources(case, "demo.workloads:WORKLOADS", "demo").project)
            assert "torch" not in sys.modules
        """
        return _in_new_process(dedent(code))


# A new process spends its time on the imports of ivhl and the names of all installed files.
_FORKS = f"""
import json, os, sys, traceback
sys.path.insert(0, {str(ROOT)!r})
import ivhl.workload
from ivhl.measure.sources import _all_distributions
_all_distributions()
for line in sys.stdin:
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(writes, 1)
        try:
            exec(json.loads(line), {{"__name__": "__main__"}})
            sys.stdout.flush()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writes)
    with open(reads) as pipe:
        text = pipe.read()
    print(json.dumps([os.waitpid(child, 0)[1], text.strip()]), flush=True)
"""


@cache
def _forks() -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.communicate)  # closes its input, which ends it
    return process


def _in_new_process(code: str) -> str:
    """Return what a piece of code prints in a process that has imported ivhl alone."""
    process = _forks()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(code) + "\n")
    process.stdin.flush()
    status, text = json.loads(process.stdout.readline())
    assert status == 0
    return str(text)


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    return Demo(tmp_path / "project")


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the hash of the unchanged project, which does not depend on the folder."""
    return Demo(tmp_path_factory.mktemp("untouched")).hash()


def test_a_fork_gives_the_hash_of_a_new_interpreter(
    untouched: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_new_interpreter(code: str) -> str:
        command = [sys.executable, "-c", code]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    monkeypatch.setattr(sys.modules[__name__], "_in_new_process", in_new_interpreter)
    assert Demo(tmp_path).hash() == untouched


def changes(demo: Demo, change: Callable[[], None], **case: str) -> bool:
    before = demo.hash(**case)
    change()
    return demo.hash(**case) != before


def test_the_hash_depends_only_on_the_case(demo: Demo, tmp_path: Path) -> None:
    first = demo.hash()
    assert len(first) == 64
    assert Demo(tmp_path / "elsewhere").hash() == first
    others = [demo.hash("two"), demo.hash(variant="w"), demo.hash(size="large")]
    assert len({first, *others}) == 4


def test_a_back_end_that_the_project_adds_is_in_the_hash_of_its_cases(demo: Demo) -> None:
    demo.change("demo/workloads/variants.py", "dynamic=True", 'engine="backend:own"')
    demo.write("demo/backend.py", "def own(graph, inputs): return graph.forward\n")
    demo.write("demo-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1\n")
    demo.write(
        "demo-1.dist-info/entry_points.txt", "[torch_dynamo_backends]\nown = demo.backend:own\n"
    )
    add = partial(demo.add, "demo/backend.py", "MORE = 1\n")
    assert changes(demo, add, variant="w")
    assert not changes(demo, add, variant="v")


BENCHMARKS = {
    "bench/__init__.py": "",
    "bench/one.py": """
        from dataclasses import replace
        from demo.workloads import one
        from ivhl.workload import Variant
        WORKLOADS = (
            replace(one.WORKLOAD, make_inputs="bench.calls:make", sizes={"small": 1}, title="One"),
        )
    """,
    "bench/calls.py": """
        from demo.helpers import constant
        def make(size, generator): return (size, constant)
    """,
}


def both_hashes(demo: Demo) -> list[str]:
    code = f"""
        import sys
        sys.path[:0] = [{str(demo.folder)!r}, {str(ROOT)!r}]
        from ivhl.workload import load_workloads, select_cases
        from ivhl.measure.sources import reached_sources
        (case,) = select_cases(load_workloads("bench"), variants=["v"])
        print(*reached_sources(case, "bench", "demo"))
    """
    # Python would reuse bytecode for a source of the same size and second.
    command = [sys.executable, "-B", "-c", dedent(code)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.parametrize(
    ("file", "old", "new", "changed"),
    [
        ("demo/shared.py", "return x", "return +x", [True, False]),
        ("demo/helpers.py", "1", "2", [True, False]),
        ("bench/calls.py", "(size, constant)", "(size, constant, 1)", [False, True]),
        ("bench/one.py", '"small": 1', '"small": 2', [False, True]),
        ("bench/one.py", 'title="One"', 'title="Other"', [False, False]),
        ("demo/unused.py", "return x", "return +x", [False, False]),
    ],
)
def test_a_folder_of_benchmarks_has_its_own_hash(
    demo: Demo, file: str, old: str, new: str, changed: list[bool]
) -> None:
    for name, text in BENCHMARKS.items():
        demo.write(name, dedent(text))
    before = both_hashes(demo)
    demo.change(file, old, new)
    assert [a != b for a, b in zip(before, both_hashes(demo), strict=True)] == changed


INSTALLED = {
    "site-packages/ripple/__init__.py": "",
    "site-packages/ripple/ops.py": "def work(x): return x\n",
    "site-packages/ripple-1.0.dist-info/METADATA": "Name: ripple\nVersion: 1.0\n",
    "site-packages/ripple-1.0.dist-info/RECORD": "ripple/__init__.py,,\nripple/ops.py,,\n",
    "bench/__init__.py": "",
    "bench/one.py": """
        from ivhl.workload import Variant, Workload
        WORKLOADS = (
            Workload(
                name="one", version=1, title="One", sizes={"small": 1}, default_size="small",
                make_inputs="bench.calls:make", eager="bench.calls:eager", outputs=("x",),
                variants=(Variant(name="v"),),
            ),
        )
    """,
}
LOADS = [
    'import importlib\ndef load(name): return importlib.import_module(f"ripple.{name}")\n',
    "from importlib import import_module as get\ndef load(name): return get('ripple.' + name)\n",
    # Nothing in the source says that it imports.
    "import importlib as i\ndef load(name): return vars(i)['import_module']('ripple.' + name)\n",
]


@pytest.mark.parametrize(
    ("load", "ran"), [(LOADS[0], False), (LOADS[1], False), (LOADS[0], True), (LOADS[2], True)]
)
@pytest.mark.parametrize("place", ["site-packages", "src"])
def test_a_benchmark_reaches_the_installed_project_by_a_computed_name(
    tmp_path: Path, load: str, place: str, *, ran: bool
) -> None:
    """Nothing that is imported by a constant name lies where the project is installed."""
    for name, text in (INSTALLED | {"bench/calls.py": load}).items():
        path = tmp_path / name.replace("site-packages", place)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text) if name == "bench/one.py" else text)
    if place == "src":  # as an editable installation, which lists no modules
        (tmp_path / place / "ripple-1.0.dist-info/RECORD").write_text("")
    code = f"""
        import importlib, sys
        sys.path[:0] = [{str(tmp_path)!r}, {str(tmp_path / place)!r}, {str(ROOT)!r}]
        from ivhl.workload import load_workloads, select_cases
        from ivhl.measure.sources import reached_sources
        (case,) = select_cases(load_workloads("bench"), variants=["v"])
        from bench.calls import load
        load("ops") if {ran} else None
        print(*reached_sources(case, "bench", "ripple", ran={ran}))
    """
    command = [sys.executable, "-B", "-c", dedent(code)]

    def hashes() -> list[str]:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()

    project, benchmark = hashes()
    (tmp_path / place / "ripple/ops.py").write_text("def work(x): return -x\n")
    changed, same = hashes()
    assert changed != project
    assert same == benchmark


REACHED = [
    ("demo/ops/a.py", "return base(x)", "return base(x + 1)"),
    ("demo/shared.py", "return x", "return -x"),
    # Imported inside of a function.
    ("demo/hidden.py", "return x", "return -x"),
    ("demo/calls.py", "def reference(x): return x", "def reference(x): return x + 0"),
    ("demo/helpers.py", "constant = 1", "constant = 2"),
    ("demo/data/table.txt", "1 2 3", "1 2 4"),
    ("demo/ops/weights.bin", "weights", "other weights"),
    ("demo/workloads/one.py", "2 * self.n", "3 * self.n"),
    ("demo/workloads/one.py", '"small": Size(1)', '"small": Size(7)'),
    ("demo/workloads/one.py", "version=1", "version=2"),
    ("demo/workloads/one.py", "reference=", "tolerance=0.5, reference="),
    ("demo/workloads/one.py", "outputs=", "dtype='float64', outputs="),
    ("demo/workloads/one.py", 'name="v", ', 'name="v", fullgraph=True, '),
    # Imports of a module that declares workloads.
    ("demo/workloads/variants.py", "dynamic=True", "dynamic=False"),
    # Modules that run and do more than define names.
    ("demo/ops/b.py", "import torch", "import torch\ntorch.backends.x = 1"),
    ("demo/ops/b.py", "import torch", "import torch\ntorch.set_flush_denormal(True)"),
    ("demo/ops/b.py", "import torch", "import torch\n_ = torch.set_num_threads(2)"),
    ("demo/ops/b.py", "import torch", "import torch\nimport os\nos.environ['X'] = '1'"),
    ("demo/ops/b.py", "import torch", "import torch\ndel torch.x[0]"),
    ("demo/ops/b.py", "import torch", "import torch\nimport something_else"),
    ("demo/ops/b.py", "def eager", "@torch.library.thing\ndef eager"),
    ("demo/ops/b.py", "def eager", "class A(torch.nn.Module): pass\ndef eager"),
    ("demo/ops/b.py", "def eager", "class A:\n    torch.x = 1\ndef eager"),
    ("demo/ops/b.py", "return x", "return x\neager(1)"),
    ("demo/ops/b.py", "(x)", "(x, y=torch.seed())"),
    ("demo/ops/b.py", "import torch", "import torch.nn\nimport torch"),
    ("demo/ops/b.py", "import torch", "import torch, demo.setter"),
    ("demo/ops/b.py", "import torch", "import torch, demo.setter as s"),
    ("demo/ops/b.py", "import torch", "import torch\nfrom demo import setter"),
    ("demo/ops/b.py", "import torch", "import torch\nfrom demo.pipe import p\nX = p | 1"),
    ("demo/ops/b.py", "import torch", "import torch\nfrom demo.pipe import p\nwith p: pass"),
    ("demo/ops/b.py", "import torch", "import torch\nfrom demo.pipe import p\np += 1"),
    ("demo/ops/b.py", "import torch", "import torch\nfrom demo.pipe import keep\nkeep(1)"),
    ("demo/ops/b.py", "import torch", "import torch\nfrom demo.pipe import put\nput(1)"),
    ("demo/ops/__init__.py", "from demo.ops.a", "import torch; torch.x = 1\nfrom demo.ops.a"),
    ("demo/__init__.py", "VERSION", "import sys; sys.setswitchinterval(1); VERSION"),
]


@pytest.mark.parametrize(("name", "old", "new"), REACHED)
def test_code_that_a_case_reaches_changes_its_hash(
    demo: Demo, untouched: str, name: str, old: str, new: str
) -> None:
    demo.change(name, old, new)
    assert demo.hash() != untouched


NOT_REACHED = [
    ("demo/ops/a.py", "import torch", "import torch  # a comment"),
    ("demo/ops/a.py", "x): return base(x)", "x):\n    'A docstring.'\n    return (base( x ))"),
    ("demo/__init__.py", "1", "2"),
    ("demo/ops/b.py", "return x", "return -x"),
    ("demo/ops/b.py", "import torch", "import torch\nLIMIT = 3"),
    ("demo/ops/b.py", "import torch", "import torch\nLIMIT = 3 * 2 + 1\nOTHER = LIMIT * 2"),
    ("demo/ops/b.py", "import torch", "import torch\nimport math\nANGLE = 2.0 * math.pi"),
    ("demo/store/named.dat", "1", "2"),
    ("demo/unused.py", "return x", "return -x"),
    ("demo/workloads/two.py", "version=3", "version=4"),
    ("demo/workloads/one.py", 'title="One"', 'title="Two"'),
    ("demo/workloads/one.py", '"large": Size(2)', '"large": Size(9)'),
    ("demo/workloads/one.py", "(Variant(", "(Variant(name='z', call='demo.unused:f'), Variant("),
    ("demo/workloads/__init__.py", "two.WORKLOAD", ""),
    ("demo/ops/__init__.py", "other", "another"),
]


@pytest.mark.parametrize(("name", "old", "new"), NOT_REACHED)
def test_code_that_a_case_does_not_reach_keeps_its_hash(
    demo: Demo, untouched: str, name: str, old: str, new: str
) -> None:
    demo.change(name, old, new)
    assert demo.hash() == untouched


@pytest.mark.parametrize(
    "variant",
    [
        'Variant(name="w", call="demo.ops.a:fast", dynamic=False)',
        'partial(Variant, dynamic=False)(name="w", call="demo.ops.a:fast")',
        'Variant(name="w", call="demo.ops.a:fast", engine="eager", dynamic=True)',
    ],
)
def test_static_shapes_have_the_hash_of_when_they_were_the_default(variant: str) -> None:
    def with_variant(text: str) -> str:
        return f"from functools import partial\ndef more(): return ({text},)\n"

    old = with_variant(variant.replace(", dynamic=False", "").replace(", dynamic=True", ""))
    new = with_variant(variant)
    same = "dynamic=True" not in variant  # the text of another value counts
    assert (_digest_of(old.encode(), ()) == _digest_of(new.encode(), ())) == same
    made = eval(variant, {"Variant": Variant, "partial": partial})  # noqa: S307  (a row above)
    assert "dynamic" not in _declared(case_of(made))


def test_the_default_of_pytorch_is_in_the_hash_of_a_declaration() -> None:
    plain, dynamic = (Variant(name="w", dynamic=value) for value in (None, True))
    assert "('Variant', 'dynamic', None)" in _declared(case_of(plain))
    assert "('Variant', 'dynamic', True)" in _declared(case_of(dynamic))
    assert Variant(name="w").dynamic is None


def case_of(variant: Variant) -> Case:
    workload = Workload(
        name="w", version=1, title="w", sizes={"s": 1}, default_size="s", make_inputs="m:f",
        eager="m:g", variants=(variant,),
    )  # fmt: skip
    return Case(workload=workload, size="s", variant=variant)


def test_a_new_operation_keeps_the_hashes_of_others(demo: Demo) -> None:
    def add() -> None:
        demo.write("demo/ops/c.py", "import torch\ndef third(x): return x\n")
        demo.add("demo/ops/__init__.py", "from demo.ops.c import third")
        demo.add("demo/workloads/__init__.py", "THIRD = one.WORKLOAD")

    assert not changes(demo, add)


IMPORTS = [
    "from demo.extra import tool",
    "from demo.extra.tools import tool",
    "from .extra import tool",
    "from . import extra",
    "from demo import extra as e",
    "import demo.extra",
    "import demo.extra.tools",
    "import demo.extra.tools as t",
    "import demo",
    "from demo.extra import *",
    "from demo.extra.tools import *",
    "from demo.extra import renamed",
    "from demo.extra import lazy",
    "import importlib; importlib.import_module('demo.extra.tools')",
    "import importlib; importlib.import_module(NAME)",
    "from importlib import import_module as load",
    "import importlib.util",
    "from importlib import util",
    "from pkgutil import resolve_name",
    "import importlib; importlib.import_module('.tools', 'demo.extra')",
    "__import__('demo.extra')",
    "try:\n    import nothing\nexcept ImportError:\n    from demo.extra import tool",
]


@pytest.mark.parametrize("statement", IMPORTS)
@pytest.mark.parametrize("inside", [False, True])
def test_every_way_to_import_is_followed(demo: Demo, statement: str, *, inside: bool) -> None:
    demo.write("demo/extra/tools.py", "import torch\ndef tool(x): return x\nlazy = tool\n")
    demo.write("demo/extra/__init__.py", "from demo.extra.tools import tool, tool as renamed\n")
    if inside:
        lines = "\n".join(f"    {line}" for line in statement.splitlines())
        statement = f"def user():\n{lines}\n" if "*" not in statement else statement
    demo.add("demo/shared.py", statement)
    assert changes(demo, lambda: demo.change("demo/extra/tools.py", "return x", "return -x"))


def test_a_name_imported_from_a_package_reaches_only_its_module(demo: Demo) -> None:
    demo.add("demo/shared.py", "from demo.ops import fast\n")
    assert not changes(demo, lambda: demo.change("demo/ops/b.py", "return x", "return -x"))
    demo.add("demo/shared.py", "from demo.ops import other\n")
    assert changes(demo, lambda: demo.change("demo/ops/b.py", "return -x", "return x"))


def test_a_computed_name_of_a_package_reaches_the_whole_package(demo: Demo) -> None:
    demo.write("demo/ops/__init__.py", "def __getattr__(name): ...\n")
    assert not changes(demo, lambda: demo.change("demo/ops/b.py", "return x", "return -x"))
    demo.add("demo/shared.py", "from demo.ops import computed\n")
    assert changes(demo, lambda: demo.change("demo/ops/b.py", "return -x", "return x"))


def test_asking_whether_a_module_is_there_reaches_nothing(demo: Demo) -> None:
    demo.add("demo/shared.py", "from importlib.util import find_spec\nHAS = find_spec('tqdm')\n")
    assert not changes(demo, lambda: demo.change("demo/unused.py", "return x", "return -x"))
    demo.add("demo/shared.py", "from importlib.util import module_from_spec\n")
    assert changes(demo, lambda: demo.change("demo/unused.py", "return -x", "return x"))


def test_no_case_reaches_the_whole_project() -> None:
    # A change of a page or a command is no reason to measure a case again.
    for workload in load_workloads("benchmarks"):
        case = Case(workload=workload, variant=workload.variants[0], size=workload.default_size)
        reach = _Reach(_Project("benchmarks", "ivhl"))
        for reference in _functions(case):
            reach.take(reference.partition(":")[0])
        assert not [name for name in reach.reached if name.startswith("ivhl.pages")], case


def test_a_module_that_registers_itself_is_reached(demo: Demo) -> None:
    demo.write(
        "demo/register.py", "ALL = {}\ndef keep(f):\n    ALL[f.__name__] = f\n    return f\n"
    )
    demo.add("demo/shared.py", "from demo.register import ALL\n")
    demo.change("demo/ops/b.py", "def eager", "from demo.register import keep\n@keep\ndef eager")
    assert changes(demo, lambda: demo.change("demo/ops/b.py", "return x", "return -x"))


def test_modules_imported_while_running_are_reached(demo: Demo) -> None:
    """The module's name is nowhere in the source, but it was imported when the case ran."""
    run = {"after": "import demo.unused"}
    assert changes(demo, lambda: demo.change("demo/unused.py", "return x", "return -x"), **run)


def test_modules_written_by_torch_are_no_sources(demo: Demo, tmp_path: Path) -> None:
    (tmp_path / "generated").mkdir()
    (tmp_path / "generated" / "remote_module.py").write_text("x = 1\n")
    place = str(tmp_path / "generated")
    run = f"sys.path.append({place!r}); import remote_module"
    assert demo.hash(after=run) == demo.hash()
    demo.write("remote_module.py", "x = 1\n")
    assert demo.hash(after="import remote_module") != demo.hash()


def test_a_module_next_to_the_project_counts_but_another_package_does_not(
    demo: Demo,
) -> None:
    demo.write("beside.py", "x = 1\n")
    demo.add("demo/shared.py", "import beside, pytest, json\n")
    assert changes(demo, lambda: demo.change("beside.py", "x = 1", "x = 2"))


@pytest.mark.parametrize(
    "text", ["store/named.dat", "named.dat", "named", ".dat", "n*.dat", "demo.store"]
)
def test_a_data_file_of_another_package_counts_if_a_string_names_it(demo: Demo, text: str) -> None:
    demo.add("demo/shared.py", f"def read(): return ROOT / {text!r}")
    assert changes(demo, lambda: demo.change("demo/store/named.dat", "1", "2"))


@pytest.mark.parametrize("text", ["*", "", "dat", "demo", "a.dat"])
def test_a_string_that_names_no_file_reaches_nothing(demo: Demo, text: str) -> None:
    demo.add("demo/shared.py", f"def read(): return ROOT / {text!r}")
    assert not changes(demo, lambda: demo.change("demo/store/named.dat", "1", "2"))


def test_invalid_python_is_hashed_by_its_bytes(demo: Demo) -> None:
    demo.add("demo/shared.py", "def f():\n    from demo.broken import x\n")
    demo.write("demo/broken.py", "x = = 1\n")
    assert changes(demo, lambda: demo.change("demo/broken.py", "= = 1", "= = 2"))


def test_bytecode_hidden_files_and_markers_for_type_checkers_are_no_data(demo: Demo) -> None:
    def compile_it() -> None:
        demo.write("demo/ops/__pycache__/a.cpython-312.pyc", "bytes")
        demo.write("demo/py.typed", "")
        demo.write("demo/ops/py.typed", "")
        demo.write("demo/ops/.a.py.swp", "bytes")

    assert not changes(demo, compile_it)


def test_the_harness_is_no_source_of_a_case() -> None:
    assert all(map(is_harness, ("ivhl", "ivhl.measure.case", "ivhl.records", "ivhl.workload")))
    assert not any(
        map(is_harness, ("ivhl.ops.field", "ivhl.tracker.store.records", "ivhlx", "demo.git"))
    )
    assert not {"ivhl", "studies", *LIBRARIES} & harness().keys()


def test_the_harness_is_all_that_it_imports_of_ours() -> None:
    imported = {"measure"}
    for part in harness().values():
        for file in part.rglob("*.py") if part.is_dir() else [part]:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                names: list[str] = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    names = [f"{node.module}.{alias.name}" for alias in node.names]
                imported |= {name.split(".")[1] for name in names if name.startswith("ivhl.")}
    assert imported == harness().keys()


def _ours() -> Iterator[str]:
    code = """
        from ivhl.workload import load_workloads, select_cases
        from ivhl.measure.sources import reached_sources
        every = load_workloads("benchmarks")
        for case in select_cases(every):
            print(case.name, "".join(reached_sources(case, "benchmarks", "ivhl")))
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(code)], check=True, capture_output=True, text=True, cwd=ROOT
    )
    yield from done.stdout.splitlines()


def test_each_of_our_cases_has_its_own_hash() -> None:
    hashes = dict(line.split() for line in _ours())
    assert len(hashes) == len(set(hashes.values())) > 50


def test_todays_harness_finds_the_hashes_of_stored_records_again(tmp_path: Path) -> None:
    commit = "55abb16b2df0c67210d6162f385e159ffb9dddd5"
    # Since then, what a case of ``ivhl.surgical`` reaches has become less, and fields of
    # declarations have another default, which are in the hash of the benchmark.
    records = {
        record.workload: record
        for path in sorted((ROOT / "results").glob(f"*/records/{commit[:8]}-*.jsonl"))
        for record in map(read_record, path.read_bytes().splitlines())
        if not record.workload.startswith("surgical.")
    }
    stored = {f"{r.workload}/{r.size}/{r.variant}": r.sources for r in records.values()}
    command = ["git", "archive", commit, "ivhl", "benchmarks"]
    files = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(files)) as tar:
        tar.extractall(tmp_path / "project", filter="data")
    for part in (ROOT / "ivhl" / "__init__.py", *harness().values()):
        copy = tmp_path / "harness" / "ivhl" / part.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if part.is_dir() else shutil.copy)(part, copy)
    code = """
        import sys
        from ivhl.workload import load_workloads, named_cases
        from ivhl.measure.sources import reached_sources
        for case in named_cases(load_workloads("benchmarks"), sys.argv[1:]):
            print(case.name, reached_sources(case, "benchmarks", "ivhl", ran=False).project)
    """
    # -S: the checkout, which is installed here, must not be part of the package.
    command = [sys.executable, "-S", "-P", "-c", dedent(code), *stored]
    path = (tmp_path / "harness", tmp_path / "project", sysconfig.get_path("purelib"))
    environment = {"PYTHONPATH": os.pathsep.join(map(str, path))}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert dict(line.split() for line in done.stdout.splitlines()) == stored
    assert len(stored) > 25
