"""Which parts of a model are worth compiling: what is measured, chosen, printed and refused."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
import torch
from torch import nn

from ivhl.measure.models import Held
from ivhl.measure.timing import Schedule
from ivhl.records.record import Interval
from ivhl.surgical import advice
from ivhl.surgical.__main__ import advice_of, lines_of, main
from ivhl.surgical.advice import ModelAdvice, PartAdvice, _choose, advise_parts
from ivhl.surgical.judging import ModelStep, PartOutcome, mistake
from ivhl.surgical.parts import Part, find_parts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning")

SHORT = Schedule(block_s=0.001, total_s=0.02, min_rounds=4, max_rounds=4)


class Ladder(nn.Module):  # type: ignore[misc]
    """Many pointwise operations: worth compiling."""

    def forward(self, x: torch.Tensor, *, times: int = 1) -> torch.Tensor:
        """Return the numbers, changed step by step."""
        for _ in range(12 * times):
            x = torch.sin(x) + 0.1 * x
        return x


class Pair(nn.Module):  # type: ignore[misc]
    """A part with parts inside."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.ladder = nn.Linear(16, 16), Ladder()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what both parts make of the numbers."""
        return self.ladder(self.linear(x), times=1)


class Model(nn.Module):  # type: ignore[misc]
    """Two pairs, and an activation that writes into its input."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs = nn.Sequential(Pair(), Pair())
        self.last = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what all parts make of the numbers."""
        return self.last(self.pairs(x))


def ratio(low: float, high: float) -> Interval:
    return Interval(value=(low + high) / 2, low=low, high=high, confidence=0.95, n=9)


def part(name: str, eager_s: float, low: float, high: float, **options: Any) -> PartAdvice:  # noqa: ANN401
    return PartAdvice(
        name=name, n_modules=1, n_calls=1, eager_s=eager_s, speedup=ratio(low, high), **options
    )


def parts_of(model: nn.Module, *inputs: Any) -> dict[str, Part]:  # noqa: ANN401
    with torch.no_grad():
        return find_parts(model, lambda: model(*inputs), 0.01).parts


def test_each_module_that_is_called_is_a_call_of_its_class_with_what_it_was_given() -> None:
    x = torch.randn(4, 16)
    parts = parts_of(Model(), x)
    assert {name: len(part.calls) for name, part in parts.items()} == {
        "Sequential": 1, "Pair": 2, "Linear": 2, "Ladder": 2, "ReLU": 1
    }  # fmt: skip
    assert torch.equal(parts["Pair"].calls[0].arguments[0], x)
    assert parts["Ladder"].calls[0].named == {"times": 1}
    # What a module overwrites afterwards is kept as it was.
    assert bool((parts["ReLU"].calls[0].arguments[0] < 0.0).any())


def test_two_classes_of_one_name_are_two_parts() -> None:
    other = type("Linear", (nn.Identity,), {"__module__": "elsewhere"})
    parts = parts_of(nn.Sequential(nn.Linear(4, 4), other()), torch.randn(2, 4))
    assert sorted(parts) == ["elsewhere.Linear", "torch.nn.modules.linear.Linear"]


def test_one_tensor_that_is_given_twice_is_one_in_each_copy() -> None:
    class Same(nn.Module):  # type: ignore[misc]
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a.sin() + b if a is b else a.cos()

    x = torch.randn(3, 4)
    step = ModelStep(Same(), (x, x), train=False, loss=None)
    for other in (step.copied(Same()), step.in_float64()):
        assert torch.allclose(step().output, other().output.float())


def test_a_class_that_no_code_can_name_is_compared_by_its_text() -> None:
    class Local(nn.Identity):  # type: ignore[misc]
        pass

    model = nn.Sequential(nn.Linear(4, 4), Local(), Local())
    parts = parts_of(model, torch.randn(2, 4))
    code = "\n".join(parts["Local"].code)
    assert "<locals>" in code
    exec(code, {"model": model})  # noqa: S102  (what the user is told to write)
    exec("\n".join(parts["Linear"].code), {"model": model})  # noqa: S102
    assert all(module._compiled_call_impl for module in model)


def test_the_parts_that_save_most_are_chosen_and_none_inside_another() -> None:
    found = parts_of(Model(), torch.randn(4, 16))

    def chosen(*parts: PartAdvice) -> list[str]:
        return _choose(parts, found)

    ladder = part("Ladder", 2.0, 1.9, 2.1)
    assert chosen(part("Linear", 1.0, 1.01, 1.1), ladder) == ["Ladder", "Linear"]
    # A pair has a ladder in it: the one that saves more is taken.
    assert chosen(part("Pair", 3.0, 1.9, 2.1), ladder) == ["Pair"]
    assert chosen(part("Pair", 3.0, 1.05, 1.15), ladder) == ["Ladder"]
    # What other runs may find slower is not taken, nor what could not be compiled.
    assert chosen(part("Linear", 9.0, 0.99, 1.5)) == []
    assert (
        chosen(PartAdvice(name="ReLU", n_modules=1, n_calls=1, eager_s=1.0, failure="wrong")) == []
    )


