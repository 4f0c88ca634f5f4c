"""The state of a model is put back before a call and read after it; outputs are taken apart."""

from __future__ import annotations

import copy
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch", reason="torch is only in the cells")

from ivhl.measure.accuracy import (  # noqa: E402  (torch first)
    _error_of_move,
    eager_is_sound,
    judge_eager,
    scales_of,
)
from ivhl.measure.exact import Exact  # noqa: E402
from ivhl.measure.leaves import Opaque, difference, leaves_of  # noqa: E402  (torch first)
from ivhl.measure.models import Held, Loss, cast_model, default_call, held_copy  # noqa: E402
from ivhl.measure.subject import Subject  # noqa: E402
from ivhl.workload import Workload, load_workloads, select_cases  # noqa: E402
from tests.e2e import models_calls as calls  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.records.record import Passes

CPU = torch.device("cpu")
MAKERS = [
    "convolutions",
    "block_with_dropout",
    "branching",
    "remembering",
    "complex",
    "perceptron",
]


def inputs_of(maker: str, seed: int = 0) -> tuple[Any, ...]:
    make = calls.make_image if maker == "convolutions" else calls.make_sequence
    inputs = make(2, torch.Generator().manual_seed(seed))
    return tuple(x.float() if x.is_floating_point() else x for x in inputs)


def held(maker: str, **more: Any) -> Held:  # noqa: ANN401
    torch.manual_seed(1)
    model = getattr(calls, f"make_{maker}")(0)
    more = {"dtype": torch.float32, "device": CPU} | more
    return held_copy(model, more.pop("make_optimizer", None), **more)


def train(one: Held, inputs: tuple[Any, ...]) -> Any:  # noqa: ANN401
    trained = any(p.requires_grad for p in one.model.parameters())
    passes: Passes = "forward"
    if trained:
        passes = "step" if one.optimizer else "backward"
    return default_call(passes, None)(*one.arguments, *inputs)


def test_only_state_that_a_call_changes_is_copied() -> None:
    one = held("convolutions")
    one.model.train()
    one.keep()
    one.model(*inputs_of("convolutions"))
    read = one.copied(one.state())
    start, now = one.started(), one.state()
    same = {path for path, tensor in read.tensors.items() if tensor is start.get(path)}
    assert {path for path in start if "running" not in path and "tracked" not in path} == same
    assert not same & {path for path in read.tensors if "running" in path}
    assert list(read.tensors) == list(now.tensors)
    assert all(torch.equal(read.tensors[path], tensor) for path, tensor in now.tensors.items())
    changed = next(path for path in read.tensors if path.endswith("running_mean"))
    before = read.tensors[changed].clone()
    one.model(*inputs_of("convolutions", 1))
    one.restore()
    assert torch.equal(read.tensors[changed], before)


@pytest.mark.parametrize("optimizer", ["make_adam", None])
@pytest.mark.parametrize("maker", MAKERS)
def test_every_call_begins_from_the_same_state(maker: str, optimizer: str | None) -> None:
    if maker == "remembering":
        optimizer = None
    one = held(maker, make_optimizer=getattr(calls, optimizer) if optimizer else None)
    inputs = inputs_of(maker)
    if optimizer:
        train(one, inputs)
        one.keep()
    one.restore()
    start = one.state().copied()
    found = []
    for _ in range(2):
        torch.manual_seed(7)
        train(one, inputs)
        found.append(one.state().copied())
        one.restore()
        again = one.state()
        assert difference(start, again) is None
        assert all(torch.equal(again.tensors[path], t) for path, t in start.tensors.items())
    first, second = found
    assert difference(first, second) is None
    for path, tensor in first.tensors.items():
        assert torch.equal(tensor, second.tensors[path]), path


def test_an_optimizer_is_copied_with_its_state() -> None:
    one = held("perceptron", make_optimizer=calls.make_adam)
    train(one, inputs_of("perceptron"))
    one.keep()
    two = held_copy(one.model, calls.make_adam, dtype=torch.float64, device=CPU, like=one)
    assert two.optimizer is not one.optimizer
    mine, theirs = one.started(), two.started()
    assert list(mine) == list(theirs)
    assert "optimizer.exp_avg_sq.0.weight" in mine
    for path, tensor in mine.items():
        assert torch.equal(theirs[path], tensor.to(theirs[path].dtype)), path
        assert tensor.data_ptr() != theirs[path].data_ptr()
    train(one, inputs_of("perceptron", 1))
    assert all(torch.equal(theirs[path], tensor) for path, tensor in two.started().items())


