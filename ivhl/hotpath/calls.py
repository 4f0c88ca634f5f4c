"""What a call of PyTorch is: its operation, its wiring, and the facts of what it reads.

Two calls have the same key when they do the same to tensors of the same facts that come from the
same places. Keys form a tree (``Call``): a path from its root is a sequence.
"""

from __future__ import annotations

import functools
import hashlib
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from ivhl.hotpath.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ivhl.hotpath.sequence import HotSequence

    # From the arguments of a call, what was made and given before it, and the identities of what was
    # given: the tensors that are new, or ``None`` if it is another call.
    Match = Callable[
        [tuple[Any, ...], list[Pending], list[torch.Tensor], set[int]],
        tuple[torch.Tensor, ...] | None,
    ]

_TENSORS: Final = frozenset({torch.Tensor, torch.nn.Parameter, Pending})
CONSTANTS: Final = frozenset(
    {
        *(bool, int, str, type(None), type(...)),
        *(torch.dtype, torch.device, torch.memory_format, torch.layout),
    }
)


# Tells objects apart as ``id`` does, in a part of the time: what PyTorch imports to compile watches
# each call of ``id`` (docs/findings.md).
identity: Final = object.__hash__
_HAS_NAMES: Final = getattr(torch.Tensor, "has_names", None)  # gone from newer releases


class UndescribableError(Exception):
    """An argument that no key can hold; the call runs by itself."""


class Facts(NamedTuple):
    """What is known of a result before its value."""

    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]
    device: torch.device
    requires_grad: bool


def facts_of(tensor: torch.Tensor) -> Facts:
    """Return the facts of a tensor."""
    return Facts(tensor.dtype, tensor.shape, tensor.stride(), tensor.device, tensor.requires_grad)


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether facts say what a tensor is: not a sparse, nested, quantised or named one."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_quantized
        and not tensor.is_nested
        and not tensor._is_zerotensor()  # noqa: SLF001  (it has no memory)
        and not (_HAS_NAMES is not None and _HAS_NAMES(tensor))
    )


