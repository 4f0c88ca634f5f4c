"""Which calls are in no sequence: by what they are, and by what they did."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ivhl.hotpath.calls import is_dense, name_of, tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable

_T: Final = torch.Tensor
# Of a tensor that is not pending, these read no memory either.
PROPERTIES: Final = frozenset(
    getattr(_T, name).__get__
    for name in ("grad", "is_leaf", "grad_fn", "_base", "output_nr", "retains_grad")
)
# What waits holds the gradients that it reads, so those of a tensor may become None.
SET_GRADIENT: Final = _T.grad.__set__
# What Python makes of ``x > y`` where the class of ``y`` is derived from that of ``x``, as that of
# what is pending is: it asks ``y`` first, whether ``y < x``.
MIRRORED: Final = {
    _T.gt: _T.lt,
    _T.lt: _T.gt,
    _T.ge: _T.le,
    _T.le: _T.ge,
    **{one: one for one in (_T.__eq__, _T.eq, _T.__ne__, _T.ne)},
}
# Return their argument when there is nothing to do, and then run no operation.
_MAY_DO_NOTHING: Final = frozenset(
    {
        *("to", "contiguous", "type", "cpu", "cuda", "resolve_conj", "resolve_neg"),
        *("float", "double", "half", "bfloat16", "int", "long", "bool"),
    }
)
# Never part of a sequence, whatever they run.
_ALONE: Final = frozenset(
    {
        *("backward", "grad", "data", "requires_grad_", "detach_", "register_hook", "retain_grad"),
        *("set_", "resize_", "resize_as_", "share_memory_", "swap_tensors", "pin_memory"),
        *("deepcopy", "reduce_ex", "setstate", "record_stream", "as_subclass"),
        *("numpy", "array", "dlpack", "storage", "untyped_storage", "data_ptr", "tolist", "item"),
        *("apply_", "map_", "map2_"),
        *("rename_", "rename", "refine_names", "align_to", "unflatten_names"),
    }
)
# Whose shapes depend on values, which PyTorch does not say of them.
_BY_VALUES: Final = frozenset(("_pack_padded_sequence", "_pad_packed_sequence", "tensor_split"))
BY_VALUES: Final = "the shape of its result depends on values"
# Always make one new tensor of their own and do nothing else, unless they are asked to write into an
# argument: what they are need not be found out by watching them.
_KNOWN_NAMES: Final = (
    *("add", "sub", "mul", "div", "true_divide", "pow", "neg", "abs", "square", "sqrt", "rsqrt"),
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__"),
    *("__rtruediv__", "__pow__", "__neg__", "__abs__", "__matmul__"),
    *("exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "sigmoid", "erf", "reciprocal"),
    *("relu", "gelu", "silu", "softplus", "softmax", "log_softmax", "logsumexp", "mean", "sum"),
    *("linear", "matmul", "mm", "bmm", "addmm", "conv1d", "conv2d", "conv3d"),
    *("layer_norm", "group_norm", "rms_norm"),
    *("mse_loss", "l1_loss", "smooth_l1_loss", "cross_entropy", "nll_loss"),
    *("maximum", "minimum", "clamp"),
)
_KNOWN: Final = frozenset(
    getattr(place, name)
    for place in (_T, torch, torch.nn.functional)
    for name in _KNOWN_NAMES
    if hasattr(place, name)
)
# The same of these, which write into their first argument and return it.
_CHANGES: Final = frozenset(
    getattr(_T, name)
    for name in (
        *("add_", "sub_", "mul_", "div_", "addcmul_", "addcdiv_", "lerp_", "copy_", "zero_"),
        *("__iadd__", "__isub__", "__imul__", "__itruediv__"),
    )
)
# Inductor of these releases, for one CPU thread, keeps only the last of several values that are
# added to one place (docs/findings.md). The number of threads may change after a call was seen.
_LOSES_ADDITIONS: Final = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7)
# By names; all operations of PyTorch 2.6.0's ``op_db`` whose generated code adds are among them.
_ADDS: Final = re.compile(
    r"put|index_(put|add|reduce)|_?unsafe_index_put|_unsafe_masked_index_put_accumulate|"
    r"scatter_(add|reduce)"
)
# Whose backward pass adds so.
_IS_ADDED: Final = re.compile(
    r"index|_unsafe_(masked_)?index|index_select|embedding|gather|take|im2col|"
    r"(as_strided|unfold)(_copy)?|"
    r"(reflection|replication)_pad\dd|_?upsample_(linear|bilinear|trilinear|bicubic)\w*|grid_sampler\w*"
)
_MODULES: Final = ("torch.", "torch", "_operator")


class Look(TorchDispatchMode):
    """Lists the operations that a call runs."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[torch._ops.OpOverload] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        self.ran.append(func)
        return func(*args, **(kwargs or {}))