def test_a_precision_holds_for_all_tensors_and_ties_are_kept() -> None:
    language = cast_model(calls.make_language(0), torch.float64, CPU)
    assert language.head.weight is language.embed.weight
    assert {p.dtype for p in language.parameters()} == {torch.float64}
    assert cast_model(calls.make_complex(0), torch.float64, CPU).weight.dtype == torch.complex128
    remembering = cast_model(calls.make_remembering(0), torch.float64, CPU)
    assert remembering.scale.dtype == remembering.mean.dtype == torch.float64
    counted = cast_model(calls.make_convolutions(0), torch.float64, CPU)
    assert counted.layers[1].num_batches_tracked.dtype == torch.int64


def test_tied_weights_are_one_part_of_the_state() -> None:
    one = held("language")
    names = [path for path in one.state().tensors if path.startswith("model.")]
    assert "model.embed.weight" in names
    assert "model.head.weight" not in names


@pytest.mark.parametrize("maker", ["block_with_dropout", "complex", "branching"])
def test_the_loss_of_a_normalised_output_has_a_gradient(maker: str) -> None:
    one = held(maker)
    train(one, inputs_of(maker))
    assert all(float(p.grad.abs().max()) > 1e-6 for p in one.model.parameters())


def test_a_model_with_a_loss_of_its_own_is_trained_on_that() -> None:
    value = torch.ones((), requires_grad=True)
    loss = Loss()
    assert loss(value) is not None
    assert loss({"loss": 2 * value, "other": value}) == 2
    assert loss(calls.Output(logits=value, loss=3 * value)) == 3
    with pytest.raises(ValueError, match="passes='forward'"):
        loss(torch.ones(3))


def test_a_loss_gets_the_last_input_which_the_model_does_not() -> None:
    one = held("convolutions")
    (x,) = inputs_of("convolutions")
    labels = torch.tensor([1, 3])
    call = default_call("backward", torch.nn.functional.cross_entropy)
    passed = call(one.model, x, labels)
    assert torch.equal(passed.loss, torch.nn.functional.cross_entropy(passed.output, labels))
    named = call(one.model, x=x, labels=labels)
    assert named.output.shape == (2, 5)


OUTPUTS = calls.Output(
    logits=torch.ones(2),
    hidden=(calls.Hidden(torch.zeros(3), 7),),
    info={"n": 2, "name": "x", "mean": 0.5, "parts": [torch.arange(2), None]},
)


def test_each_leaf_has_the_path_that_leads_to_it() -> None:
    found = leaves_of(OUTPUTS)
    assert list(found.tensors) == [
        "output.logits",
        "output.hidden[0].first",
        "output.info['mean']",
        "output.info['parts'][0]",
    ]
    assert found.others == {
        "output.loss": None,
        "output.hidden[0].length": 7,
        "output.info['n']": 2,
        "output.info['name']": "x",
        "output.info['parts'][1]": None,
    }


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"loss": torch.ones(2)}, "output.loss is a tensor of shape (2,) float32, eager's is None"),
        ({"logits": torch.ones(3)}, "output.logits is a tensor of shape (3,) float32, eager's is"),
        ({"logits": torch.ones(2).int()}, "output.logits is a tensor of shape (2,) int32"),
        ({"hidden": ()}, "output.hidden[0].first is missing"),
        ({"hidden": (calls.Hidden(torch.zeros(3), 8),)}, "output.hidden[0].length is 8"),
        ({"info": None}, "output.info['mean'] is missing"),
    ],
)  # fmt: skip
def test_a_difference_is_named_by_its_path(change: dict[str, Any], says: str) -> None:
    other = copy.copy(OUTPUTS)
    for name, value in change.items():
        setattr(other, name, value)
    assert difference(leaves_of(OUTPUTS), leaves_of(OUTPUTS)) is None
    assert (difference(leaves_of(OUTPUTS), leaves_of(other)) or "").startswith(says)


def test_a_subclass_of_tensor_is_compared_by_its_values() -> None:
    tagged = torch.ones(2).as_subclass(calls.Tagged)
    found = leaves_of({"x": tagged})
    assert type(found.tensors["output['x']"]) is torch.Tensor
    assert found.types == {"output['x']": calls.Tagged}


