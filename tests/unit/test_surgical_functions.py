"""Functions as parts of a model, its training step, and models that cannot be compared."""

from __future__ import annotations

import json
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
import torch
from torch import nn

from ivhl.errors import SpecError
from ivhl.measure.timing import Schedule
from ivhl.surgical.__main__ import advice_of, lines_of, main
from ivhl.surgical.advice import LEAST_SHARE, advise_parts
from ivhl.surgical.judging import PartOutcome, mistake
from ivhl.surgical.parts import NamePlace, find_parts, reads_numbers, swapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType

    from ivhl.surgical.advice import ModelAdvice
    from ivhl.surgical.parts import FoundParts, Part

pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    # Dynamo looks for the gradient of what flows into a compiled function.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
]

SHORT = Schedule(block_s=0.001, total_s=0.02, min_rounds=4, max_rounds=4)

ROTARY = """
import functools
import torch

def keep(function):
    @functools.wraps(function)
    def inner(*given):
        return function(*given)
    return inner

def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)

@keep
def rotate(x, angles):
    for _ in range(8):
        x = x * angles.cos() + rotate_half(x) * angles.sin()
    return x

def unused(x):
    return x
"""
MODELS = '''
import torch
from torch import nn
import my_rotary
from my_rotary import rotate, rotate_half

def add_into(x):
    return x.add_(1)

def noisy(x):
    return x + 0.0 * torch.randn(())

def largest(x):
    return x, int(x.argmax())

def size(x):
    return x, x.shape[-1]

def is_there(x):
    return x is not None

class Box:
    def __init__(self): self.held = []

def put(box, x):
    box.held.append(1)
    return x * 1

TABLE = {"hidden": lambda x: x}

def hidden(x):
    for _ in range(200):
        x = x * 1.0
    return x

TABLE["hidden"] = hidden

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def split(self, x):
        return self.linear(x).unflatten(-1, (2, 8))

    def forward(self, x, angles):
        x = self.split(x)
        return rotate(x, angles).flatten(-2), my_rotary.rotate(x, angles)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Attention(), Attention()

    def forward(self, x, angles):
        return self.second(self.first(x, angles)[0], angles)[0]

class Impure(nn.Module):
    def forward(self, x):
        assert is_there(x)
        y, _ = largest(size(put(Box(), x))[0])
        add_into(y.clone())
        return TABLE["hidden"](noisy(y))

class Counted(nn.Module):
    """Batch norm, a counter and a cache that is a tensor."""
    def __init__(self):
        super().__init__()
        self.norm, self.cache = nn.BatchNorm1d(4), None
        self.register_buffer("n", torch.zeros(()))

    def forward(self, x):
        self.cache = x if self.cache is None else torch.cat((self.cache, x))
        self.n += 1
        return self.norm(self.cache) + self.n

class Growing(nn.Module):
    def __init__(self):
        super().__init__()
        self.past = []

    def forward(self, x):
        self.past.append(x)
        return torch.cat(self.past)

class Sneaky(nn.Module):
    n = 0

    def forward(self, x):
        Sneaky.n += 1
        return x + Sneaky.n

class Writing(nn.Module):
    def forward(self, x):
        return x.mul_(2)

class Boxed(nn.Module):
    def forward(self, box):
        box.held.append(1)
        return torch.ones(2)

class Bare(nn.Module):
    def forward(self, given, nothing):
        assert nothing is None
        return {"sum": given["x"].sum()}

class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x, *, mask):
        return self.linear(x) * mask

class Texts(nn.Module):
    def forward(self, x):
        return "text"

class Single(nn.Module):
    """Runs in float32 only."""
    def forward(self, x):
        return x @ torch.ones(4, 4, dtype=torch.float32)

def in_chunks(function, x):
    return torch.cat([function(one) for one in x.chunk(2)])

class Chunked(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def wide(self, x):
        return self.linear(x).exp()

    def forward(self, x):
        return in_chunks(self.wide, x)

class Detach(nn.Module):
    def forward(self, x):
        return x.detach()

class Raising(nn.Module):
    def forward(self, x):
        raise KeyError("weights of layer 3")

class Fp8(nn.Module):
    def forward(self, x):
        raise NotImplementedError("FP8 needs a GPU of compute capability 8.9")
'''


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A project of two modules that are in no package."""
    names = ("my_rotary", "my_models")
    for name, text in zip(names, (ROTARY, MODELS), strict=True):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    torch.manual_seed(0)
    __import__("my_models")
    yield sys.modules["my_models"]
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile by Dynamo alone, without the seconds of Inductor."""
    usual = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **_: usual(f, backend="eager"))