def test_masks_with_the_smallest_number_of_a_dtype_are_not_wrong() -> None:
    masked = torch.arange(8.0) > 4.0
    scores = torch.randn(8)
    eager = scores.masked_fill(masked, torch.finfo(torch.float32).min)
    exact = scores.double().masked_fill(masked, torch.finfo(torch.float64).min)

    def judged(compiled: torch.Tensor) -> str:
        return mistake([PartOutcome(eager)], [PartOutcome(compiled)], [PartOutcome(exact)])

    assert judged(eager.clone()) == ""
    # What another number has there, or a wrong score beside a mask, is.
    unmasked = torch.where(torch.arange(8) == 7, 0.0, eager)
    assert judged(unmasked) == "not judged: eager's output is not finite"
    off = torch.where(masked, eager, eager + 0.1)
    assert judged(off).startswith("wrong: output has RMSE 7.9e-02, allowed ")


def test_a_model_is_measured_part_by_part_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile by a backend that saves the ladder's time, without the seconds of Inductor."""
    tried: list[int] = []

    def shorter(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:  # noqa: ANN401
        tried.append(len(graph.graph.nodes))
        return graph.forward  # type: ignore[no-any-return]

    usual = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **_: usual(f, backend=shorter))
    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(64, 16)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    said: list[str] = []
    found = advise_parts(model, (x,), schedule=SHORT, say=said.append)
    assert said[-1].startswith("the model, with ")
    assert {one.name for one in found.parts} == {"Sequential", "Pair", "Linear", "Ladder", "ReLU"}
    assert tried
    assert found.whole is not None
    assert found.failures == ()
    assert found.again.low <= found.again.value <= found.again.high
    ladder = next(one for one in found.parts if one.name == "Ladder")
    assert ladder.n_modules == 2
    assert 0.0 < ladder.share < 1.5
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(
        hasattr(one, "_compiled_call_impl") and one._compiled_call_impl for one in model.modules()
    )


def bench_of(model: nn.Module, *inputs: Any, train: bool = False) -> advice._Bench:  # noqa: ANN401
    step = ModelStep(model, inputs, train=train, loss=None)
    subject = advice._Advised(step, Held(model, None))
    return advice._Bench("cpu", SHORT, train=train, subject=subject)


def test_a_part_that_compiles_to_something_wrong_or_not_at_all_is_no_candidate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, x = Model(), torch.randn(64, 16)
    bench = bench_of(model, x)
    ladder = parts_of(model, x)["Ladder"]

    def measured(model_s: float) -> PartAdvice:
        with torch.no_grad():
            return advice._measure_part(ladder, bench, model_s)

    monkeypatch.setattr(torch, "compile", lambda call: lambda *given: 1.001 * call(*given))
    found = measured(1e-9)
    assert found.failure.startswith("wrong: output of call 1 has RMSE ")
    assert found.speedup is None

    def refuse(*_: Any) -> Any:  # noqa: ANN401
        raise RuntimeError("no compiler here\nand more")

    monkeypatch.setattr(torch, "compile", lambda _: refuse)
    assert measured(1e-9).failure == "RuntimeError: no compiler here"
    assert measured(1e9).failure == "takes less than 1%: not tried"


@pytest.mark.parametrize(
    ("chosen", "whole", "over", "says"),
    [
        ((1.2, 1.3), (1.5, 1.6), (0.8, 0.9), "Compile the model whole: model.compile()"),
        ((1.5, 1.6), (1.2, 1.3), (1.2, 1.3), "Compile Ladder:"),
        ((1.2, 1.3), (1.2, 1.3), (0.9, 1.1), "no difference was shown between the two"),
        ((1.2, 1.3), None, None, "Compile Ladder:"),
        (None, (1.2, 1.3), None, "Compile the model whole: model.compile()"),
        ((0.9, 1.3), (0.8, 0.9), (1.0, 1.3), "Compile nothing: neither any part nor the whole"),
        (None, (0.9, 1.1), None, "Compile nothing: neither any part nor the whole"),
    ],
)
def test_the_conclusion_follows_from_the_intervals(
    chosen: tuple[float, float] | None,
    whole: tuple[float, float] | None,
    over: tuple[float, float] | None,
    says: str,
) -> None:
    found = ModelAdvice(
        model="Model",
        is_random=False,
        train=False,
        eager_s=0.002,
        parts=(part("Ladder", 0.001, 1.9, 2.1, chosen=chosen is not None, code=("compile it",)),),
        again=ratio(0.99, 1.01),
        chosen=chosen and ratio(*chosen),
        whole=whole and ratio(*whole),
        chosen_over_whole=over and ratio(*over),
        failures=(),
    )
    sentence, *code = advice_of(found)
    assert says in sentence
    assert code == (["    compile it"] if "Ladder" in sentence else [])
    text = "\n".join(lines_of(replace(found, failures=("whole: broke",)), "somewhere"))
    assert "Model on somewhere" in text
    assert "2.00x [1.90, 2.10]" in text
    assert "whole: broke" in text