def test_an_object_is_taken_apart_by_its_attributes_even_if_it_holds_itself() -> None:
    class Cache:
        def __init__(self) -> None:
            self.keys, self.itself, self.n = [torch.ones(1)], self, 3

    found = leaves_of(Cache())
    assert list(found.tensors) == ["output.keys[0]"]
    assert found.others["output.n"] == 3


class Slotted:
    """Has no dictionary of attributes."""

    __slots__ = ("y",)

    def __init__(self, y: Any) -> None:  # noqa: ANN401
        self.y = y


class Called(Slotted):
    """Can be called, and has an attribute beside its slot."""

    def __init__(self, y: Any) -> None:  # noqa: ANN401
        super().__init__(2)
        self.more = y

    def __call__(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("holds", "path"),
    [
        (lambda y: deque([y]), "output[0]"),
        (lambda y: {"a": y}.values(), "output[0]"),
        (lambda y: OrderedDict(a=y).items(), "output[0][1]"),
        (Slotted, "output.y"),
        (Called, "output.more"),
        (lambda y: torch.nn.ParameterList([y]), "output.0"),
        (lambda y: torch.nn.Sequential(torch.nn.ParameterDict({"a": y})), "output.0.a"),
    ],
)
def test_tensors_are_found_in_containers_and_in_objects_with_slots_or_a_call(
    holds: Any,  # noqa: ANN401
    path: str,
) -> None:
    y = torch.nn.Parameter(torch.ones(2))
    assert leaves_of(holds(y)).tensors[path] is y


def test_what_cannot_be_taken_apart_is_marked() -> None:
    outputs: Any = (iter([1]), (n for n in "a"), len, [], set(), torch.nn.ReLU(), "text")
    others = leaves_of(outputs).others
    marked = [path for path, value in others.items() if isinstance(value, Opaque)]
    assert marked == ["output[0]", "output[1]", "output[2]"]
    assert others["output[1]"] == "generator"


def test_a_dataclass_is_taken_apart_even_if_it_can_be_called() -> None:
    """Dynamo of 2.6.0 gives the output classes of diffusers, which it traces, a `__call__`."""

    @dataclass
    class Output(OrderedDict):  # type: ignore[type-arg]  # as model libraries have them
        sample: Any

        def __post_init__(self) -> None:
            self["sample"] = self.sample

        __call__ = len

    assert [*leaves_of(Output(torch.ones(2))).tensors] == ["output.sample"]
    assert leaves_of(Output).others == {"output": "type"}


def test_the_workloads_with_models_are_declared_without_mistakes() -> None:
    assert load_workloads("tests.e2e.models:WORKLOADS")


def test_a_loss_that_cancels_may_be_as_far_off_as_the_outputs_that_it_sums() -> None:
    scales = {}
    for name in ("good.block", "good.cnn_step"):  # the harness's own loss, and cross entropy
        (case,) = select_cases(load_workloads("tests.e2e.models:WORKLOADS"), names=[name])
        exact = {
            "output": torch.tensor([3.0, -3.0], dtype=torch.float64),
            "loss": torch.tensor(1e-6, dtype=torch.float64),
        }
        eager = {path: tensor.float() for path, tensor in exact.items()}
        scales[name] = scales_of(case.workload, eager, exact, {})[1]
    assert (scales["good.block"].tolerance, scales["good.block"].rounding) == (3.0, 3.0)
    assert (scales["good.cnn_step"].tolerance, scales["good.cnn_step"].rounding) == (1e-6, 1e-6)


@pytest.mark.parametrize("layers", [1, 2])
def test_a_running_mean_that_is_exactly_zero_may_be_rounded_and_no_more(layers: int) -> None:
    (case,) = select_cases(load_workloads("tests.e2e.models:WORKLOADS"), names=["good.block"])
    norm, x = torch.nn.BatchNorm2d, torch.randn(4, 8, 8, 8)
    first = [torch.nn.Conv2d(8, 8, 3), norm(8), torch.nn.Conv2d(8, 8, 1, bias=False)]
    model = torch.nn.Sequential(*(first if layers > 1 else []), norm(8))
    twin = copy.deepcopy(model).double()
    if layers == 1:  # as of a layer that takes the mean away itself
        x -= x.mean((0, 2, 3), keepdim=True)
    model(x), twin(x.double() - (x.double().mean((0, 2, 3), keepdim=True) if layers == 1 else 0))
    eager, exact = (
        {f"model.{name}": buffer for name, buffer in one.named_buffers()} for one in (model, twin)
    )
    path = f"model.{len(model) - 1}.running_mean"
    assert exact[path].abs().max() < 1e-15 < eager[path].std()
    scales = scales_of(case.workload, eager, exact, {})
    for extra, sound in ((0.0, True), (1e-5, False)):
        off = eager | {path: eager[path] + extra}
        errors = judge_eager(list(exact), list(off.values()), list(exact.values()))
        assert all(map(eager_is_sound, errors, scales)) == sound