def found_in(model: nn.Module, *inputs: Any) -> FoundParts:  # noqa: ANN401
    with torch.no_grad():
        return find_parts(model, lambda: model(*inputs), 0.01)


def advised(model: nn.Module, *inputs: Any, **options: Any) -> ModelAdvice:  # noqa: ANN401
    return advise_parts(model, inputs, schedule=SHORT, **options)


def test_functions_that_get_tensors_are_parts_with_what_one_writes(models: ModuleType) -> None:
    x, angles = torch.randn(2, 16), torch.randn(8)
    before = models.rotate
    parts = found_in(models.Model(), x, angles).parts
    assert {name: len(part.calls) for name, part in parts.items()} == {
        "Attention": 2, "split": 2, "Linear": 2, "rotate": 4, "rotate_half": 32
    }  # fmt: skip
    rotate = parts["rotate"]
    assert [place.path for place in rotate.places] == ["my_models.rotate", "my_rotary.rotate"]
    assert rotate.code == (
        "import my_models",
        "import my_rotary",
        "my_models.rotate = torch.compile(my_models.rotate)",
        "my_rotary.rotate = my_models.rotate",
    )
    assert parts["split"].code[-1] == (
        "my_models.Attention.split = torch.compile(my_models.Attention.split)"
    )
    assert parts["Attention"].code[-2:] == (
        "    if type(module) is my_models.Attention:",
        "        module.compile()",
    )
    # A function inside of a function, and both inside of a module.
    assert rotate.inside == {parts["rotate_half"].target}
    assert parts["Attention"].inside >= {rotate.target, parts["rotate_half"].target}
    # Afterwards all is as it was.
    assert models.rotate is models.my_rotary.rotate is before
    assert sys.getprofile() is None


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("train", [False, True])
def test_a_method_that_is_given_to_a_function_is_the_models_own(
    models: ModuleType, *, train: bool
) -> None:
    model, x = models.Chunked(), torch.randn(4, 16)
    parts = found_in(model, x).parts
    method = parts["in_chunks"].calls[0].arguments[0]
    assert method.__func__ is models.Chunked.wide
    for _ in range(3):
        method(x)
    assert len(parts["wide"].calls) == 2
    advice = advised(model, x, train=train)
    found = {one.name: one for one in advice.parts}
    assert found["in_chunks"].speedup is not None
    assert found["wide"].speedup is not None
    assert not any(one.note or one.failure for one in found.values())
    assert not advice.notes


def test_functions_are_put_back_after_an_error(models: ModuleType) -> None:
    before = models.rotate, models.my_rotary.rotate
    places = {NamePlace(one, "rotate"): len for one in (models, models.my_rotary)}
    with swapped(places):
        assert models.rotate is models.my_rotary.rotate is len
    assert models.rotate is models.my_rotary.rotate is before[0]
    with pytest.raises(TypeError), swapped(places):
        models.rotate(1)
    assert (models.rotate, models.my_rotary.rotate) == before


def test_functions_that_are_more_than_what_they_return_are_refused(models: ModuleType) -> None:
    found = found_in(models.Impure(), torch.randn(4))
    assert {name: part.refused for name, part in found.parts.items()} == {
        "is_there": "returns no tensor",
        "put": "gets a Box that changes",
        "size": "",
        "largest": "",
        "add_into": "changes its arguments",
        "noisy": "draws random numbers",
    }
    assert found.out_of_reach == ("my_models.hidden",)

    def reads(part: Part) -> bool:
        return reads_numbers(part.target, part.calls[0])

    assert reads(found.parts["largest"])
    assert not reads(found.parts["size"])


