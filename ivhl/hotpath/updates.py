"""Compiled optimizer steps, of which most need not ask Dynamo whether their graph still holds.

Dynamo compares at each call all that its trace has read. What a step of
PyTorch's own optimizers depends on is known: hyperparameters, which the key of a region has, and
tensors, which are compared here, in C++. If one of them is another, Dynamo decides as ever.
"""

from __future__ import annotations

import weakref
from operator import is_
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
import torch._inductor
from torch._C._dynamo.guards import GlobalStateGuard, TensorGuards
from torch.utils.weak import WeakIdKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ivhl.compile import Mode

# Their steps read and write nothing but groups of parameters and state. Those of other classes,
# also of classes derived from these, may do anything.
_KNOWN: Final = frozenset(
    getattr(torch.optim, name)
    for name in (
        *("SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax"),
        *("Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD"),
    )
)
_MOST_TRIES: Final = 3


class StepGraph:
    """Inductor, which keeps the graph that an optimizer's step runs.

    Keeps no optimizer alive: Dynamo has what it compiled for as long as the code of the step lives,
    and that is in the optimizer itself.

    Args:
        optimizer: Whose step is compiled.
        mode: Of ``torch.compile``.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, mode: Mode) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._mode = mode
        self._ran: list[tuple[Callable[..., Any], tuple[Any, ...], Any]] = []
        self._before: Callable[..., Any] | None = None
        self._kept: _KeptGraph | None = None
        self._tries = _MOST_TRIES if type(optimizer) in _KNOWN else 0
        self._named: Any = WeakIdKeyDictionary()
        self._is_renamed = False

    def backend(self) -> Callable[..., Any]:
        """Return a backend of ``torch.compile``, of which Dynamo keeps each for ever."""
        mode, own = self._mode, weakref.ref(self)

        def compile_step(
            module: torch.fx.GraphModule, inputs: Sequence[torch.Tensor], **_: Any
        ) -> Any:
            options = torch._inductor.list_mode_options(mode)  # noqa: SLF001  (public, by its documentation)
            graph = torch._inductor.compile(module, list(inputs), options=options)  # noqa: SLF001

            def run(*args: Any) -> Any:
                results = graph(*args)
                steps = own()
                if steps is not None and steps._tries:  # noqa: SLF001  (its own)
                    steps._ran.append((graph, args, results))  # noqa: SLF001
                return results

            return run

        return compile_step

    def step(self, key: Any, through_dynamo: Callable[[], Any]) -> bool:
        """Make a step, with gradient mode off; return whether it was made.

        It is not made where tensors share memory, nor after state got its names in another order:
        torch.compile of PyTorch 2.15.0 may then be wrong without a word (docs/findings.md).

        Args:
            key: Hyperparameters of the step.
            through_dynamo: The compiled step with its guards.
        """
        optimizer = self._optimizer()
        assert optimizer is not None  # noqa: S101  (it makes this step)
        kept = self._kept
        if kept is not None and kept.key == key and kept.run(optimizer):
            return True
        self._kept = None
        tensors = _StepTensors.of(optimizer)
        if not _are_apart(tensors.every) or self._has_other_names(optimizer):
            return False
        try:
            through_dynamo()
            if self._tries:
                self._keep(optimizer, key)
        finally:
            self._ran.clear()  # no gradient lives longer for this
        return True

    def _has_other_names(self, optimizer: torch.optim.Optimizer) -> bool:
        """Return whether the state of a parameter was once named in another order."""
        for param, values in optimizer.state.items():
            names = tuple(values)
            if names and self._named.setdefault(param, names) != names:
                self._is_renamed = True
        return self._is_renamed

    def _keep(self, optimizer: torch.optim.Optimizer, key: Any) -> None:
        """Keep the graph that has just run, once Dynamo has chosen it twice in a row."""
        graph = self._ran[0][0] if len(self._ran) == 1 else None
        is_again = graph is not None and graph is self._before
        self._before = graph
        if is_again:
            self._kept = _KeptGraph.of(optimizer, key, self._ran[0])
            self._tries -= self._kept is None


class _StepTensors(NamedTuple):
    """What a step of one of PyTorch's own optimizers reads and writes.

    Attributes:
        fixed: Parameters, and all that their state holds.
        gradients: Of the parameters; ``None`` where there is none.
        owners: The parameters that have state, in its order.
        names: What their state is called.
    """

    fixed: list[Any]
    gradients: list[Any]
    owners: list[Any]
    names: list[Any]

    @classmethod
    def of(cls, optimizer: torch.optim.Optimizer) -> _StepTensors:
        """Return those of an optimizer; no parameter is looked up, since each hash takes long."""
        params = [one for group in optimizer.param_groups for one in group["params"]]
        values: list[Any] = []
        names: list[Any] = []
        for state in optimizer.state.values():
            values += state.values()
            names += state
        return cls(params + values, [one.grad for one in params], [*optimizer.state], names)

    @property
    def every(self) -> list[Any]:
        """Gradients, and what is fixed."""
        return self.gradients + self.fixed


class _KeptGraph:
    """A graph that was a whole step, with what it holds for.

    Attributes:
        key: Hyperparameters.
    """

    def __init__(
        self, graph: Callable[..., Any], key: Any, tensors: _StepTensors, places: list[int]
    ) -> None:
        self.key = key
        self._graph = graph
        self._tensors = tensors._replace(gradients=[])  # which need not live so long
        self._guard = TensorGuards(
            *tensors.every, dynamic_dims_sizes=None, dynamic_dims_strides=None
        )
        self._settings = GlobalStateGuard()
        self._places = places

    @classmethod
    def of(
        cls, optimizer: torch.optim.Optimizer, key: Any, ran: tuple[Any, Any, Any]
    ) -> _KeptGraph | None:
        """Return the one graph that ran in a step through Dynamo, to be kept, or ``None``.

        It is not kept if it returned something, which the program has to assign, or took something
        other than gradients, parameters and state.
        """
        graph, args, results = ran
        if results:
            return None
        tensors = _StepTensors.of(optimizer)
        every = tensors.every
        if any(not isinstance(one, torch.Tensor) for one in every):
            return None
        if any(
            isinstance(one, torch.Tensor)
            for group in optimizer.param_groups
            for one in group.values()
        ):
            return None  # a learning rate in a tensor
        numbers = {id(one): place for place, one in enumerate(every)}
        if any(id(one) not in numbers for one in args):
            return None
        return cls(graph, key, tensors, [numbers[id(one)] for one in args])

    def run(self, optimizer: torch.optim.Optimizer) -> bool:
        """Make the step if all is as it was; return whether it was made."""
        before, now = self._tensors, _StepTensors.of(optimizer)
        if (
            len(now.fixed) != len(before.fixed)
            or len(now.owners) != len(before.owners)
            or not all(map(is_, now.fixed, before.fixed))
            or not all(map(is_, now.owners, before.owners))
            or now.names != before.names
        ):
            return False
        every = now.every
        if not (self._guard.check(*every) and self._settings.check()):
            return False
        if len({one.data_ptr() for one in every}) < len(every):
            return False
        self._graph(*[every[place] for place in self._places])
        return True


def _are_apart(values: list[Any]) -> bool:
    """Return whether no two tensors begin at the same place in memory."""
    places = [
        one.data_ptr()
        for one in values
        if isinstance(one, torch.Tensor) and one.layout is torch.strided and one.numel()
    ]
    return len(set(places)) == len(places)