@pytest.mark.parametrize(("beside", "jumps"), [(2.0**-20, True), (0.5, False)])
def test_a_gradient_may_be_off_where_rounded_inputs_let_it_jump(
    beside: float,
    jumps: bool,  # noqa: FBT001  (a row)
) -> None:
    kink = Workload(
        name="kink",
        version=1,
        title="kink",
        sizes={"small": 1},
        default_size="small",
        make_model="tests.e2e.models_calls:make_kink",
        make_inputs="tests.e2e.models_calls:make_sequence",
    )
    (case,) = select_cases([kink])
    subject = Subject(case, dtype=torch.float32, variant_dtype=torch.float32, device=CPU, seed=1)
    inputs = (torch.tensor([[1.0, -1.0 + beside]]),)
    subject.make_models(1)
    runs = Exact(subject)
    exact = runs.reference_of(inputs).tensors
    eager = {path: tensor.float() for path, tensor in exact.items()}
    scales = scales_of(kink, eager, exact, runs.started())
    wider = runs.with_jumps(list(scales), inputs, list(exact.values()))
    number = list(exact).index("grad.weight")
    before, after = scales[number], wider[number]
    if jumps:
        # At most five hundredths of its largest value: what lets eager be the baseline.
        assert after.free == pytest.approx(0.05, rel=1e-3)
        assert after.largest > 1
    else:
        assert after.free < before.free + 1e-4
        assert after.largest < before.largest + 1e-4


def test_rounding_inputs_and_parameters_moves_a_loss_a_little_and_leaves_no_trace() -> None:
    (case,) = select_cases(load_workloads("tests.e2e.models:WORKLOADS"), names=["good.block"])
    subject = Subject(case, dtype=torch.float32, variant_dtype=torch.float32, device=CPU, seed=1)
    inputs = inputs_of("block")
    subject.make_models(2)
    subject.warm_up(inputs)
    runs = Exact(subject)
    references = runs.reference_of(inputs).tensors
    moves = runs.moves_of(inputs, references, 0)
    assert "loss" in moves
    assert all(references[path].numel() < 1000 for path in moves)
    size = float(references["output"].abs().max())
    several = [runs.moves_of(inputs, references, number)["loss"] for number in range(8)]
    # One of them may nearly cancel.
    assert 2.0**-26 * size < max(several) < 2.0**-16 * size
    assert moves == runs.moves_of(inputs, references, 0)
    assert moves != runs.moves_of(inputs, references, 1)
    again = runs.reference_of(inputs).tensors
    assert all(torch.equal(again[path], one) for path, one in references.items())


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
        lambda p: torch.optim.Adam(p, lr=1e-3),
        lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1),
        lambda p: torch.optim.NAdam(p, lr=1e-3),
        lambda p: torch.optim.RMSprop(p, lr=1e-3),
        lambda p: torch.optim.Adagrad(p, lr=1e-2),
    ],
)
def test_rounded_gradients_move_a_parameter_no_further_than_is_allowed(
    make: Callable[[list[Any]], Any],
) -> None:
    error = 1e-7
    for seed in range(50):
        draw = torch.Generator().manual_seed(seed)
        before, sign, shift = (
            torch.rand(8, dtype=torch.float64, generator=draw) for _ in range(3)
        )
        # Gradients below a few errors are noise, which `_share_of_noise` allows for.
        size = 4 * error * 10 ** (5 * torch.rand(8, dtype=torch.float64, generator=draw))
        gradient = torch.where(sign < 0.5, -size, size)
        moved = []
        for rounded in (gradient, gradient + error * (2 * shift - 1)):
            parameter = torch.nn.Parameter(before.clone())
            parameter.grad = rounded
            make([parameter]).step()
            moved.append(parameter.detach())
        off = float((moved[0] - moved[1]).square().mean().sqrt())
        # A step of RMSprop or Adagrad from an error of a quarter is not quite linear.
        assert off <= 1.5 * _error_of_move(moved[0], before, gradient, error)