def is_known(func: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether a call makes one new tensor and does nothing else, whatever it is given."""
    return func in _KNOWN and kwargs.get("out") is None and not kwargs.get("inplace")


def is_known_change(func: Any) -> bool:
    """Return whether a call writes into its first argument, returns it, and does nothing else.

    While gradients are recorded that may change autograd's graph.
    """
    return func in _CHANGES and not torch.is_grad_enabled()


def alone_by_name(func: Any, kwargs: dict[str, Any]) -> str:
    """Return why a call is in no sequence, whatever it does; empty if it may be in one."""
    if name_of(func) in _ALONE or getattr(func, "__name__", "") in {"__set__", "__delete__"}:
        return "it reads, or changes more than values"
    if name_of(func) in _BY_VALUES:
        return BY_VALUES
    if kwargs.get("out") is not None:
        return "it writes into an argument"
    module = getattr(func, "__module__", None)
    if module is not None and not module.startswith(_MODULES):
        return "it is not an operation of PyTorch"
    return ""


def alone_by_deed(  # noqa: C901, PLR0911, PLR0912  (one for each rule)
    func: Any,
    ran: list[Any],
    result: Any,
    given: list[torch.Tensor],
    *,
    has_drawn: Callable[[], bool],
) -> str:
    """Return why a call is in no sequence, from what it did; empty if it can be in one.

    Args:
        func: Of the call.
        ran: Operations that it ran.
        result: What it returned.
        given: Its tensors.
        has_drawn: Returns whether the state of the CPU's random numbers is another now.
    """
    on_cpu = all(one.device.type == "cpu" for one in given)
    may_draw = False
    for op in ran:
        if op.namespace not in {"aten", "prims", "prim"}:
            return f"{op.namespace}::{op.__name__} is not an operation of PyTorch"
        may_draw = may_draw or torch.Tag.nondeterministic_seeded in op.tags
        if may_draw and not on_cpu:
            return "it draws random numbers"
        if torch.Tag.data_dependent_output in op.tags:
            return "it reads values"
        if torch.Tag.dynamic_output_shape in op.tags:
            return BY_VALUES
        if op is torch.ops.aten._linalg_check_errors.default:  # noqa: SLF001
            return "it raises for some values, which the program may catch"
    if may_draw and has_drawn():
        return "it draws random numbers"
    name = name_of(func)
    # ``x[index] = y`` replaces what is there.
    if _LOSES_ADDITIONS and on_cpu and name != "setitem" and _adds(ran, result):
        return "compiled for one thread, this release loses additions"
    if any(one.dtype.is_complex for one in tensors_in(result)):
        return "complex numbers are not compiled"
    if not all(map(is_dense, tensors_in(result))):
        return "sparse, nested, quantised and named tensors are not compiled"
    if form_of(result) is None and name != "setitem":
        return "it returns something other than tensors"
    is_new = [one for one in tensors_in(result) if not any(one is arg for arg in given)]
    if any(type(one) is not torch.Tensor for one in is_new):
        return "it returns a tensor of another class"
    if not ran and (is_new or name not in _MAY_DO_NOTHING):
        return "it runs no operation"
    return ""


def _adds(ran: list[Any], result: Any) -> bool:
    """Return whether operations, or their backward pass, add several values to one place."""
    is_tracked = any(one.requires_grad for one in tensors_in(result))
    names = [op.overloadpacket.__name__.removesuffix("_") for op in ran]
    return any(_ADDS.fullmatch(one) or (is_tracked and _IS_ADDED.fullmatch(one)) for one in names)


def form_of(result: Any) -> type | None:
    """Return the type of what holds the results, or ``None`` if it holds no tensors only."""
    if isinstance(result, torch.Tensor):
        plain: type = torch.Tensor
        return plain
    if isinstance(result, tuple | list) and result:
        kind: type = type(result)
        return kind if all(isinstance(one, torch.Tensor) for one in result) else None
    return None
