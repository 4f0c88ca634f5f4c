"""Workloads are selected by name, and an error for a wrong name suggests the nearest ones."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, get_args

import pytest

from ivhl.errors import SpecError, UnknownNameError
from ivhl.measure.__main__ import parser
from ivhl.workload import (
    Engine,
    Variant,
    Workload,
    broken_benchmarks,
    core_cases,
    core_variant,
    full_cases,
    load_workloads,
    resolve,
    select_cases,
    use_benchmarks,
    uses_dynamo,
)

ROOT = Path(__file__).parents[2]
WORKLOADS = load_workloads("benchmarks")
GOOD = Workload(
    name="ops.good",
    version=1,
    title="A good one",
    sizes={"small": 1, "medium": 2},
    default_size="medium",
    make_inputs="m:f",
    eager="m:f",
    reference="m:f",
    outputs=("x",),
    variants=(
        Variant(name="compiled", call="m:f"),
        Variant(name="graphs", call="m:f", mode="reduce-overhead", devices=("cuda",)),
    ),
)
OTHER = dataclasses.replace(GOOD, name="ops.other", sizes={"medium": 1, "huge": 9})
BOTH = (GOOD, OTHER)


def names(**wanted: Any) -> list[str]:  # noqa: ANN401
    return [case.name for case in select_cases(BOTH, **wanted)]


def test_by_default_every_workload_runs_at_its_default_size() -> None:
    assert names() == ["ops.good/medium/compiled", "ops.other/medium/compiled"]


def test_a_variant_runs_only_on_its_devices() -> None:
    assert names(device="cuda", names=["ops.good"]) == [
        "ops.good/medium/compiled",
        "ops.good/medium/graphs",
    ]


def test_several_variants_can_be_named() -> None:
    asked = parser().parse_args(["--variant", "compiled", "--variant", "graphs"])
    chosen = names(variants=asked.variant, device="cuda")
    assert {name.rpartition("/")[2] for name in chosen} == set(asked.variant)


def test_a_requested_mode_is_in_the_names_of_variants() -> None:
    assert names(names=["ops.good"], mode="reduce-overhead") == [
        "ops.good/medium/compiled-reduce-overhead"
    ]
    (case,) = select_cases(
        BOTH,
        names=["ops.good"],
        variants=["compiled-max-autotune"],
        device="cuda",
        mode="max-autotune",
    )
    assert (case.mode, case.variant.mode, case.variant.call) == (
        "max-autotune",
        "max-autotune",
        "m:f",
    )
    # TorchScript has no mode of torch.compile.
    traced = Variant(name="traced", call="m:f", engine="torchscript")
    both = [dataclasses.replace(GOOD, variants=(*GOOD.variants, traced))]
    assert [case.variant.name for case in select_cases(both, mode="max-autotune")] == [
        "compiled-max-autotune"
    ]
    # Declared in this mode already: "compiled" would be the same case.
    assert names(names=["ops.good"], device="cuda", mode="reduce-overhead") == [
        "ops.good/medium/graphs"
    ]


def test_a_mode_is_only_for_torch_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    variant = Variant(name="v", call="m:f", engine="torchscript", mode="max-autotune")
    wrong = (dataclasses.replace(GOOD, variants=(variant,)),)
    monkeypatch.setattr(json, "WRONG", wrong, raising=False)
    with pytest.raises(SpecError, match="engine='torchscript' does not take"):
        load_workloads("json:WRONG")


@pytest.mark.parametrize("engine", ["backend:", "backend", "compil", "Compile"])
def test_an_engine_is_of_the_list_or_names_a_back_end(
    monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    good = (dataclasses.replace(GOOD, variants=(Variant(name="v", engine="backend:own"),)),)
    wrong = (dataclasses.replace(GOOD, variants=(Variant(name="v", engine=engine),)),)
    monkeypatch.setattr(json, "GOOD", good, raising=False)
    monkeypatch.setattr(json, "WRONG", wrong, raising=False)
    assert load_workloads("json:GOOD") == good
    with pytest.raises(SpecError, match=r"engine must be one of compile, .*eager or backend:NAME"):
        load_workloads("json:WRONG")


@pytest.mark.parametrize("name", ["x" * 100, "a\nb"])
def test_a_back_end_has_a_name_that_a_record_may_hold(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    variant = Variant(name="v", engine=f"backend:{name}")
    monkeypatch.setattr(
        json, "WRONG", (dataclasses.replace(GOOD, variants=(variant,)),), raising=False
    )
    with pytest.raises(SpecError, match="must be printable, and have 1 to 100 bytes"):
        load_workloads("json:WRONG")


def test_a_back_end_captures_with_dynamo_and_takes_no_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [e for e in (*get_args(Engine), "backend:own") if uses_dynamo(e)] == [
        *("compile", "cuda-graph", "backend:own")
    ]
    variant = Variant(name="v", engine="backend:own", mode="max-autotune")
    wrong = (dataclasses.replace(GOOD, variants=(variant,)),)
    monkeypatch.setattr(json, "WRONG", wrong, raising=False)
    with pytest.raises(SpecError, match="engine='backend:own' does not take"):
        load_workloads("json:WRONG")


def test_a_variant_runs_in_the_precision_of_its_workload_unless_it_has_one() -> None:
    own = Variant(name="own", call="m:f", dtype="float16")
    variants = (*GOOD.variants, own)
    cases = select_cases([dataclasses.replace(GOOD, variants=variants, dtype="bfloat16")])
    assert [case.dtype for case in cases] == ["bfloat16", "float16"]


def test_a_workload_without_the_size_is_left_out() -> None:
    assert names(size="huge") == ["ops.other/huge/compiled"]


def test_a_workload_that_is_given_twice_runs_once() -> None:
    assert names(names=["ops.good", "ops.good"]) == ["ops.good/medium/compiled"]


@pytest.mark.parametrize(
    ("wanted", "message", "hint"),
    [
        ({"names": ["ops.goood"]}, "unknown workload 'ops.goood'", "did you mean ops.good"),
        ({"size": "medum"}, "unknown size 'medum'", "did you mean medium"),
        ({"variants": ["compile"]}, "unknown variant 'compile'", "did you mean compiled"),
        ({"size": "small", "names": ["ops.other"]}, "unknown size 'small'", "known: "),
        ({"names": ["ops.g"]}, "unknown workload 'ops.g'", "did you mean ops.good"),
        ({"variants": ["graphs"]}, "unknown variant 'graphs'", "known: compiled"),
    ],
)
def test_a_wrong_name_suggests_the_nearest(
    wanted: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(UnknownNameError) as caught:
        names(**wanted)
    assert str(caught.value) == message
    assert hint in caught.value.hint


VARIANTS = (
    Variant(name="naive", call="m:f"),
    Variant(name="real", call="m:f"),
    Variant(name="dynamic", call="m:f", dynamic=True),
    Variant(name="gpu", call="m:f", devices=("cuda",)),
)


@pytest.mark.parametrize(
    ("core", "variants", "name"),
    [
        # The last variant that is neither for GPUs only nor with dynamic shapes.
        (None, VARIANTS, "real"),
        (None, VARIANTS[2:], ""),
        ("naive", VARIANTS, "naive"),
        ("gpu", VARIANTS, "gpu"),
        ("", VARIANTS, ""),
    ],
)
def test_a_core_variant_stands_for_its_workload(
    core: str | None, variants: tuple[Variant, ...], name: str
) -> None:
    workload = dataclasses.replace(GOOD, core=core, variants=variants)
    assert core_variant(workload) == name
    for device in ("cpu", "cuda"):
        found = [case.name for case in core_cases([workload], device)]
        there = name and not (name == "gpu" and device == "cpu")
        assert found == ([f"ops.good/medium/{name}"] if there else [])


def test_an_unknown_core_variant_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = (dataclasses.replace(GOOD, core="real"),)
    monkeypatch.setattr(json, "WRONG", wrong, raising=False)
    with pytest.raises(SpecError, match=r"ops\.good: core 'real' is not one of compiled, graphs"):
        load_workloads("json:WRONG")


@pytest.mark.parametrize("position", [-1, 1.0, True, "0"])
def test_a_fixed_input_is_a_position(monkeypatch: pytest.MonkeyPatch, position: Any) -> None:  # noqa: ANN401
    wrong = (dataclasses.replace(GOOD, fixed=(position,)),)
    monkeypatch.setattr(json, "WRONG", wrong, raising=False)
    with pytest.raises(
        SpecError, match=r"ops\.good: fixed input .* is not the number of an input"
    ):
        load_workloads("json:WRONG")


def test_the_full_suite_begins_with_one_case_of_each_workload() -> None:
    one = dataclasses.replace(GOOD, variants=VARIANTS)
    none = dataclasses.replace(GOOD, name="ops.none", variants=VARIANTS[:2], core="")
    other = dataclasses.replace(OTHER, variants=VARIANTS[:2])
    assert [case.name for case in full_cases([one, none, other])] == [
        "ops.good/medium/real",
        "ops.other/medium/real",
        "ops.good/medium/naive",
        "ops.none/medium/naive",
        "ops.other/medium/naive",
        "ops.good/medium/dynamic",
        "ops.none/medium/real",
        "ops.good/small/real",
        "ops.other/huge/real",
    ]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_workload_of_ivhl_is_in_both_suites(device: str) -> None:
    core, full = (suite(WORKLOADS, device) for suite in (core_cases, full_cases))
    names = [case.workload.name for case in core]
    assert len(names) == len(set(names))
    # One workload of the force field represents the three. Hot paths are compiled on a CPU only.
    left_out = {workload.name for workload in WORKLOADS} - set(names)
    hot = {"hotpath.mlp", "hotpath.norm_gelu"} if device == "cuda" else set()
    assert left_out == {"mlff.edge_list", "mlff.trajectory"} | hot
    assert full[: len(core)] == core
    assert len({case.name for case in full}) == len(full)
    assert {case.name for case in select_cases(WORKLOADS, device=device)} < {
        case.name for case in full
    }


@pytest.mark.parametrize("text", ["", "module", ":name", "module:"])
def test_a_reference_has_a_module_and_a_name(text: str) -> None:
    with pytest.raises(SpecError, match="module:attribute"):
        resolve(text)


def test_a_missing_attribute_is_named() -> None:
    with pytest.raises(SpecError, match="'json' has no attribute 'WORKLOADS'"):
        load_workloads("json:WORKLOADS")


def test_a_module_that_does_not_import_is_named_with_the_cause() -> None:
    with pytest.raises(SpecError, match="nowhere") as caught:
        load_workloads("nowhere:WORKLOADS")
    assert "without torch" in caught.value.hint


def test_objects_that_are_not_workloads_are_refused() -> None:
    with pytest.raises(SpecError, match="must be a tuple of"):
        load_workloads("json:__all__")


def test_all_mistakes_are_reported_together(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = (
        dataclasses.replace(GOOD, default_size="big"),
        dataclasses.replace(GOOD, variants=GOOD.variants * 2),
        dataclasses.replace(OTHER, name="ops other"),
    )
    monkeypatch.setattr(json, "WRONG", wrong, raising=False)
    with pytest.raises(SpecError) as caught:
        load_workloads("json:WRONG")
    text = str(caught.value)
    assert "default_size 'big' is not one of small, medium" in text
    assert "variant 'compiled' listed twice" in text
    assert "'ops other' may not contain" in text
    assert "ops.good: listed twice" in text


DECLARED = """
from ivhl.workload import Variant, Workload

