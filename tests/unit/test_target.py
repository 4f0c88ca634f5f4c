"""A target by its name: what its inputs are guessed from, and what a larger batch shows."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

torch = pytest.importorskip("torch")

from ivhl.cli import app  # noqa: E402
from ivhl.cli import tryout as cli_target  # noqa: E402
from ivhl.cli.tryout import _save, try_target  # noqa: E402
from ivhl.errors import SpecError  # noqa: E402
from ivhl.matrix.spec import CellSpec  # noqa: E402
from ivhl.measure import target as target_module  # noqa: E402
from ivhl.measure.case import Measurement  # noqa: E402
from ivhl.measure.effort import Effort  # noqa: E402
from ivhl.measure.failures import CaseError  # noqa: E402
from ivhl.measure.journal import Journal  # noqa: E402
from ivhl.measure.subject import Subject  # noqa: E402
from ivhl.measure.target import (  # noqa: E402
    distance,
    draw,
    guess_of,
    indicative,
    like,
    make_inputs,
    with_larger_batch,
)
from ivhl.measure.target_spec import (  # noqa: E402
    FLOATS,
    FOLDER_VARIABLE,
    VARIABLE,
    Target,
    TargetError,
    TensorLike,
    parse_input,
    source_of,
)
from ivhl.observatory.observing import EFFORT  # noqa: E402
from ivhl.script.trying import (  # noqa: E402
    _LOOKS_S,
    TargetTried,
    Trials,
    _telling,
    packages_of,
    read_target,
)
from ivhl.script.verdict import details  # noqa: E402
from ivhl.workload import load_workloads, select_cases  # noqa: E402
from tests.builders.fleet import make_fleet_project  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CACHED = (
    "target",
    "_module",
    "named",
    "call_of",
    "guess_of",
    "_first_made",
    "_kind",
    "model_step",
    "_workloads",
    "dtype",
    "_seen_in_a_call",
    "_rounds_to_16_bits",
)
MODULE = '''
import torch

class Counted(torch.nn.Module):
    made = 0

    def __init__(self):
        super().__init__()
        type(self).made += 1
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)

class Net(torch.nn.Module):
    """A layer.

    Example::

        >>> net = Net(5)
        >>> x = torch.rand(4, 5)
        >>> net(x)
    """

    def __init__(self, n=12):
        super().__init__()
        self.inner = torch.nn.ModuleList([torch.nn.Linear(n, 3)])

    def forward(self, x):
        return self.inner[0](x)

class Needs(Net):
    def __init__(self, n):
        super().__init__(n)

class Deep(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(7, 3)

    def forward(self, tokens, other):
        return self.embed(tokens) + self.embed(other)

def ratio(x, y, eps=1e-3):
    return x / (y.abs() + eps)

def counts(x):
    """Count.

    >>> x = torch.randint(0, 5, (6,))
    >>> counts(x,
    ...        )
    """
    return torch.bincount(x, minlength=5)

class Named(torch.nn.Linear):
    """A layer.

    >>> net = Named(5, 2)
    >>> net(input=torch.rand(4, 5))
    """

    def forward(self, *, input):
        return super().forward(input)

def images(x):
    assert x.ndim == 4
    return x

def silent(x):
    if x.ndim != 4:
        raise ValueError
    return x

def noise(x):
    return x + torch.rand_like(x)

class Keeps(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))
        self.inner = torch.nn.Linear(3, 3)

    def forward(self, x):
        y = self.inner(x) + self.seen
        self.seen += x.mean(0)
        return y

class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.inner = 0, torch.nn.Linear(4, 4)

    def forward(self, x):
        self.calls += 1
        return self.inner(x) * self.calls

class Force(torch.nn.Module):
    def forward(self, x):
        x = x.requires_grad_()
        return torch.autograd.grad(x.pow(3).sum(), x)[0]

class Rounds(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x).bfloat16().float()

def doubles(x, other):
    return x.mul_(2) + other

def nothing():
    return torch.ones(3)

def cancels(x):
    return (x + 1e4) - 1e4

TABLE = torch.arange(12.0).reshape(4, 3)

def looks_up(x):
    return x @ TABLE

def only_rounding(x):
    return (x @ TABLE).softmax(-1).sum(-1) - 1

def vanishes(x):
    y = (x @ TABLE).softmax(-1) * 1e-5
    return y * 0 if torch.compiler.is_compiling() else y

class ByName(torch.nn.Module):
    def forward(self, x, *, other, scale=2.0):
        return x * other * scale


def exits(x):
    import os
    os._exit(3)


def two_kernels(x):
    return (x.sin() @ x).cos()

def detached(x):
    return x.detach() + 1 if torch.compiler.is_compiling() else x + 1

def detached_mean(x):
    return detached(x).mean()

def overwrites(x):
    return x.mul_(2) + 1 if torch.compiler.is_compiling() else 2 * x + 1

class Mixed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(4)
        self.inner = torch.nn.Linear(4, 4, dtype=torch.bfloat16)
        self.register_buffer("shift", torch.ones(4, dtype=torch.float64))

    def forward(self, x):
        return self.inner(self.norm(x).bfloat16()).float() + self.shift.float()

class Scaled(torch.nn.Module):
    def forward(self, *xs, scale):
        return xs[0] * scale

def scaled(x, *, scale):
    return x * scale

class Broken(torch.nn.Module):
    def __init__(self):
        self.n = 1 + "a"

def best(x):
    return {"y": x.relu() * 2, "best": float("inf")}

def all_nan(x):
    return (-x.abs() - 1).log()

def adds(x):
    y = x * 3
    x.add_(2)
    return y

class Adds(torch.nn.Linear):
    def forward(self, x):
        y = super().forward(x * 1)
        return y, x.add_(2).detach()

class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 3)

    def forward(self, x):
        h = self.body(x)
        loss, head = h.square().mean(), self.head(h)
        if torch.compiler.is_compiling() and self.wrong:
            loss = loss + (head - head.detach()).sum()
        return {"loss": loss, "head": head}

    wrong = False

class TwoWrong(Two):
    wrong = True

def parity(x):
    return (x * 1e4).round() % 2

class Parity(torch.nn.Module):
    def forward(self, x):
        return parity(x)

class Patches(torch.nn.Module):
    def __init__(self, image_size, channels=3):
        super().__init__()
        self.side, self.norm = image_size, torch.nn.LayerNorm(channels * image_size)

    def forward(self, image):
        assert image.shape[-2:] == (self.side, self.side)
        return self.norm(image.transpose(1, 2).flatten(2))
'''

# Calls compiled code, and is compiled.
COMPILES = """
import torch