@dataclass(frozen=True, slots=True)
class Intermediate:
    """A tensor that an earlier call of the sequence made."""

    index: int


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor from outside of the sequence, numbered by its first use."""

    index: int


Role = Intermediate | Given


class Wiring:
    """Which tensors of a sequence are known so far, and as what.

    It holds no tensor: memory is free when it would be without us. An ``identity`` may come back
    after its tensor has died, so each entry is checked with a weak reference.
    """

    __slots__ = ("brought", "given", "made", "references", "roles", "tensors")

    def __init__(self) -> None:
        self.references: dict[int, weakref.ref[torch.Tensor]] = {}
        # In keys a role is a number, which costs less than an object: made 0, 1, ...; given -1, -2.
        self.roles: dict[int, int] = {}
        self.given: list[weakref.ref[torch.Tensor]] = []
        self.made = 0
        self.tensors = 0  # in the call that was described last
        self.brought: list[Any] = []  # facts and class of each that it brought from outside

    def role_of(self, tensor: torch.Tensor) -> Role | None:
        """Return what a tensor is in this sequence, or ``None``."""
        reference = self.references.get(identity(tensor))
        if reference is None or reference() is not tensor:
            return None
        number = self.roles[identity(tensor)]
        return Intermediate(number) if number >= 0 else Given(-1 - number)

    def add_made(self, tensor: torch.Tensor) -> None:
        """Number the next result."""
        number = identity(tensor)
        self.references[number] = weakref.ref(tensor)
        self.roles[number] = self.made
        self.made += 1

    def add_given(self, tensor: torch.Tensor) -> None:
        """Number the next tensor from outside."""
        number = identity(tensor)
        reference = self.references[number] = weakref.ref(tensor)
        self.given.append(reference)
        self.roles[number] = -len(self.given)

    def fits(  # noqa: C901, PLR0911  (one loop, at each call)
        self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        """Return whether ``describe`` would return the key of ``call``; number what is new if so.

        It makes no key, which costs less; ``False`` if this way cannot tell.
        """
        plan = call.plan
        if plan is None or len(plan) != len(args) + len(kwargs):
            return False
        values: Any = args
        if kwargs or call.names:
            if tuple(kwargs) != call.names:
                return False
            values = (*args, *kwargs.values())
        references, roles = self.references, self.roles
        new: list[torch.Tensor] = []
        for (kind, part), value in zip(plan, values, strict=True):
            if kind is Intermediate:
                number = identity(value)
                reference = references.get(number)
                if reference is None or reference() is not value or roles[number] != part:
                    return False
            elif kind is None:
                reference = references.get(identity(value))
                if reference is not None and reference() is value:
                    return False
                new.append(value)
            elif type(value) is not kind or value != part:
                return False
        if new:
            # In C++: class, dispatch keys, dtype, device, shape, strides, requires_grad; no doubles.
            if not call.guard.check(*new):
                return False
            for value in new:
                self.add_given(value)
        return True

    def describe(self, func: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, ...]:
        """Return the key of a call; number the tensors that it brings from outside.

        Raises:
            UndescribableError: If an argument is neither a tensor nor a constant.
        """
        self.tensors = 0
        self.brought = []
        leaf = self._leaf
        if kwargs:
            named = tuple([(name, leaf(value)) for name, value in kwargs.items()])
            return (func, *[leaf(one) for one in args], named)
        return (func, *[leaf(one) for one in args])

    def key_of(self, func: Callable[..., Any], tensors: tuple[torch.Tensor, ...]) -> Any:
        """Return the key of a call of nothing but tensors; number none.

        Raises:
            UndescribableError: If one is of a kind that no key can hold.
        """
        key: list[Any] = [func]
        for one in tensors:
            is_known = self.role_of(one) is not None
            key.append((self if is_known else Wiring())._leaf(one))  # noqa: SLF001
        return tuple(key)

    def _leaf(self, value: Any) -> Any:  # noqa: PLR0911  (one for each type)  # noqa: ANN401
        kind = type(value)
        if kind in _TENSORS:
            self.tensors += 1
            number = identity(value)
            reference = self.references.get(number)
            if reference is not None and reference() is value:
                return self.roles[number]
            return self._facts_of_given(value)
        if kind in CONSTANTS:
            return (kind, value)
        if kind is float:  # 0.0 == -0.0, and nan is not even itself
            is_plain = value < 0.0 or value > 0.0
            return (kind, value if is_plain else repr(value))
        if kind is tuple or kind is torch.Size:
            return (tuple, *[self._leaf(one) for one in value])
        if kind is list:
            return (list, *[self._leaf(one) for one in value])
        if kind is slice:
            return (slice, *[self._leaf(one) for one in (value.start, value.stop, value.step)])
        raise UndescribableError(f"an argument of type {kind.__name__}")

    def _facts_of_given(self, value: torch.Tensor) -> tuple[Any, ...]:
        """Return the part of a key for a tensor from outside, and number it."""
        dtype, kind = value.dtype, type(value)
        if dtype.is_complex or value.is_neg():
            raise UndescribableError("complex numbers are not compiled")
        if value.is_inference():
            raise UndescribableError("a tensor of inference mode is not compiled")
        if kind is Pending:
            raise UndescribableError("a tensor of another thread is not compiled")
        if not is_dense(value):
            raise UndescribableError(
                "sparse, nested, quantised and named tensors are not compiled"
            )
        self.add_given(value)
        facts = (dtype, value.shape, value.stride(), value.device, value.requires_grad, kind)
        self.brought.append(facts)
        return facts

    def template(self, value: Any) -> Any:
        """Return arguments with roles in the place of tensors; call ``describe`` before."""
        if isinstance(value, torch.Tensor):
            return self.role_of(value)
        if isinstance(value, tuple):
            return tuple([self.template(one) for one in value])
        if isinstance(value, list):
            return [self.template(one) for one in value]
        if isinstance(value, dict):
            return {name: self.template(one) for name, one in value.items()}
        if isinstance(value, slice):
            return slice(*[self.template(one) for one in (value.start, value.stop, value.step)])
        return value


def fill(template: Any, of_role: Callable[[Role], Any]) -> Any:
    """Return arguments with a value in the place of each role."""
    if isinstance(template, Intermediate | Given):
        return of_role(template)
    if isinstance(template, tuple):
        return tuple([fill(one, of_role) for one in template])
    if isinstance(template, list):
        return [fill(one, of_role) for one in template]
    if isinstance(template, dict):
        return {name: fill(one, of_role) for name, one in template.items()}
    if isinstance(template, slice):
        return slice(
            *[fill(one, of_role) for one in (template.start, template.stop, template.step)]
        )
    return template


def roles_in(template: Any) -> list[Role]:
    """Return the roles in arguments, in their order."""
    found: list[Role] = []

    def note(role: Role) -> Role:
        found.append(role)
        return role

    fill(template, note)
    return found


@dataclass(frozen=True, slots=True)
class Result:
    """A tensor that a call returns.

    Attributes:
        role: What it is in the sequence from now on.
        is_new: Whether the call makes it; else it is one of its arguments.
        facts: Its facts.
        memory: The tensor with whose memory it is made: its own role, or that of the tensor of which
            it is a view.
        reaches: Arguments of the call to which its gradient flows.
        saves: Tensors, by whose memory they have, that eager autograd keeps for that.
    """

    role: Role
    is_new: bool
    facts: Facts
    memory: Role
    reaches: frozenset[Role] = field(default=frozenset(), repr=False)
    saves: frozenset[Role] = field(default=frozenset(), repr=False)


@dataclass(eq=False, slots=True)
class Call:
    """A call at its place in the tree of sequences.

    Attributes:
        results: The tensors that it returns.
        form: ``None`` for nothing, ``torch.Tensor`` for one tensor, else the type of the container.
        is_watched: Whether the shapes of its results are compared each time that it is recorded.
        is_sketch: Whether it has only run, and not been looked at: ``reaches`` and ``saves`` of its
            results, ``plan`` and ``guard`` are not known yet.
        alone: Why the call is in no sequence; empty if it can be.
        changes: Whether it changes memory of a tensor from outside or made before.
        changed: Tensors of which autograd notices the change, by whose memory they have.
        brings: Facts and class of each tensor that it is the first to bring from outside.
        is_cut: Whether a segment ends here, since a loop began further up.
        count: How often a sequence ended here.
        most: How often the one that ran most often ended here or further on.
        sequence: The sequence that ends here, once it is hot.
        hot: Whether a hot sequence ends here or further on.
        spare: A pending tensor for each result, between two uses.
        likely: The way that was taken last from here.
        plan: What arguments are compared with; ``None`` if some are nested.
        match: Compares them, once the call has waited (``make_match``).
        names: Of keyword arguments.
        is_plain: Whether it returns one tensor, and ``plan`` is there.
        guard: Compares the tensors that the call brings from outside with those of the first time.
        guard_below: The same below a mode, which changes the keys by which PyTorch dispatches.
        eager_s: Seconds of sequences that ended here, until one is hot.
        likeness: What it does, but for the calls that made its arguments; empty if nobody asked.
    """

    func: Callable[..., Any]
    key: tuple[Any, ...]
    above: Call | None
    grad: bool
    args: Any = ()
    kwargs: Any = field(default_factory=dict)
    results: tuple[Result, ...] = ()
    form: type | None = None
    is_sketch: bool = False
    is_watched: bool = False
    alone: str = ""
    changes: bool = False
    changed: tuple[Role, ...] = ()
    brings: tuple[Any, ...] = ()
    is_cut: bool = False
    then: dict[tuple[Any, ...], Call] = field(default_factory=dict)
    count: int = 0
    most: int = 0
    sequence: HotSequence | None = None
    hot: bool = False
    spare: list[Pending | None] = field(default_factory=list)
    likely: Call | None = None
    plan: tuple[tuple[type | None, Any], ...] | None = None
    match: Match | None = None
    is_plain: bool = False
    guard: Any = None
    guard_below: Any = None
    names: tuple[str, ...] = ()
    eager_s: list[float] = field(default_factory=list)
    likeness: str = ""

    def make_plan(self) -> None:
        """Set ``plan`` and ``names``."""
        parts = list(self.key[1:])
        if (
            parts
            and isinstance(parts[-1], tuple)
            and parts[-1][:1]
            and isinstance(parts[-1][0], tuple)
        ):
            named = parts.pop()
            self.names = tuple(name for name, _ in named)
            parts += [part for _, part in named]
        plan: list[tuple[type | None, Any]] = []
        for part in parts:
            if isinstance(part, int):
                plan.append((Intermediate, part))  # known already, as a result or as given
            elif isinstance(part[0], torch.dtype):
                plan.append((None, None))
            elif part[0] in CONSTANTS or (part[0] is float and type(part[1]) is float):
                plan.append(part)
            else:
                return
        self.plan = tuple(plan)

    def make_match(self) -> Match:
        """Set and return ``match``: the loop over the plan, unrolled, in a third of its time."""
        assert self.plan is not None  # noqa: S101  (of calls that wait)
        tests = [f"len(values) == {len(self.plan)}"]
        new: list[str] = []
        n_given = sum(len(call.brings) for call in self.path()[:-1])
        constants: dict[str, Any] = {"identity": identity, "len": len, "type": type}
        for n, (kind, part) in enumerate(self.plan):
            value = f"values[{n}]"
            if kind is Intermediate:
                place = -1 - part
                if part >= 0:
                    known = f"made[{part}]"
                elif place < n_given:
                    known = f"given[{place}]"
                else:  # brought by this call itself
                    known = new[place - n_given]
                tests.append(f"{value} is {known}")
            elif kind is None:
                tests.append(f"identity({value}) not in held")
                new.append(value)
            else:
                constants |= {f"kind_{n}": kind, f"part_{n}": part}
                tests.append(f"type({value}) is kind_{n} and {value} == part_{n}")
        found = f"({', '.join(new)},)" if new else "()"
        # Constants are no globals: functions of the same code would take turns in Python's caches.
        text = (
            f"lambda {', '.join(constants)}: lambda values, made, given, held: "
            f"{found} if {' and '.join(tests)} else None"
        )
        self.match = match = _evaluated(text)(**constants)
        return match

    def path(self, n: int | None = None) -> list[Call]:
        """Return the calls from the first one to this one, or the last ``n`` of them."""
        calls: list[Call] = []
        call: Call | None = self
        while call is not None and call.above is not None and len(calls) != n:
            calls.append(call)
            call = call.above
        return calls[::-1]

    def count_runs(self, times: int) -> None:
        """Count sequences that ended here, here and above."""
        self.count += times
        call: Call | None = self
        while call is not None and call.most < self.count:
            call.most = self.count
            call = call.above

    def heat(self) -> None:
        """Compute ``hot`` again, here and above."""
        call: Call | None = self
        while call is not None:
            call.hot = (call.sequence is not None and not call.sequence.refused) or any(
                one.hot for one in call.then.values()
            )
            call = call.above


@functools.cache
def _evaluated(text: str) -> Callable[..., Match]:
    made: Callable[..., Match] = eval(text, {})  # noqa: S307  (of nothing but ``make_match``)
    return made


def name_of(func: Callable[..., Any]) -> str:
    """Return the name of an operation, ``relu``."""
    name: str = getattr(func, "__name__", type(func).__name__)
    if name == "__get__":
        name = func.__self__.__name__  # type: ignore[attr-defined]
    return name.strip("_") if name.startswith("__") else name


def digest_of(calls: list[Call]) -> str:
    """Return a number of a sequence that is the same in every process."""
    lines = []
    for call in calls:
        func = call.func
        lines.append(f"{getattr(func, '__module__', None)} {name_of(func)}")
        lines.append(repr([_stable(one) for one in call.key[1:]]))
        lines.append(f"{call.grad} {call.results} {call.form}")
    return hashlib.sha1("\n".join(lines).encode(), usedforsecurity=False).hexdigest()[:12]


def _stable(one: Any) -> Any:
    return [_stable(part) for part in one] if isinstance(one, tuple) else repr(one)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of arguments or results."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from tensors_in(one)
    elif isinstance(value, dict):
        yield from tensors_in(tuple(value.values()))


class Tree(dict[tuple[str, Any], Call]):
    """The roots of what a block has recorded, by boundary and surroundings.

    Attributes:
        size: Number of calls below them.
    """

    size: int = 0