WORKLOADS = (
    Workload(
        name="{name}", version=1, title="", sizes={{"small": 1}}, default_size="small",
        make_inputs="m:f", eager="m:f", reference="m:f", outputs=("y",),
        variants=(Variant(name="v", call="m:f"),),
    ),
)
"""


def make_benchmarks(folder: Path, monkeypatch: pytest.MonkeyPatch, **modules: str) -> str:
    """Write a package of benchmarks that can be imported; return its name."""
    package = f"bench_{folder.name}"
    (folder / package).mkdir()
    for name, text in {"__init__": "", **modules}.items():
        (folder / package / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    return package


def test_a_package_has_the_workloads_of_its_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_benchmarks(
        tmp_path,
        monkeypatch,
        b=DECLARED.format(name="ops.b"),
        a=DECLARED.format(name="ops.a"),
        calls="raise RuntimeError('only a cell has torch')",
    )
    assert [workload.name for workload in load_workloads(package)] == ["ops.a", "ops.b"]
    assert broken_benchmarks(package) == ()


def test_a_broken_module_removes_only_its_own_workloads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_benchmarks(
        tmp_path,
        monkeypatch,
        a=DECLARED.format(name="ops.a"),
        b="import nowhere\nWORKLOADS = ()",
        c="WORKLOADS = (",
    )
    assert [workload.name for workload in load_workloads(package)] == ["ops.a"]
    first, second = broken_benchmarks(package)
    assert first == f"{package}.b does not import: ModuleNotFoundError: No module named 'nowhere'"
    assert second.startswith(f"{package}.c does not import: SyntaxError: ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import sys\nsys.exit(0)", "calls sys.exit(0): a module may not end the process"),
        ("exit('no')", "calls sys.exit('no'): a module may not end the process"),
        ("import os\nos._exit(0)", "calls os._exit(0): a module may not end the process"),
        ("import os\nos.fork()", "forks the process: a declaration only declares"),
        ("import os\nos.chdir('/')", "changes the working directory to /: a declaration only"),
        (
            "import threading\nthreading.Thread(target=threading.Event().wait, name='t').start()",
            "starts a thread: a declaration only declares",
        ),
    ],
)
def test_a_declaration_that_acts_is_named_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    before = Path.cwd(), threading.enumerate(), os._exit
    package = make_benchmarks(tmp_path, monkeypatch, a=f"WORKLOADS = ()\n{text}")
    (broken,) = broken_benchmarks(package)
    assert broken.startswith(f"{package}.a does not import: {says}")
    assert (Path.cwd(), threading.enumerate(), os._exit) == before
    assert broken_benchmarks(package) == (broken,)
    threading.Thread(target=int).start()  # others start threads as ever


@pytest.mark.parametrize("where", ["__init__", "a", "tuple"])
def test_what_declarations_print_is_no_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    acts = "print('said')\n"
    modules = {"__init__": "", "a": DECLARED.format(name="ops.a")}
    acting = "__init__" if where == "__init__" else "a"
    modules[acting] = acts + modules[acting]
    package = make_benchmarks(tmp_path, monkeypatch, **modules)
    reference = f"{package}.a:WORKLOADS" if where == "tuple" else package
    command = (
        "from ivhl.workload import load_workloads\n"
        f"print([one.name for one in load_workloads({reference!r})])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", command],
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "['ops.a']\n"
    assert "said" in done.stderr


@pytest.mark.parametrize(
    ("modules", "says"),
    [
        ({"a": "import nowhere\nWORKLOADS = ()"}, r"\.a does not import: ModuleNotFoundError"),
        ({"a": "X = 1"}, "no module in it has a tuple WORKLOADS"),
        ({"a": "WORKLOADS = 1"}, r"must be a tuple of ivhl\.workload\.Workload"),
        ({"__init__": "import nowhere"}, "does not import as a package: ModuleNotFoundError"),
        (
            {name: DECLARED.format(name="ops.twice") for name in ("a", "b")},
            r"ops\.twice: listed twice, in bench_.*\.a and bench_.*\.b",
        ),
    ],
)
def test_an_unusable_package_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modules: dict[str, str], says: str
) -> None:
    package = make_benchmarks(tmp_path, monkeypatch, **modules)
    with pytest.raises(SpecError, match=says):
        load_workloads(package)


def test_the_given_folder_precedes_modules_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        roots.append(tmp_path / name)
        package = roots[-1] / "shared_bench"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "a.py").write_text(DECLARED.format(name=f"ops.{name}"))
    monkeypatch.syspath_prepend(roots[0])
    for root in (*roots, *roots):
        use_benchmarks(root, "shared_bench")
        (workload,) = load_workloads("shared_bench")
        assert workload.name == f"ops.{root.name}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, r"there is no .*nothing_bench.__init__\.py"),
        ("raise SystemExit(3)", r"calls sys\.exit\(3\): a module may not end"),
    ],
)
def test_an_unusable_folder_is_named(tmp_path: Path, text: str | None, says: str) -> None:
    if text is not None:
        (tmp_path / "nothing_bench").mkdir()
        (tmp_path / "nothing_bench" / "__init__.py").write_text(text)
    with pytest.raises(SpecError, match=says):
        use_benchmarks(tmp_path, "nothing_bench")


MODEL = Workload(
    name="m.block",
    version=1,
    title="A block",
    sizes={"small": 1},
    default_size="small",
    make_model="m:make",
    make_inputs="m:f",
)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"make_model": None}, "m.block: eager is missing: name the function to measure, or"),
        ({"make_model": "m"}, "make_model must be 'module:function' (got 'm')"),
        (
            {"reference": "fp64"},
            "'module:function' or one of 'float64', 'tolerance', 'cosine' (got 'fp64')",
        ),
        ({"make_model": None, "eager": "m:f", "loss": "m:f"}, "loss needs make_model"),
        ({"eager": "m:f", "passes": "step"}, "passes goes with the harness's own call"),
        ({"passes": "both"}, "passes must be None or one of forward, backward, step (got 'both')"),
        (
            {"passes": "backward", "make_optimizer": "m:f"},
            "make_optimizer goes with passes='step'",
        ),
        ({"passes": "forward", "loss": "m:f"}, "loss goes with passes='backward' or 'step'"),
        ({"outputs": ("y",)}, "outputs: those of a model are named by their paths"),
        (
            {"variants": (Variant(name="v", prepare="m:f"),)},
            "variant 'v': prepare and finish do not go with make_model",
        ),
        (
            {"variants": (Variant(name="v", compiles="parts"),)},
            "variant 'v' has compiles='parts', which needs a call of its own",
        ),
        (
            {"variants": (Variant(name="v", engine="aotinductor"),)},
            "variant 'v' has engine='aotinductor', which needs passes='forward'",
        ),
        (
            {
                "make_model": None,
                "eager": "m:f",
                "variants": (Variant(name="v", compiles="model"),),
            },
            "variant 'v' has compiles='model', which needs make_model",
        ),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], says: str
) -> None:
    monkeypatch.setattr("tests.unit.test_workload.BOTH", (dataclasses.replace(MODEL, **changes),))
    with pytest.raises(SpecError) as error:
        load_workloads("tests.unit.test_workload:BOTH")
    assert says in str(error.value)


def test_a_workload_with_a_model_needs_no_function_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.unit.test_workload.BOTH", (MODEL,))
    (workload,) = load_workloads("tests.unit.test_workload:BOTH")
    (case,) = select_cases((workload,))
    assert (case.name, case.call, case.level) == ("m.block/small/compiled", "", "float64")