@pytest.mark.full
@pytest.mark.usefixtures("quick")
def test_functions_are_measured_chosen_and_written_down(
    models: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Choose the function as if it alone were faster, forward and in a training step.

    One test: Dynamo guards modules by name, and the fixture makes others of the same names.
    """
    monkeypatch.setattr("ivhl.surgical.advice._choose", lambda *_: ["rotate"])
    before = models.rotate
    for train in (False, True):
        found = advised(models.Model(), torch.randn(64, 16), torch.randn(8), train=train)
        assert found.failures == ()
        assert found.chosen is not None
        assert found.train is train
        rotate = next(part for part in found.parts if part.name == "rotate")
        assert (rotate.n_modules, rotate.n_calls, rotate.failure, rotate.note) == (0, 4, "", "")
        assert rotate.speedup is not None
        assert models.rotate is before
        text = "\n".join(lines_of(found, "somewhere"))
        assert ("a training step takes" in text) is train
        assert "4 calls" in text


@pytest.mark.usefixtures("quick")
def test_a_wrong_function_is_wrong_alone_and_in_the_model(
    models: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrongly(function: Callable[..., Any], **_: Any) -> Callable[..., Any]:  # noqa: ANN401
        return lambda *given: 1.01 * function(*given)

    monkeypatch.setattr("ivhl.surgical.advice._choose", lambda *_: ["rotate"])
    monkeypatch.setattr(torch, "compile", wrongly)
    monkeypatch.setattr(torch.nn.Module, "compile", lambda *_: None)
    found = advised(models.Model(), torch.randn(64, 16), torch.randn(8))
    rotate = next(part for part in found.parts if part.name == "rotate")
    assert rotate.failure.startswith("wrong: output of call 1 has RMSE ")
    assert [one.partition(" has")[0] for one in found.failures] == ["chosen: wrong: output"]


def test_a_wrong_gradient_is_wrong_though_the_output_is_right() -> None:
    x, weight = torch.ones(8), torch.linspace(1, 2, 8)
    eager, exact = (PartOutcome(one, {"weight": weight.to(one.dtype)}) for one in (x, x.double()))
    assert mistake([eager], [eager], [exact]) == ""
    off = PartOutcome(x, {"weight": 1.01 * weight})
    assert mistake([eager], [off], [exact]).startswith("wrong: gradient of weight has RMSE ")
    # One that is nothing but rounding beside the others is not.
    tiny = [
        PartOutcome(x, {"weight": weight, "bias": torch.full((8,), one)}) for one in (1e-9, -3e-9)
    ]
    truth = PartOutcome(x.double(), {"weight": weight.double(), "bias": torch.zeros(8).double()})
    assert mistake(tiny[:1], tiny[1:], [truth]) == ""


@pytest.mark.usefixtures("quick")
def test_what_a_call_changes_in_the_model_is_put_back(models: ModuleType) -> None:
    model = models.Counted()
    found = advised(model, torch.randn(8, 4))
    assert found.failures == ()
    assert found.whole is not None
    # The caches of the last call: it began without one, as each did.
    assert model.cache.shape == (8, 4)
    assert float(model.n) == 1.0


@pytest.mark.usefixtures("quick")
def test_a_model_of_one_precision_is_compared_with_eager_and_the_output_says_so(
    models: ModuleType,
) -> None:
    found = advised(models.Single(), torch.randn(4, 4))
    assert found.whole is not None
    assert found.failures == ()
    assert "compared with eager, as in float64: RuntimeError: " in lines_of(found, "here")[-3]


@pytest.mark.usefixtures("quick")
def test_a_model_that_draws_random_numbers_gets_no_advice(models: ModuleType) -> None:
    found = advised(models.Impure(), torch.randn(64, 64))
    assert found.whole is found.chosen is None
    assert "the model draws random numbers" in found.failures[0]
    assert advice_of(found) == [
        "Nothing can be said of the model: model.eval() and dropout=0 draw no random numbers"
    ]


@pytest.mark.usefixtures("quick")
def test_modules_that_draw_random_numbers_are_not_compared_and_nothing_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ivhl.surgical.advice._choose", lambda *_: ["LayerNorm"])
    # So large that a busy machine leaves each of them its share.
    layers = nn.Linear(512, 512), nn.GELU(), nn.Dropout(0.5), nn.LayerNorm(512)
    said: list[str] = []
    model, x = nn.Sequential(nn.Sequential(*layers), nn.Identity()), torch.randn(1024, 512)
    found = advised(model.train(), x, say=said.append)
    failures = {part.name: part.failure for part in found.parts if part.share >= LEAST_SHARE}
    assert failures["Dropout"] == failures["Sequential"] == "draws random numbers: not tried"
    assert failures["Linear"] == failures["LayerNorm"] == ""
    assert not any(part.chosen for part in found.parts)
    assert said[-1] == "the model"
    text = "\n".join(lines_of(found, "here"))
    assert "wrong" not in text
    assert "<- compile" not in text
    # Where they draw nothing, they are parts as any other.
    assert all(not part.refused for part in found_in(model.eval(), x).parts.values())


@pytest.mark.usefixtures("quick")
def test_inputs_may_be_dictionaries_and_none(models: ModuleType) -> None:
    found = advised(models.Bare(), {"x": torch.randn(4)}, None)
    assert found.whole is not None
    assert found.parts == ()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("train", [pytest.param(False, marks=pytest.mark.full), True])
def test_inputs_may_be_keyword_arguments(
    models: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    train: bool,
) -> None:
    inputs = MappingProxyType({"x": torch.randn(64, 16), "mask": torch.ones(16)})
    vars(models)["made"] = lambda: (models.Masked(), inputs)
    monkeypatch.setattr("ivhl.surgical.advice._choose", lambda *_: ["Linear"])
    monkeypatch.setattr("ivhl.surgical.__main__.choose_cache_folder", lambda: None)
    monkeypatch.setattr(sys, "path", list(sys.path))
    n_threads = torch.get_num_threads()
    try:
        assert main(["advise", "my_models:made", "--json", *(["--train"] if train else [])]) == 0
    finally:
        torch.set_num_threads(n_threads)
    found = json.loads(capsys.readouterr().out)
    assert (found["failures"], found["notes"]) == ([], [])
    assert found["chosen"]
    assert found["whole"]
    assert [(part["name"], part["failure"]) for part in found["parts"]] == [("Linear", "")]


@pytest.mark.usefixtures("quick")
def test_keyword_arguments_that_a_model_overwrites_are_refused(models: ModuleType) -> None:
    with pytest.raises(SpecError, match="Writing changes its inputs"):
        advise_parts(models.Writing(), {"x": torch.randn(4)}, schedule=SHORT)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("Growing", "Growing keeps something from call to call: past has 1 items after one call"),
        ("Sneaky", "Sneaky returns something else when it is called again: output differs by"),
        ("Writing", "Writing changes its inputs, so each call would begin from something else"),
        ("Texts", "Texts returns no tensor, but str"),
        ("Raising", "Raising raised KeyError on its inputs: 'weights of layer 3'"),
        ("Fp8", "Fp8 raised NotImplementedError on its inputs: FP8 needs a GPU"),
    ],
)
def test_models_whose_calls_cannot_be_compared_are_refused(
    kind: str, says: str, models: ModuleType
) -> None:
    with pytest.raises(SpecError) as caught:
        advised(getattr(models, kind)(), torch.randn(4, 4))
    assert says in str(caught.value)
    assert caught.value.hint


def test_a_model_that_changes_an_object_that_it_gets_is_refused(models: ModuleType) -> None:
    with pytest.raises(SpecError, match="Boxed changes the Box that it gets"):
        advised(models.Boxed(), models.Box())


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (
            lambda out: out,
            "the loss must be one number that depends on the parameters, got a tensor",
        ),
        (lambda _: 3.0, "the loss must be one number that depends on the parameters, got float"),
        (lambda out: out.sum().detach(), "the loss must be one number that depends on"),
        (lambda out: out.nothing, "Linear raised AttributeError on its inputs"),
    ],
)
def test_a_loss_that_is_none_is_refused(loss: Callable[[Any], Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        advised(torch.nn.Linear(4, 4), torch.randn(2, 4), train=True, loss=loss)


def test_a_model_without_parameters_has_no_training_step(models: ModuleType) -> None:
    with pytest.raises(SpecError, match="no parameter requires a gradient"):
        advised(models.Impure(), torch.randn(2, 4), train=True)
    detached = torch.nn.Sequential(torch.nn.Linear(4, 4), models.Detach())
    with pytest.raises(SpecError, match="no output depends on a parameter"):
        advised(detached, torch.randn(2, 4), train=True)


@pytest.mark.usefixtures("quick")
def test_the_command_takes_a_loss_and_times_a_training_step(
    models: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    losses: list[float] = []

    def loss(output: torch.Tensor) -> torch.Tensor:
        losses.append(float(output.detach().sum()))
        return output.square().mean()

    vars(models)["made"] = lambda: (torch.nn.Linear(4, 4), (torch.randn(2, 4),), loss)
    monkeypatch.setattr("ivhl.surgical.__main__.choose_cache_folder", lambda: None)
    monkeypatch.setattr(sys, "path", list(sys.path))
    n_threads = torch.get_num_threads()
    try:
        assert main(["advise", "my_models:made", "--train"]) == 0
    finally:
        torch.set_num_threads(n_threads)
    assert losses
    assert "a training step takes" in capsys.readouterr().out