def test_parts_that_are_too_short_are_counted_and_nothing_is_compiled() -> None:
    short = PartAdvice(
        name="ReLU", n_modules=1, n_calls=1, eager_s=1e-6, share=0.004, failure=advice.TOO_SHORT
    )
    found = ModelAdvice(
        model="Model",
        is_random=False,
        train=False,
        eager_s=0.002,
        parts=(short, replace(short, name="Linear")),
        again=ratio(0.99, 1.01),
        chosen=None,
        whole=ratio(0.9, 1.1),
        chosen_over_whole=None,
        failures=(),
    )
    lines = lines_of(found, "here")
    assert "2 parts below 1%: not tried" in lines
    assert not any(line.startswith("ReLU") for line in lines)
    assert lines[-1].startswith("Compile nothing")


SOURCE = """
import torch
from torch import nn
def model(): return nn.Linear(4, 4), (torch.ones(2, 4),)
def broken(): raise KeyError("weights")
def one(): return nn.Linear(4, 4)
def listed(): return nn.Linear(4, 4), [torch.ones(2, 4)]
def unnamed(): return nn.Linear(4, 4), {0: torch.ones(2, 4)}
def misfit(): return nn.Linear(4, 4), (torch.ones(2, 5),)
def meta(): return nn.Linear(4, 4, device="meta"), (torch.ones(2, 4),)
def ends(): raise SystemExit(3)
@torch.inference_mode()
def frozen(): return nn.Linear(4, 4), (torch.ones(2, 4),)
def wrapped(): return torch.compile(nn.Linear(4, 4)), (torch.ones(2, 4),)
def inside():
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].compile()
    return model, (torch.ones(2, 4),)
def scripted(): return torch.jit.script(nn.Linear(4, 4)), (torch.ones(2, 4),)
number = 3
class Late(nn.Linear):
    calls = 0
    def forward(self, x):
        self.calls += 1
        if self.calls > 4:
            raise RuntimeError("after four calls")
        return super().forward(x)
def late(): return Late(4, 4), (torch.ones(2, 4),)
"""


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("my_models", "'my_models' is not of the form 'package.module:function'"),
        ("no_such:model", "'no_such' does not import: ModuleNotFoundError"),
        ("my_exit:model", "'my_exit' does not import"),
        ("my_models:nothing", "module 'my_models' has no 'nothing'"),
        ("my_models:number", "module 'my_models' has no function 'number'"),
        ("my_models:broken", "my_models:broken raised KeyError: 'weights'"),
        ("my_models:meta", "my_models:meta returns a model on the device meta"),
        ("my_models:scripted", "my_models:scripted returns a TorchScript module"),
        ("my_models:frozen", "my_models:frozen returns a model that was made in inference mode"),
        ("my_models:ends", "my_models:ends calls sys.exit(3)"),
        ("my_models:wrapped", "returns a model that is compiled already: the model; it would be"),
        ("my_models:inside", "returns a model that is compiled already: 0; it would be timed"),
        ("my_models:one", "must return a torch.nn.Module and its inputs, got Linear"),
        ("my_models:listed", "must return the inputs as a tuple, or as a dictionary of keyword"),
        ("my_models:unnamed", "the names of keyword arguments must be text, got 0"),
        ("my_models:misfit", "Linear raised RuntimeError on its inputs: "),
        ("my_models:late", "Late raised RuntimeError on its inputs: after four calls"),
    ],
)
def test_what_is_no_model_is_refused_in_a_sentence_with_a_next_step(
    given: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "my_models.py").write_text(SOURCE)
    (tmp_path / "my_exit.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_models", raising=False)
    n_threads = torch.get_num_threads()
    try:
        assert main(["advise", given]) == 2
    finally:
        torch.set_num_threads(n_threads)
    told = capsys.readouterr().err
    assert says in told.splitlines()[0]
    assert told.splitlines()[1].startswith("next: ")
    assert "Traceback" not in told


@pytest.mark.parametrize("as_json", [False, True])
def test_a_model_that_is_named_is_measured_and_printed(
    as_json: bool,  # noqa: FBT001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "my_models.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_models", raising=False)
    monkeypatch.setattr("ivhl.surgical.__main__.choose_cache_folder", lambda: None)
    n_threads = torch.get_num_threads()
    usual = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **_: usual(f, backend="eager"))
    try:
        assert main(["advise", "my_models:model", *(["--json"] if as_json else [])]) == 0
    finally:
        torch.set_num_threads(n_threads)
    told = capsys.readouterr().out
    if as_json:
        found = json.loads(told)
        assert found["model"] == "Linear"
        assert found["parts"] == []
    else:
        assert told.startswith("Linear on PyTorch ")
        assert "Compile " in told.splitlines()[-1]