C = torch.compiler.is_compiling
inner = torch.compile(lambda x: x.relu() + 1 if C() else x.relu())

def calls_compiled(x):
    return inner(x) * 2

@torch.compile(fullgraph=True)
def breaks(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()
"""


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401
    """Return a function that makes something of ``MODULE`` the target of this process."""
    (tmp_path / "targets_of_test.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(tmp_path)

    def choose(expression: str, *inputs: str, step: bool = False, module: str = "") -> None:
        about = Target(module or "targets_of_test", expression, inputs, step)
        monkeypatch.setenv(VARIABLE, json.dumps(about._asdict()))
        for name in CACHED:
            getattr(target_module, name).cache_clear()

    yield choose
    for name in CACHED:
        getattr(target_module, name).cache_clear()


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    """Yield trials of both modules, whose processes share what they import and compile first."""
    folder = tmp_path_factory.mktemp("targets")
    (folder / "targets_of_test.py").write_text(MODULE)
    (folder / "compiles.py").write_text(COMPILES)
    with Trials(Path(sys.prefix), folder, EFFORT, network=True, forks=True) as trials:
        yield trials


def larger(function: Any, compiled: Any) -> dict[str, Any]:  # noqa: ANN401
    found = with_larger_batch(function, compiled)
    assert found is not None
    return found


def look() -> dict[str, Any]:
    """Return a first look at the target, compiled."""
    made = target_module.make()
    compiled = torch.compile(made)
    return indicative(made, compiled) | {"second": with_larger_batch(made, compiled)}


@pytest.mark.parametrize(
    ("module", "expression", "inputs", "source"),
    [
        ("", "Net", "8,12", "first layer, Linear"),
        ("", "Net(3)", "8,3", "first layer, Linear"),
        ("", "Net(5)", "4,5", "example in its docstring"),
        ("", "Deep()", "long 2,32 <7; long 2,32 <7", "first layer, Embedding"),
        ("", "ratio", "8,64; 8,64", "signature"),
        ("", "counts", "long 6 <", "example in its docstring"),
        ("", "nothing", "none", "needs none"),
        ("", "Patches(image_size=6)", "2,3,6,6", "its call"),
        ("", "Patches(image_size=6, channels=1)", "2,1,6,6", "its call"),
        ("torch", "bmm", "10,3,4; 10,4,5", "example in its docstring"),
        ("torch.nn", "Conv2d(3, 4, 3)", "2,3,64,64", "first layer, Conv2d"),
        ("torch.nn", "LSTM(5, 6)", "32,2,5", "first layer, LSTM"),
        ("torch.nn.functional", "gelu", "8,64", "signature"),
    ],
)
def test_inputs_are_guessed(
    use: Any,  # noqa: ANN401
    module: str,
    expression: str,
    inputs: str,
    source: str,
) -> None:
    use(expression, module=module)
    guess = guess_of()
    # What numbers of an example are drawn differs from run to run.
    assert str(guess).startswith(inputs)
    assert source in guess.source


def test_an_expression_may_name_its_package(use: Any) -> None:  # noqa: ANN401
    use("Net(targets_of_test.Patches(6).side)")
    assert str(guess_of()) == "8,6"
    use("Linear(torch.nn.Linear(3, 4).out_features, 2)", module="torch.nn.modules.linear")
    assert str(guess_of()) == "8,4"


@pytest.mark.parametrize(
    ("module", "expression", "meant"),
    [
        ("torch", "bmmm", "bmm"),
        ("torch", "nn.functional.softmx", "softmax"),
        ("torch.nn", "Linaer(3, 4)", "Linear"),
    ],
)
def test_a_name_that_the_module_lacks_is_refused_with_the_nearest(
    use: Any,  # noqa: ANN401
    module: str,
    expression: str,
    meant: str,
) -> None:
    use(expression, module=module)
    with pytest.raises(TargetError, match=rf"{module}: .*; did you mean {meant}\?$"):
        target_module.named()


def test_a_model_is_made_once_before_the_case_makes_its_own(use: Any) -> None:  # noqa: ANN401
    use("Counted")
    assert target_module.is_model()
    assert target_module.guess_of().source == "its first layer, Linear"
    assert not target_module.changes_inputs()
    assert not target_module._rounds_to_16_bits()
    assert target_module.named().made == 1
    assert target_module.make_model(0).layer.weight.dtype == torch.float32
    assert target_module.named().made == 2


def test_inputs_that_are_given_are_taken(use: Any) -> None:  # noqa: ANN401
    use("ratio", "4", "bool 4")
    first, second = make_inputs(0, torch.Generator().manual_seed(0))
    assert (first.shape, first.dtype, second.dtype) == ((4,), torch.float64, torch.bool)
    use("ByName", "4,8", "2")
    assert list(map(str, guess_of().arguments)) == ["4,8"]
    assert {name: str(value) for name, value in guess_of().keywords.items()} == {"other": "2"}
    use("images")
    with pytest.raises(TargetError, match=r"cannot be guessed.*--input 8,64"):
        guess_of()
    use("silent")
    with pytest.raises(TargetError, match=r"cannot be guessed.*\n.*\): ValueError"):
        guess_of()
    use("Needs")
    with pytest.raises(TargetError, match=r"needs arguments.*Needs\(\.\.\.\)"):
        guess_of()
    use("missing")
    with pytest.raises(TargetError, match="missing"):
        guess_of()


@pytest.mark.parametrize("text", ["", "8,", "8;3", "int 3", "8 < x", "-1,2"])
def test_an_input_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(TargetError, match="must be a shape"):
        parse_input(text)


@given(
    st.lists(st.integers(0, 4), max_size=3),
    st.sampled_from(["float", "long", "bool", *FLOATS]),
    st.data(),
)
def test_what_is_written_is_read_again(shape: list[int], dtype: str, data: st.DataObject) -> None:
    below = float(data.draw(st.integers(1, 9))) if dtype == "long" else None
    one = TensorLike(tuple(shape), dtype, None if below is None else 0.0, below)
    assert parse_input(str(one)) == one
    drawn = draw(one, torch.Generator().manual_seed(0))
    assert tuple(drawn.shape) == one.shape
    assert below is None or not drawn.numel() or 0 <= drawn.min() <= drawn.max() < below


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=5))
def test_tensors_are_drawn_from_the_range_of_the_example(values: list[int]) -> None:
    for tensor in (torch.tensor(values), torch.tensor(values).double()):
        drawn = draw(like(tensor), torch.Generator().manual_seed(0))
        assert drawn.shape == tensor.shape
        assert drawn.dtype == tensor.dtype
        if min(values) >= 0:
            assert tensor.min() <= drawn.min() <= drawn.max() <= tensor.max()


def test_the_distance_of_outputs_sees_shapes_values_and_nan() -> None:
    one = torch.tensor([1.0, -4.0])
    assert distance((one, {"a": one}, "b"), (one.clone(), {"a": one}, "b")) == (0, "")
    assert distance(one, torch.tensor([1.0, -3.0])) == (0.25, "")
    for other in (torch.ones(3), one.double(), torch.tensor([1.0, float("nan")]), (one,), "text"):
        assert distance(one, other)[1]
    assert distance((one, "a"), (one, "b"))[1]


def test_random_numbers_are_not_compared(use: Any) -> None:  # noqa: ANN401
    use("noise")
    second = look()["second"]
    assert second["varies"]
    assert "off" not in second


def test_a_model_that_keeps_something_is_not_compared_after_other_calls(use: Any) -> None:  # noqa: ANN401
    use("Keeps", "4,3")
    second = look()["second"]
    assert second["varies"]
    assert "off" not in second


def test_a_larger_batch_is_compiled_once_more_and_compared(use: Any) -> None:  # noqa: ANN401
    use("Net")
    found = look()
    assert found["second"] == {
        "inputs": "9,12",
        "recompiles": 1,
        "varies": False,
        "off": pytest.approx(0, abs=1e-5),
        "unlike": "",
    }
    assert found["eager_s"] > 0


def test_a_function_that_was_called_is_compiled_for_a_larger_batch_only(use: Any) -> None:  # noqa: ANN401
    use("ratio", "8,64", "8,64")
    made = target_module.make()
    compiled = torch.compile(made, backend="eager")
    compiled(*target_module._drawn(guess_of())[0])
    before = sum(target_module.convert_frame_counts().values())
    assert indicative(made, compiled)["again"] == 0
    assert larger(made, compiled)["recompiles"] == 1
    assert sum(target_module.convert_frame_counts().values()) == before + 1


@given(
    st.sampled_from(["float", "long", "bool"]),
    st.lists(st.integers(0, 4), max_size=3),
    st.none() | st.tuples(st.integers(0, 5), st.integers(1, 9)),
)
def test_the_source_of_an_input_draws_what_was_tried(
    dtype: str, shape: list[int], bounds: tuple[int, int] | None
) -> None:
    low, high = (bounds[0], bounds[0] + bounds[1]) if bounds else (None, None)
    one = TensorLike(tuple(shape), dtype, low, high)
    drawn = draw(one, torch.Generator().manual_seed(3))
    with torch.random.fork_rng(devices=()):  # as ``of_size_and_generator`` does
        torch.manual_seed(3)
        found = eval(source_of(one), {"torch": torch})  # noqa: S307  (written above)
    assert found.dtype == drawn.dtype
    assert torch.equal(found, drawn)


def test_the_source_of_what_is_no_tensor_is_the_literal_or_nothing() -> None:
    assert [source_of(x) for x in (3, 2.5, None, "a", (1, 2), object())] == [
        "3", "2.5", "None", "'a'", "(1, 2)", "",
    ]  # fmt: skip


FOUND = {"is_model": False, "arguments": ["torch.ones(3)"], "keywords": {}}


@pytest.mark.parametrize(
    ("found", "step", "says"),
    [
        ({}, False, "no cell could call it"),
        (FOUND | {"arguments": [""]}, False, "needs a function that calls it so"),
        (FOUND | {"keywords": {"dim": "1"}}, False, "needs a function that calls it so"),
        (FOUND, True, "needs a function that calls it so"),
    ],
)
def test_a_target_that_no_declaration_says_is_refused(
    tmp_path: Path, found: dict[str, Any], *, step: bool, says: str
) -> None:
    with pytest.raises(SpecError, match=says) as refused:
        _save(tmp_path, "torch:ones", [TargetTried(found, "")], step=step)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("found", "step", "more"),
    [
        (FOUND, False, {"eager": "torch:ones_like", "passes": None}),
        (FOUND | {"is_model": True}, False, {"passes": "forward"}),
        (FOUND | {"is_model": True}, True, {"passes": None}),
        (FOUND | {"dtype": "float64"}, False, {"dtype": "float64"}),
    ],
)
def test_a_saved_target_is_declared_with_the_inputs_that_it_took(
    tmp_path: Path, found: dict[str, Any], *, step: bool, more: dict[str, Any]
) -> None:
    package = f"saved_{tmp_path.name}"
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("")
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nname = "demo"\nversion = "1"\n[tool.ivhl]\nbenchmarks = "{package}"\n'
    )
    text = "torch:nn.Linear(3, 4)" if found["is_model"] else "torch:ones_like"
    path = _save(tmp_path, text, [TargetTried({}, ""), TargetTried(found, "")], step=step)
    written = (tmp_path / path).read_text()
    assert "def inputs():" in written  # of one shape: a size would change nothing
    assert "return (torch.ones(3),)" in written
    (only,) = load_workloads(package)
    assert {name: getattr(only, name) for name in more} == more


@pytest.mark.parametrize(
    ("older", "second", "shown"),
    [
        ("library==1.0 --hash=sha256:00", {}, 1),
        ("library==1.0 --hash=sha256:00", {"failure": {"phase": "import"}}, 0),
        (None, {}, 0),
    ],
)
def test_where_the_newest_package_cannot_be_imported_its_version_of_the_time_is_tried(
    monkeypatch: pytest.MonkeyPatch, older: str | None, second: dict[str, Any], shown: int
) -> None:
    cell, target = CellSpec("3.12", "2.6.0"), Target("library", "f", (), step=False)
    overlays: list[str | None] = []
    answers = [
        TargetTried({"failure": {"phase": "import"}}, "newest"),
        TargetTried(second, "older"),
    ]

    @contextmanager
    def in_use(_: CellSpec, __: Sequence[str], overlay: str | None) -> Iterator[Path]:
        overlays.append(overlay)
        yield Path(sys.prefix)

    monkeypatch.setattr(cli_target, "cell_in_use", in_use)
    monkeypatch.setattr(cli_target, "overlay_of_its_time", lambda *_: older)
    monkeypatch.setattr(Trials, "run", lambda *_: answers[len(overlays) - 1])
    tried = cli_target._tried(
        cell, ("library",), target, None, Effort(), network=True, tell=lambda _: None
    )
    assert tried is answers[shown]
    assert overlays == [None, older][: 1 + (older is not None)]


def test_a_target_that_is_declared_already_is_refused_before_it_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benchmarks").mkdir(exist_ok=True)
    (tmp_path / "benchmarks" / "__init__.py").write_text("")
    (tmp_path / "benchmarks" / "bmm.py").write_text("")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "demo"\nversion = "1"\n[tool.ivhl]\nbenchmarks = "benchmarks"\n'
    )
    monkeypatch.setattr("ivhl.cli.tryout.cell_in_use", lambda *_, **__: pytest.fail("was tried"))
    with pytest.raises(SpecError, match=r"benchmarks/bmm\.py: is there already"):
        try_target("torch:bmm", Effort(), save=True)


def test_the_compiler_gets_no_code_of_the_harness(use: Any) -> None:  # noqa: ANN401
    use("ratio", step=True)
    seen: list[Any] = []

    def compiler(function: Any) -> Any:  # noqa: ANN401
        seen.append(function)
        return function

    x, y = make_inputs(0, torch.Generator().manual_seed(0))
    outputs, gradients = target_module.parts(compiler)(x, y)
    assert seen == [target_module.make()]
    assert outputs.shape == x.shape
    assert [gradient.shape for gradient in gradients] == [x.shape, y.shape]


def test_a_file_of_the_user_gets_no_bytecode(use: Any, tmp_path: Path) -> None:  # noqa: ANN401
    (tmp_path / "imported_once.py").write_text("def f(x):\n    return x\n")
    use("f", module="imported_once")
    target_module.named()
    assert not (tmp_path / "__pycache__").exists()


def test_a_model_gets_its_inputs_by_name_where_its_example_has_names(use: Any) -> None:  # noqa: ANN401
    use("Named(5, 2)")
    drawn = make_inputs(0, torch.Generator().manual_seed(0))
    assert {name: tuple(x.shape) for name, x in drawn.items()} == {"input": (4, 5)}
    assert look()["second"] is None


def test_a_step_of_a_model_differentiates_parameters_and_copies_of_its_inputs(
    use: Any,  # noqa: ANN401
) -> None:
    use("Net(4)", step=True)
    model = torch.nn.Linear(4, 2)
    x = torch.ones(3, 4)

    def changes_its_input(given: Any) -> Any:  # noqa: ANN401
        return model(given.mul_(2))

    passed = target_module.model_step()(changes_its_input, x)
    outputs, (gradient,) = passed.output
    assert outputs.shape == (3, 2)
    assert gradient.shape == x.shape
    assert model.weight.grad is not None
    assert torch.equal(x, torch.ones(3, 4))
    # By finite differences, in float64, of the loss that it returns.
    double, step = model.double(), 1e-6
    moved = torch.ones(3, 4, dtype=torch.float64)
    moved[1, 2] += step
    losses = [target_module.model_step()(double, 2 * one).loss for one in (moved, moved.round())]
    assert gradient[1, 2].item() == pytest.approx(
        ((losses[0] - losses[1]) / step).item(), rel=1e-3
    )


def test_a_step_without_any_gradient_is_refused(use: Any) -> None:  # noqa: ANN401
    use("Net(4)", step=True)
    with pytest.raises(TargetError, match="no output depends on a parameter or an input"):
        target_module.model_step()(lambda x: x, torch.ones(3, dtype=torch.long))


# PyTorch's own, where Dynamo looks at an input that has a gradient and is no leaf.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_what_was_compiled_is_not_compiled_again_for_a_first_look(use: Any) -> None:  # noqa: ANN401
    for step in (False, True):
        use("Net", step=step)
        torch._dynamo.reset()
        made = target_module.make()
        graphs: list[Any] = []

        def compiler(graph: Any, _: Any, graphs: list[Any] = graphs) -> Any:  # noqa: ANN401
            graphs.append(graph)
            return graph

        compiled = torch.compile(made, backend=compiler)
        call = target_module._bound(compiled, guess_of())
        with torch.set_grad_enabled(step):
            call()
        assert larger(made, compiled)["recompiles"] == 1
        assert len(graphs) == 2


def test_what_compiles_again_in_equal_calls_is_counted_and_timed_afterwards(use: Any) -> None:  # noqa: ANN401
    with torch._dynamo.config.patch(recompile_limit=3, accumulated_recompile_limit=3):
        use("Counts()", "8,4")
        assert look()["again"] in {3, 4}  # the first compilation among them
        use("images", "2,3,8,8")
        assert look()["again"] == 1  # the first compilation


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ((), ("blitz",)),
        (("blitz-bayesian",), ("blitz-bayesian",)),
        (("numpy",), ("blitz", "numpy")),
    ],
)
def test_a_package_of_the_modules_name_is_left_out_if_another_has_the_module(
    asked: tuple[str, ...],
    wanted: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def in_use(_: CellSpec, requirements: tuple[str, ...]) -> Iterator[Path]:
        for name in requirements:
            module = name.partition("-")[0]
            (tmp_path / "lib" / "python3.12" / "site-packages" / module).mkdir(parents=True)
        yield tmp_path

    monkeypatch.setattr(cli_target, "cell_in_use", in_use)
    target = Target("blitz.modules", "Layer()", ())
    assert cli_target._wanted(CellSpec("3.12", "2.15.0"), asked, target, None) == wanted


def test_the_precision_of_a_model_is_its_own(use: Any) -> None:  # noqa: ANN401
    use("Net(4).bfloat16()")
    assert target_module.dtype() == "bfloat16"
    assert target_module._workloads("float64")[0].dtype == "bfloat16"
    use("Net(4)")
    assert target_module.dtype() == "float32"


def test_a_lazy_model_is_made_by_a_call(use: Any) -> None:  # noqa: ANN401
    use("Sequential(LazyLinear(3), ReLU())", "2,5", module="torch.nn")
    assert target_module.make_model(0)[0].weight.shape == (3, 5)


def test_what_a_target_does_beside_its_outputs_is_seen(use: Any) -> None:  # noqa: ANN401
    use("Force()", "4,3")
    assert target_module.needs_gradients()
    assert not target_module.changes_inputs()
    assert target_module.forward(target_module.make(), torch.ones(2)).tolist() == [3, 3]
    use("doubles")
    assert target_module.changes_inputs()
    assert not target_module.needs_gradients()
    x = torch.ones(2)
    outputs, (first, second) = target_module.parts(lambda function: function)(x, x)
    assert (outputs.tolist(), first.tolist(), second.tolist()) == ([3, 3], [2, 2], [1, 1])
    assert x.tolist() == [1, 1]
    use("Net")
    assert not target_module.changes_inputs()


def test_code_that_rounds_float64_to_16_bits_is_seen_but_autocast_is_not(use: Any) -> None:  # noqa: ANN401
    use("Rounds(4, 4)", "2,4")
    assert target_module._rounds_to_16_bits()
    use("Net")
    assert not target_module._rounds_to_16_bits()


def test_compiled_code_that_is_as_near_to_float64_as_eager_code_is_like_it(use: Any) -> None:  # noqa: ANN401
    use("cancels")
    made = target_module.make()

    def wrong(x: Any) -> Any:  # noqa: ANN401
        return made(x) + 0.1

    assert larger(made, made)["off"] == 0
    assert larger(made, lambda x: x)["off"] == 0
    assert larger(made, wrong)["off"] > 1e-2


def test_a_model_that_differs_from_its_second_call_on_is_refused(use: Any) -> None:  # noqa: ANN401
    use("Keeps()", "4,3")
    model = target_module.make()
    calls: list[Any] = []

    def wrong(x: Any) -> Any:  # noqa: ANN401
        calls.append(x)
        return model(x) + (len(calls) > 1)

    target_module.refuse_later_calls(model, model)
    with pytest.raises(CaseError, match=r"call 2 of 3 .*, which keeps state") as caught:
        target_module.refuse_later_calls(model, wrong)
    assert caught.value.failure_class == "wrong"


def test_a_step_returns_the_inputs_that_it_writes_into(use: Any) -> None:  # noqa: ANN401
    x = torch.ones(2, 4)
    use("adds", "2,4", step=True)
    outputs, (gradient,), (changed,) = target_module.parts(lambda function: function)(x)
    assert (outputs[0, 0].item(), changed[0, 0].item()) == (3, 3)
    assert gradient.abs().sum() > 0
    use("Adds(4, 2)", "2,4", step=True)
    _, _, (changed,), named = target_module.model_step()(target_module.make(), x).output
    assert (changed[0, 0].item(), named) == (3, {})
    assert torch.equal(x, torch.ones(2, 4))


def test_a_step_takes_note_of_changed_inputs_before_it_runs(use: Any) -> None:  # noqa: ANN401
    """A model that was made in the first call had parameters that looked like random numbers."""
    use("Net(4)", "2,4", step=True)
    step, model = target_module.model_step(), target_module.make()
    before = torch.get_rng_state()
    step(model, torch.ones(2, 4))
    assert torch.equal(before, torch.get_rng_state())


def test_an_input_that_nothing_depends_on_has_zeros_as_gradient(use: Any) -> None:  # noqa: ANN401
    use("ratio", "2", "2", step=True)
    step = target_module.with_gradients(lambda x, _: 2 * x)
    assert step(torch.ones(2), torch.ones(2))[1][1].tolist() == [0, 0]


@pytest.mark.parametrize("name", ["parity", "Parity()"])
def test_an_element_at_a_tie_is_right_and_any_other_is_wrong(
    name: str,
    use: Any,  # noqa: ANN401
) -> None:
    use(name, "64,8")
    made = target_module.make()

    def at(place: str) -> Any:  # noqa: ANN401
        def call(x: Any) -> Any:  # noqa: ANN401
            y = made(x)
            number = getattr(((x * 1e4) % 1 - 0.5).abs(), place)()
            y.view(-1)[number] = 1 - y.view(-1)[number]
            return y

        return call

    assert larger(made, at("argmin"))["off"] == 0
    target_module.refuse_later_calls(made, at("argmin"))
    assert larger(made, at("argmax"))["off"] == 1
    if name != "parity":
        with pytest.raises(CaseError, match="is not like eager code: off by 1"):
            target_module.refuse_later_calls(made, at("argmax"))


def test_what_was_not_compared_by_value_is_printed() -> None:
    found = {"accuracy": [], "not_compared": ["output[1] (generator)"]}
    assert details(TargetTried(found, "")) == [
        "not compared: output[1] (generator)",
        "compared by statistics of many calls, not by value: random numbers differ",
    ]


@pytest.mark.parametrize(("name", "is_wrong"), [("Two", False), ("TwoWrong", True)])
def test_zeros_count_as_the_gradient_that_eager_code_lacks(
    name: str,
    is_wrong: bool,  # noqa: FBT001
    trials: Trials,
) -> None:
    found = tried(Target("targets_of_test", name, ("2,4",), step=True), trials)
    assert ("failure" in found) == is_wrong
    if is_wrong:
        assert "grad.head" in found["failure"]["message"]


def test_only_code_of_the_target_is_compiled_in_an_empty_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, seen = str(tmp_path / "cell"), []
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", shared)
    for name in ("_compile_kernels_side_by_side", "precompile_kernel_header"):
        monkeypatch.setattr(target_module, name, lambda *_: None)
    monkeypatch.setattr(
        target_module,
        "find_instructions",
        lambda: seen.append(os.environ["TORCHINDUCTOR_CACHE_DIR"]),
    )
    monkeypatch.setattr(Measurement, "_compiler", lambda *_: lambda function: function)
    about = SimpleNamespace(effort=EFFORT, turns="", journal=str(tmp_path / "journal.jsonl"))
    own = target_module._Tried(about, None, None)._compiler(None)  # type: ignore[arg-type]
    own(lambda: None)
    assert seen == [shared]
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "inductor")


def tried(target: Target, trials: Trials) -> dict[str, Any]:
    """Return what a trial in this environment finds."""
    return trials.run(target, EFFORT.deadline_s).found


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "passes"), [("looks_up", True), ("only_rounding", True), ("vanishes", False)]
)
def test_code_without_a_float64_form_is_judged_by_eager_code(
    name: str,
    passes: bool,  # noqa: FBT001
    trials: Trials,
) -> None:
    found = tried(Target("targets_of_test", name, ("16,4",)), trials)
    assert found["reference"] == "tolerance"
    assert ("failure" not in found) == passes
    assert found["accuracy"][0]["passed"] == passes


@pytest.mark.full
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_kernels_of_a_trial_are_compiled_side_by_side(
    use: Any,  # noqa: ANN401
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, compiler = tmp_path / "log", tmp_path / "bin" / "g++"
    compiler.parent.mkdir()
    run = f'{shutil.which("g++")} "$@"; code=$?'
    compiler.write_text(f"#!/bin/sh\necho began >>{log}\n{run}\necho ended >>{log}\nexit $code\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{compiler.parent}:{os.environ['PATH']}")
    use("two_kernels", "4,4")
    with Trials(Path(sys.prefix), tmp_path, EFFORT, network=True) as trials:
        found = tried(Target("targets_of_test", "two_kernels", ("4,4",)), trials)
    assert found["accuracy"][0]["passed"]
    assert "began\nbegan\n" in log.read_text()


def test_what_is_known_is_told_once_while_the_trial_goes_on(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    told = Event()

    def tell(known: TargetTried) -> None:
        seen.append(known.found)
        told.set()

    path = tmp_path / "journal.jsonl"
    with _telling(path, tell):
        pass
    assert not seen
    with _telling(path, tell):
        journal = Journal(path)
        journal.note(inputs="8,64")
        assert not told.wait(2 * _LOOKS_S)
        journal.note(eager_s=2.0, compiled_s=1.0)
        assert told.wait(20)
        journal.note(second=None)
        journal.close()
    assert seen == [{"inputs": "8,64", "eager_s": 2.0, "compiled_s": 1.0}]


def test_code_that_exits_in_its_call_is_no_fault_of_its_import(trials: Trials) -> None:
    failure = tried(Target("targets_of_test", "exits", ("4",)), trials)["failure"]
    assert failure["phase"] == "eager"
    assert "exited with status 3 in phase eager" in failure["message"]


def test_a_trial_reads_no_modules_of_the_current_folder_and_leaves_nothing(
    use: Any,  # noqa: ANN401
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A types.py there ended the harness, which said `os._exit`; 158 MB stayed in TMPDIR."""
    current, temporary = tmp_path / "current", tmp_path / "temporary"
    for folder in (current, temporary):
        folder.mkdir()
    for name in ("types", "random", "ivhl"):
        (current / f"{name}.py").write_text("x = 1\n")
    monkeypatch.chdir(current)
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    use("two_kernels", "4,4")
    with Trials(Path(sys.prefix), tmp_path, EFFORT, network=True) as trials:
        found = tried(Target("targets_of_test", "two_kernels", ("4,4",)), trials)
    assert found["accuracy"][0]["passed"]
    assert list(temporary.iterdir()) == []
    assert sorted(path.name for path in current.iterdir()) == ["ivhl.py", "random.py", "types.py"]


def test_a_file_with_the_name_of_an_imported_module_is_refused(
    use: Any,  # noqa: ANN401
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("json", "torch", "own_name"):
        (tmp_path / f"{name}.py").write_text("def f(x):\n    return x\n")
    for name in ("json", "torch"):
        use("f", "4", module=name)
        with pytest.raises(TargetError, match=rf"{name}.py: .*rename the file.* my_{name}.py"):
            target_module._module()
    use("f", "4", module="own_name")
    assert target_module._module().f(1) == 1


def test_a_file_without_the_name_of_a_function_is_refused() -> None:
    refused = CliRunner().invoke(app, ["try", "model.py"]).exception
    assert isinstance(refused, SpecError)
    assert str(refused) == "model.py: names no function"


@pytest.mark.parametrize(
    ("name", "phase", "says"),
    [
        ("detached", "compile", "of compiled code alone, no output depends on an input"),
        pytest.param(
            *("detached_mean", "compile", "of compiled code alone, no output depends on an input"),
            marks=pytest.mark.full,
        ),
        ("overwrites", "accuracy", "compiled code changes its inputs, and eager code does not"),
    ],
)
def test_what_compiled_code_alone_does_is_wrong(
    name: str,
    phase: str,
    says: str,
    trials: Trials,
) -> None:
    step = name.startswith("detached")
    failure = tried(Target("targets_of_test", name, ("2,4",), step=step), trials)["failure"]
    assert (failure["phase"], failure["failure_class"]) == (phase, "wrong")
    assert says in failure["message"]


def test_what_calls_the_compiler_itself_is_judged_by_eager_code(trials: Trials) -> None:
    """It was compared with itself: the eager arm ran compiled code, too."""
    failure = tried(Target("compiles", "calls_compiled", ("2,4",)), trials)["failure"]
    assert (failure["phase"], failure["failure_class"]) == ("accuracy", "wrong")
    # With inputs that are guessed by a call, and with the settings of its own compiler.
    failure = tried(Target("compiles", "breaks"), trials)["failure"]
    assert (failure["phase"], failure["exception"]) == (
        "compile",
        "torch._dynamo.exc.Unsupported",
    )


def test_compiled_code_alone_runs_compiled() -> None:
    """PyTorch before 2.6 has no stance: ivhl tells the wrappers of Dynamo to compile nothing."""
    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:  # noqa: ANN401
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x.sin() + 1, backend=backend)
    try:
        for stance, count in (("force_eager", 0), ("default", 1), ("force_eager", 1)):
            target_module._let_compile(stance)
            compiled(torch.ones(2))
            assert len(graphs) == count
        target_module._medians(lambda: compiled(torch.ones(3)), lambda: compiled(torch.ones(3)))
        assert len(graphs) == 2
        assert target_module._stance == "force_eager"
    finally:
        target_module._let_compile("default")


def subject_of_target() -> Subject:
    """Return the target as the harness holds it, its model made."""
    (case,) = select_cases(target_module._workloads("float64"))
    own = getattr(torch, target_module.dtype())
    cpu = torch.device("cpu")
    found = Subject(case, dtype=own, variant_dtype=own, device=cpu, seed=1)
    found.make_models(0)
    return found


def test_a_model_of_two_precisions_keeps_them_but_for_its_float64_form(use: Any) -> None:  # noqa: ANN401
    use("Mixed()", "2,4")
    assert target_module.dtype() == "float32"
    assert target_module._rounds_to_16_bits()
    subject = subject_of_target()
    assert subject.held is not None
    exact = subject.copied(torch.float64, torch.device("cpu"))
    for held, dtypes in (
        (subject.held, {torch.float32, torch.bfloat16, torch.float64}),
        (subject.variant_copy(), {torch.float32, torch.bfloat16, torch.float64}),
        (exact, {torch.float64}),
    ):
        assert held is not None
        tensors = (*held.model.parameters(), *held.model.buffers())
        assert {one.dtype for one in tensors} == dtypes
    assert subject.held.model(torch.ones(2, 4)).dtype == torch.float32
    use("Mixed()", "bfloat16 2,4")
    assert target_module.dtype() == "bfloat16"


@pytest.mark.parametrize("expression", ["Scaled()", "scaled"])
def test_inputs_by_position_and_by_name_reach_the_call(
    use: Any,  # noqa: ANN401
    expression: str,
) -> None:
    for step in (False, True):
        use(expression, "2,3", "2,3", step=step)
        subject = subject_of_target()
        x, y = torch.full((2, 3), 2.0), torch.full((2, 3), 3.0)
        drawn = subject.take_inputs(make_inputs(0, torch.Generator().manual_seed(0)))
        assert [one.shape for one in (drawn[0], drawn[1]["scale"])] == [x.shape, y.shape]
        arguments = () if subject.held is None else subject.held.arguments
        found = subject.run(subject.eager, arguments, (x, {"scale": y}))
        found = found.output if expression == "Scaled()" and step else found
        assert torch.equal(found[0] if step else found, x * y)


def test_a_function_gets_the_default_precision_or_that_of_an_input(
    use: Any,  # noqa: ANN401
) -> None:
    use("looks_up", "2,4")
    assert target_module.dtype() == "float32"
    try:
        torch.set_default_dtype(torch.float64)
        target_module.dtype.cache_clear()
        assert target_module.dtype() == "float64"
    finally:
        torch.set_default_dtype(torch.float32)
    use("ratio", "bfloat16 4", "4")
    assert [one.dtype for one in target_module._drawn(guess_of())[0]] == [torch.bfloat16] * 2
    for expression, *inputs in (("ratio", "double 4", "half 4"), ("Net", "double 8,12")):
        use(expression, *inputs)
        with pytest.raises(TargetError, match="all floating inputs have one precision"):
            target_module.dtype()


def test_a_function_of_16_bits_without_a_float64_form_is_compared_as_such(use: Any) -> None:  # noqa: ANN401
    for kind, narrow in (("bfloat16", True), ("double", False), ("float", False)):
        use("looks_up", f"{kind} 2,4")
        assert target_module._rounds_to_16_bits() == narrow


def test_random_numbers_of_python_and_numpy_are_the_same_in_each_call(use: Any) -> None:  # noqa: ANN401
    numpy = pytest.importorskip("numpy")
    use("ratio", "4", "4")
    for draws in (random.random, numpy.random.rand):
        subject = subject_of_target()
        subject.note_random_numbers(draws)
        assert subject.draws_random_numbers
        call = subject.with_same_numbers(draws)
        assert call() == call()
    subject = subject_of_target()
    subject.note_random_numbers(lambda: torch.ones(2))
    assert not subject.draws_random_numbers


def test_an_error_in_the_code_of_a_class_asks_for_no_arguments(use: Any) -> None:  # noqa: ANN401
    use("Broken")
    with pytest.raises(TypeError, match="unsupported operand"):
        target_module.make()


@pytest.mark.parametrize("name", ["model.v2.py", "2d.py", "my model.py", "class.py"])
def test_a_file_may_have_any_name(
    name: str,
    use: Any,  # noqa: ANN401
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / name).write_text("def f(x):\n    return x\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    target, folder = read_target(f"{name}:f", (), step=False)
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    use("f", module=target.module)
    assert str(guess_of()) == "8,64"
    assert target_module.make()(1) == 1


def test_a_folder_without_the_module_is_no_place_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "timm" / "data").mkdir(parents=True)
    target, folder = read_target('timm:create_model("resnet18")', (), step=False)
    assert (folder, packages_of(target, folder)) == (None, ("timm",))
    (tmp_path / "timm" / "models.py").write_text("")
    for text in ("timm:f", "timm.models:f"):
        assert read_target(text, (), step=False)[1] == tmp_path


@pytest.mark.parametrize(
    ("name", "says"), [("best", ""), ("all_nan", "all outputs are infinite or NaN")]
)
def test_an_infinity_by_design_is_judged_and_nothing_but_nan_is_refused(
    name: str,
    says: str,
    trials: Trials,
) -> None:
    found = tried(Target("targets_of_test", name, ("2,4",)), trials)
    assert says in found.get("failure", {"message": ""})["message"]
    assert ("failure" in found) == bool(says)
    assert found["reference"] == ("tolerance" if says else "float64")
