"""A function or a model by its name, as a workload: for ``ivhl try``, outside of any project.

``IVHL_TARGET`` holds a ``Target`` as JSON. What it names is imported in the cell, and its inputs are
guessed there, unless they are given: from the example in its docstring, from what a model says of
itself, from its first layer, or from its signature. ``guess_of`` says which.
"""

from __future__ import annotations

import ast
import copy
import importlib.util
import inspect
import json
import math
import os
import re
import resource
import sys
import time
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import cache, partial, wraps
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from ivhl.measure import failures
from ivhl.measure.case import Measurement, class_of
from ivhl.measure.first_compile import find_instructions, precompile_kernel_header
from ivhl.measure.job import read_job
from ivhl.measure.journal import Journal
from ivhl.measure.rehearsal import print_traceback
from ivhl.measure.supervisor import adopt_orphans
from ivhl.measure.target_spec import (
    FLOATS,
    FOLDER_VARIABLE,
    MODULE,
    NAME,
    OFF,
    SIZE,
    VARIABLE,
    Target,
    TargetError,
    TensorLike,
    parse_input,
    source_of,
)
from ivhl.workload import Variant, Workload, select_cases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import torch

    from ivhl.measure.eager import Begun
    from ivhl.measure.imports import Setup
    from ivhl.measure.job import Job

_BATCH: Final = 2
_WIDTH: Final = 64
_IMAGE: Final = 64
_TOKENS: Final = 32
# Seconds of a first look, and the least and most calls of it.
_LOOK_S: Final = 0.5
_SETTLES_S: Final = 20.0
_LOOKS: Final = (5, 200)
# Most C++ compilers at once: each takes 0.4 GB.
_COMPILERS: Final = 4
# Of eager and of compiled calls, and the present one: ``torch.compiler.set_stance``.
_STANCES: Final = ("force_eager", "default")
_stance = "default"
# How many calls of a model that may keep state are compared.
_CALLS: Final = 3
# Compiled code may differ from float64 by so many times the difference of eager code; where both
# round to 16 bits, from eager code by the second share of the largest value.
_ROUNDING: Final = 10.0
_NARROW: Final = 0.03
# Where all is 0.
_TINY: Final = 1e-38
# Bytes of a file, where memory has a limit, too: a target that prints without end fails.
_LARGEST_FILE: Final = 1 << 30


class Guess(NamedTuple):
    """The inputs of a target.

    Attributes:
        arguments: A ``TensorLike`` for each tensor; anything else as it is.
        keywords: Likewise, by name.
        source: Where they come from.
    """

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    source: str

    def __str__(self) -> str:
        """Return the inputs in one line."""
        named = [f"{name}={value}" for name, value in self.keywords.items()]
        return "; ".join([*map(str, self.arguments), *named]) or "none"


def draw(one: TensorLike, generator: torch.Generator) -> torch.Tensor:
    """Return values from the generator alone; floats in float64."""
    import torch  # noqa: PLC0415  (the declaration imports without it)

    if one.dtype == "bool":
        return torch.rand(one.shape, generator=generator) > 0.5  # noqa: PLR2004
    if one.dtype == "long":
        low, high = int(one.low or 0), int(one.high or 10)
        return torch.randint(low, max(high, low + 1), one.shape, generator=generator)
    if one.low is None or one.high is None:
        return torch.randn(one.shape, dtype=torch.float64, generator=generator)
    unit = torch.rand(one.shape, dtype=torch.float64, generator=generator)
    return one.low + (one.high - one.low) * unit


@cache
def target() -> Target:
    """Return the target of this process."""
    about = json.loads(os.environ[VARIABLE])
    return Target(**about | {"inputs": tuple(about["inputs"])})


@cache
def named() -> Any:  # noqa: ANN401  (a function or a class)
    """Return what the target's expression names, without a call of it.

    Raises:
        TargetError: If the module has no such name.
    """
    module = _module()
    tree = ast.parse(target().expression, mode="eval").body
    function = tree.func if isinstance(tree, ast.Call) else tree
    try:
        return eval(ast.unparse(function), _namespace(module))  # noqa: S307  (the user's own words)
    except (NameError, AttributeError) as error:
        known = dir(module if isinstance(error, NameError) else error.obj)
        near = get_close_matches(error.name or "", known, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise TargetError(f"{target().module}: {error}{meant}") from error


@cache
def _module() -> Any:  # noqa: ANN401  (a module)
    """Import the target's module; a file of the user gets no ``__pycache__`` beside it.

    Raises:
        TargetError: If Python has imported another module of the name of the user's file.
    """
    import torch  # noqa: F401, PLC0415  (its own bytecode is written)

    folder = os.environ.get(FOLDER_VARIABLE)
    if folder:
        sys.path.insert(0, folder)
    top = importlib.util.find_spec(target().module.partition(".")[0])
    usual = sys.dont_write_bytecode
    sys.dont_write_bytecode = "site-packages" not in str(top and top.origin)
    own = Path(folder or "", f"{target().module}.py")
    try:
        if folder and own.is_file() and not own.stem.isidentifier():
            return _load(own)
        module = importlib.import_module(target().module)
    finally:
        sys.dont_write_bytecode = usual
    if folder and own.is_file() and own != Path(getattr(module, "__file__", None) or ""):
        raise TargetError(
            f"{own.name}: Python has imported {module.__name__} of its own in its place: rename the "
            f"file, e.g. to my_{own.name}"
        )
    return module


def _load(path: Path) -> Any:  # noqa: ANN401  (a module)
    """Return the module of a file whose name is no name of a module, e.g. ``model.v2.py``."""
    spec = importlib.util.spec_from_file_location(re.sub(r"\W|^(?=\d)", "_", path.stem), path)
    assert spec is not None  # noqa: S101  (it ends with .py)
    assert spec.loader is not None  # noqa: S101
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make() -> Any:  # noqa: ANN401  (a function or a model)
    """Return a new model, or the function itself.

    Raises:
        TargetError: If it needs arguments, or cannot be called.
    """
    found = named()
    if isinstance(ast.parse(target().expression, mode="eval").body, ast.Call):
        module = _module()
        found = eval(target().expression, _namespace(module))  # noqa: S307
    elif inspect.isclass(found):
        try:
            found = found()
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                raise  # in the code of the class
            raise TargetError(
                f"{target().expression} needs arguments ({error}): write them, "
                f"{target().expression}(...)"
            ) from error
    if _is_model(found):
        return found if target().step else found.eval()
    if not callable(found):
        raise TargetError(f"{target().module}:{target().expression} cannot be called")
    return found


def _namespace(module: Any) -> dict[str, Any]:  # noqa: ANN401  (a module)
    import torch  # noqa: PLC0415

    nodes = ast.walk(ast.parse(target().expression, mode="eval"))
    named = {node.id for node in nodes if isinstance(node, ast.Name)}
    # Packages that import their names lazily have them by attribute only.
    lazy = {name: getattr(module, name) for name in named if hasattr(module, name)}
    top = module.__name__.partition(".")[0]
    return {"torch": torch, top: sys.modules[top], **getattr(module, "__dict__", {}), **lazy}


def make_model(size: Any) -> Any:  # noqa: ANN401, ARG001  (a model)
    """Return the model, its lazy parameters made by a call."""
    model = make()
    if _is_lazy(model):
        arguments, keywords = _drawn(guess_of())
        _call_quietly(model, arguments, keywords)
    return model


def _is_lazy(model: Any) -> bool:  # noqa: ANN401
    from torch.nn.parameter import UninitializedTensorMixin  # noqa: PLC0415

    tensors = (*model.parameters(), *model.buffers())
    return any(isinstance(tensor, UninitializedTensorMixin) for tensor in tensors)


def make_inputs(size: Any, generator: torch.Generator) -> Any:  # noqa: ANN401, ARG001
    """Draw the inputs; keyword arguments are the last one, a dict, or of a model all of them."""
    arguments, keywords = _arguments(guess_of(), generator)
    if is_model() and keywords and not arguments:  # the harness calls a model with these by name
        return keywords
    return (*arguments, keywords) if keywords else arguments


def _arguments(guess: Guess, generator: torch.Generator) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def drawn(value: Any) -> Any:  # noqa: ANN401  (an argument)
        return draw(value, generator) if isinstance(value, TensorLike) else value

    keywords = {name: drawn(value) for name, value in guess.keywords.items()}
    return tuple(map(drawn, guess.arguments)), keywords


def _call_quietly(
    found: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> bool:
    """Call without gradients; return whether that is not possible: the code differentiates."""
    import torch  # noqa: PLC0415

    try:
        with torch.no_grad():
            found(*arguments, **keywords)
    except RuntimeError as error:
        if "does not require grad" not in str(error):
            raise
        found(*arguments, **keywords)
        return True
    return False


@cache
def _seen_in_a_call() -> tuple[bool, bool]:
    """Return whether a call of the code differentiates, and whether it writes into its inputs."""
    import torch  # noqa: PLC0415

    arguments, keywords = _drawn(guess_of())
    tensors = [x for x in (*arguments, *keywords.values()) if isinstance(x, torch.Tensor)]
    before = [x._version for x in tensors]  # noqa: SLF001
    differentiates = False
    with suppress(Exception):  # the phases to come say what is wrong
        differentiates = _call_quietly(_made(), arguments, keywords)
    return differentiates, before != [x._version for x in tensors]  # noqa: SLF001


def needs_gradients() -> bool:
    """Return whether the code differentiates, as a force field does, so gradients stay on."""
    return _seen_in_a_call()[0]


def changes_inputs() -> bool:
    """Return whether a call writes into a tensor that it gets."""
    return _seen_in_a_call()[1]


@cache
def _first_made() -> Any:  # noqa: ANN401  (a function or a model)
    """Return what is looked at and called before the case makes its own: making takes seconds."""
    return make()


def _made() -> Any:  # noqa: ANN401
    found = _first_made()
    return make_model(0) if is_model() and _is_lazy(found) else found


@cache
def _kind() -> tuple[bool, set[torch.dtype]]:
    """Return whether the target is a model, and the precisions of a model's floating tensors."""
    from ivhl.measure.models import precisions_of  # noqa: PLC0415  (imports torch)

    found = _first_made()
    return (True, precisions_of(found)) if _is_model(found) else (False, set())


def is_model() -> bool:
    """Return whether the target is a model."""
    return _kind()[0]


def _is_model(found: Any) -> bool:  # noqa: ANN401
    import torch  # noqa: PLC0415

    return isinstance(found, torch.nn.Module)


@cache
def call_of() -> Callable[..., Any]:
    """Return the function with the inputs of ``make_inputs``, in eager code."""
    return parts(lambda function: function)


def parts(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of ``call_of``, in which a compiler gets the target's own code alone."""
    function = compiler(make())

    def call(*inputs: Any) -> Any:  # noqa: ANN401
        arguments, keywords = _parted(inputs, {})
        return function(*arguments, **keywords)

    if target().step:
        return with_gradients(call)
    return with_changed_inputs(call) if changes_inputs() else call


def with_changed_inputs(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that writes into copies of its inputs, and also returns these."""
    from ivhl.measure.draws import clone  # noqa: PLC0415  (imports torch)

    def call(*inputs: Any) -> Any:  # noqa: ANN401
        own = clone(inputs)
        return function(*own), own

    return call


def _parted(inputs: Any, named: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Return positional and named inputs; the harness gives some of both as one tuple."""
    split = guess_of().keywords and not named
    return (inputs[:-1], inputs[-1]) if split else (inputs, named)


def forward(model: Callable[..., Any], /, *inputs: Any, **named: Any) -> Any:  # noqa: ANN401
    """Call a model; inputs that it changes are copies, and returned."""
    import torch  # noqa: PLC0415

    from ivhl.measure.draws import clone  # noqa: PLC0415  (imports torch)

    own, by_name = _parted(inputs, named)
    if changes_inputs():
        own, by_name = clone((own, by_name))
    with nullcontext() if needs_gradients() else torch.no_grad():
        outputs = model(*own, **by_name)
    return (outputs, own, by_name) if changes_inputs() else outputs


def with_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that also returns the gradients of its floating and complex inputs.

    And the inputs, if it writes into them. An input that nothing depends on has zeros.
    """
    import torch  # noqa: PLC0415

    from ivhl.measure.models import Loss  # noqa: PLC0415  (imports torch)

    loss, changes = Loss(), changes_inputs()

    def step(*inputs: Any) -> Any:  # noqa: ANN401
        leaves, own = _with_leaves(inputs)
        if not leaves:
            raise TargetError("--step: no input is a floating tensor, so nothing has a gradient")
        outputs = function(*own)
        try:
            lost = loss(outputs)
        except ValueError:
            raise TargetError("--step: no output depends on an input, by its gradient") from None
        gradients = torch.autograd.grad(lost, leaves, materialize_grads=True)
        return (outputs, gradients, own) if changes else (outputs, gradients)

    return step


def _with_leaves(inputs: Any) -> tuple[list[torch.Tensor], Any]:  # noqa: ANN401
    """Return leaves that get the gradients of floating and complex inputs, and inputs of these.

    The inputs are copies: code may change them, and a leaf must not be changed.
    """
    import torch  # noqa: PLC0415
    from torch.utils._pytree import tree_map  # noqa: PLC0415

    leaves: list[torch.Tensor] = []

    def own(x: Any) -> Any:  # noqa: ANN401
        if not isinstance(x, torch.Tensor):
            return x
        if not (x.is_floating_point() or x.is_complex()):
            return x.clone()
        leaves.append(x.detach().requires_grad_())
        return leaves[-1].clone()

    return leaves, tree_map(own, inputs)


@cache
def model_step() -> Callable[..., Any]:
    """Return what differentiates a model by its parameters and by its floating inputs.

    As ``with_gradients`` does, it also returns inputs that the model writes into.
    """
    import torch  # noqa: PLC0415

    from ivhl.measure.models import Loss, Passed  # noqa: PLC0415  (imports torch)

    loss, changes = Loss(), changes_inputs()

    def step(model: Callable[..., Any], /, *inputs: Any, **named: Any) -> Any:  # noqa: ANN401
        leaves, (own, by_name) = _with_leaves(_parted(inputs, named))
        outputs = model(*own, **by_name)
        try:
            lost = loss(outputs)
        except ValueError:
            raise TargetError(
                "--step: no output depends on a parameter or an input, by its gradient"
            ) from None
        lost.backward()
        # Where eager code has no gradient, compiled code may have zeros.
        gradients = [torch.zeros_like(x) if x.grad is None else x.grad for x in leaves]
        changed = (own, by_name) if changes else ()
        return Passed((outputs, gradients, *changed), lost)

    return step


def __getattr__(name: str) -> Any:  # noqa: ANN401  (of this module)
    # Resolved by name when the case runs, since it imports what is tried.
    if name == "call":
        return call_of()
    if name == "step":
        return model_step()
    if name == "WORKLOADS":
        return _workloads("float64")
    raise AttributeError(name)


@cache
def _workloads(reference: str) -> tuple[Workload, ...]:
    common: dict[str, Any] = {
        "reference": reference,
        "dtype": dtype(),
        "name": NAME,
        "version": 1,
        "title": f"{target().module}:{target().expression}"[:80],
        "sizes": {SIZE: 0},
        "default_size": SIZE,
        "make_inputs": f"{MODULE}:make_inputs",
    }
    if is_model():
        step = target().step
        both = guess_of().arguments and guess_of().keywords
        special = both or needs_gradients() or changes_inputs()
        own = "step" if step else "forward" if special else ""
        common |= {"eager": f"{MODULE}:{own}"} if own else {"passes": "forward"}
        variant = Variant(name="compiled", compiles="model" if own else "whole")
        return (Workload(**common, variants=(variant,), make_model=f"{MODULE}:make_model"),)
    variant = Variant(name="compiled", call=f"{MODULE}:parts", compiles="parts")
    return (Workload(**common, variants=(variant,), eager=f"{MODULE}:call"),)


@cache
def dtype() -> str:
    """Return the precision of floating inputs.

    That is the precision of a model's floating tensors, if they have one; else that of an input
    which names it, or the default.

    Raises:
        TargetError: If an input names another one.
    """
    import torch  # noqa: PLC0415

    own = _kind()[1]
    given = map(parse_input, target().inputs)
    asked = {getattr(torch, one.dtype) for one in given if one.dtype in FLOATS}
    if len(own) != 1:
        own = asked or {torch.float32 if own else torch.get_default_dtype()}
    name, *others = (str(one).removeprefix("torch.") for one in own | asked)
    if others:
        raise TargetError(
            f"--input: {name} beside {others[0]}: all floating inputs have one precision, that of "
            "the model if it has one; cast them in a function of a file"
        )
    return name


@cache
def guess_of() -> Guess:
    """Return the inputs that are given, or those that can be guessed.

    Raises:
        TargetError: If nothing shows them.
    """
    if target().inputs:
        given = tuple(map(parse_input, target().inputs))
        names = _needed_keywords()
        n = max(len(given) - len(names), 0)
        return Guess(given[:n], dict(zip(names, given[n:], strict=False)), "as given")
    found = make() if is_model() and _is_lazy(_first_made()) else _first_made()
    tried: list[str] = []
    for guess in _guesses(found):
        try:
            arguments, keywords = _drawn(guess)
            _call_quietly(found, arguments, keywords)
        except Exception as error:  # noqa: BLE001  (the next guess may do)
            why = failures.headline(failures.message_of(error)) or failures.qualified_name(error)
            tried.append(f"{guess} ({guess.source}): {why[:120]}")
        else:
            return guess
    raise TargetError(
        f"the inputs of {target().expression} cannot be guessed: give them, e.g. --input 8,64 or "
        "--input 'double 8,64' (of a row: `inputs`), or call it in a function of a file"
        + "".join(f"\n  not {line}" for line in tried)
    )


def _needed_keywords() -> list[str]:
    """Return the names of the inputs that the target takes by name only, and needs."""
    found = named()
    if isinstance(ast.parse(target().expression, mode="eval").body, ast.Call):
        found = getattr(found, "forward", None)
    try:
        parameters = inspect.signature(getattr(found, "forward", found)).parameters.values()
    except (TypeError, ValueError):
        return []
    needed = (p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty)
    return [one.name for one in needed]


def _guesses(found: Any) -> Iterator[Guess]:  # noqa: ANN401
    model = _is_model(found)
    yield from filter(None, [_of_model(found), _of_call()] if model else [])
    yield from filter(None, [_of_example(type(found) if model else found)])
    yield from _of_layer(found) if model else _of_signature(found)


def _of_model(model: Any) -> Guess | None:  # noqa: ANN401, PLR0911  (timm's or transformers')
    """Return what a model of timm or transformers says of its input."""
    about = getattr(model, "default_cfg", None) or getattr(model, "pretrained_cfg", None)
    if isinstance(about, dict) and (size := about.get("input_size")):
        return Guess((TensorLike((_BATCH, *size)),), {}, "its default_cfg")
    config = getattr(model, "config", None)
    name = getattr(model, "main_input_name", None)
    if config is None or name is None:
        return None
    if name == "input_ids" and (n := getattr(config, "vocab_size", None)):
        tokens = TensorLike((_BATCH, _TOKENS), "long", 0, n)
        if getattr(config, "is_encoder_decoder", False):
            return Guess((), {"input_ids": tokens, "decoder_input_ids": tokens}, "its config")
        return Guess((tokens,), {}, "its config")
    if name == "pixel_values" and (side := getattr(config, "image_size", None)):
        height, width = side if isinstance(side, tuple | list) else (side, side)
        channels = getattr(config, "num_channels", 3)
        return Guess((TensorLike((_BATCH, channels, height, width)),), {}, "its config")
    if name == "input_values":
        return Guess((TensorLike((_BATCH, 16000)),), {}, "its main input, a second of sound")
    return None


def _of_call() -> Guess | None:
    """Return the image whose side the expression itself says, e.g. ``ViT(image_size=32)``."""
    tree = ast.parse(target().expression, mode="eval").body
    said = {
        keyword.arg: keyword.value.value
        for keyword in (tree.keywords if isinstance(tree, ast.Call) else ())
        if isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, int)
    }
    side = next((said[name] for name in ("image_size", "img_size") if name in said), None)
    if side is None:
        return None
    channels = next((said[n] for n in ("channels", "in_channels", "in_chans") if n in said), 3)
    return Guess((TensorLike((_BATCH, channels, side, side)),), {}, "its call")


def _of_layer(model: Any) -> Iterator[Guess]:  # noqa: ANN401
    """Yield what the first layer with a size takes, for each input that the model needs."""
    for layer in model.modules():
        shapes = list(_shapes_of(layer))
        for one in shapes:
            n = max(_positional(model.forward), 1)
            yield Guess((one,) * n, {}, f"its first layer, {type(layer).__name__}")
        if shapes:
            return


def _shapes_of(layer: Any) -> Iterator[TensorLike]:  # noqa: ANN401
    """Yield shapes that a layer takes, the likeliest first."""
    from torch import nn  # noqa: PLC0415

    if isinstance(layer, nn.Linear):
        yield TensorLike((8, layer.in_features))
        yield TensorLike((_BATCH, _TOKENS, layer.in_features))
    elif isinstance(layer, nn.Embedding):
        yield TensorLike((_BATCH, _TOKENS), "long", 0, layer.num_embeddings)
    elif isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        for side in (_IMAGE, 224):
            yield TensorLike((_BATCH, layer.in_channels, *(side,) * len(layer.kernel_size)))
    elif isinstance(layer, nn.RNNBase):
        yield TensorLike((_TOKENS, _BATCH, layer.input_size))
    elif isinstance(layer, nn.LayerNorm):
        yield TensorLike((8, *layer.normalized_shape))
        yield TensorLike((_BATCH, _TOKENS, *layer.normalized_shape))


def _positional(function: Any) -> int:  # noqa: ANN401
    """Return how many positional arguments a call needs; 1 if nothing says so."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is p.empty for p in parameters)


def _of_signature(function: Any) -> Iterator[Guess]:  # noqa: ANN401
    """Yield a matrix, then a vector and a cube, for each argument that a function needs."""
    n = _positional(function)
    if not n:
        yield Guess((), {}, "its signature: it needs none")
    for shape in ((8, _WIDTH), (_WIDTH,), (_BATCH, 8, _WIDTH), (_WIDTH, _WIDTH)) if n else ():
        yield Guess((TensorLike(shape),) * n, {}, "its signature")


def _of_example(found: Any) -> Guess | None:  # noqa: ANN401
    """Run the example in a docstring up to the first call, and take that call's arguments."""
    import torch  # noqa: PLC0415

    is_class = inspect.isclass(found)
    lines = re.findall(r"^\s*(?:>>>|\.\.\.) ?(.*)$", found.__doc__ or "", re.MULTILINE)
    name = getattr(found, "__name__", "")
    namespace: dict[str, Any] = {"torch": torch, "nn": torch.nn, "math": math, name: found}
    namespace["F"] = torch.nn.functional
    state = torch.get_rng_state()
    source: list[str] = []
    try:
        for line in lines:
            source.append(line)
            try:
                tree = ast.parse("\n".join(source))
            except SyntaxError:
                continue  # of several lines
            source.clear()
            for statement in tree.body:
                call = _call_in(statement, name, namespace, model=is_class)
                if call is not None:
                    return _guess_from(call, namespace)
                exec(compile(ast.Module([statement], []), "<example>", "exec"), namespace)  # noqa: S102
    except Exception:  # noqa: BLE001  (an example may need anything)
        return None
    finally:
        torch.set_rng_state(state)
    return None


def _call_in(
    statement: ast.stmt, name: str, namespace: dict[str, Any], *, model: bool
) -> ast.Call | None:
    """Return the call of a function by its name, or of an instance of a class."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            text = ast.unparse(node.func)
            if _is_model(namespace.get(text)) if model else text.rpartition(".")[2] == name:
                return node
    return None


def _guess_from(call: ast.Call, namespace: dict[str, Any]) -> Guess:
    def value(node: ast.expr) -> Any:  # noqa: ANN401
        return like(eval(compile(ast.Expression(node), "<example>", "eval"), namespace))  # noqa: S307

    keywords = {word.arg: value(word.value) for word in call.keywords if word.arg is not None}
    return Guess(tuple(map(value, call.args)), keywords, "the example in its docstring")


def like(value: Any) -> Any:  # noqa: ANN401  (an argument)
    """Return what draws a tensor of this kind and range; anything else as it is."""
    import torch  # noqa: PLC0415

    if not isinstance(value, torch.Tensor) or value.is_complex() or not value.numel():
        return value
    shape = tuple(value.shape)
    if value.dtype == torch.bool:
        return TensorLike(shape, "bool")
    low, high = value.min().item(), value.max().item()
    if not value.is_floating_point():
        return TensorLike(shape, "long", low, high + 1)
    return TensorLike(shape, "float", low, high) if low >= 0 else TensorLike(shape)


def main(argv: Sequence[str]) -> NoReturn:
    """Try the target in this process, as ``argv[1]`` says; the findings go to the journal."""
    job = read_job(argv[1])
    if job.effort.memory_limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
    adopt_orphans()
    journal = Journal(Path(job.journal))
    journal.enter("import")
    try:
        named()  # what its module sets is read when the compiler is imported
        _let_compile(_STANCES[0])
        guess = guess_of()
        journal.note(inputs=str(guess), inputs_from=guess.source)
        journal.note(
            is_model=is_model(),
            dtype=dtype(),
            arguments=list(map(source_of, guess.arguments)),
            keywords={name: source_of(value) for name, value in guess.keywords.items()},
        )
        arms = _judged(job, journal)
        journal.note(**indicative(*arms))
        journal.enter("accuracy")
        refuse_later_calls(*arms)
        journal.note(second=with_larger_batch(*arms))  # last: it compiles all once more
    except (Exception, SystemExit) as raised:  # noqa: BLE001  (every exception is a result)
        error = (
            raised if isinstance(raised, Exception) else failures.exit_error(raised, journal.phase)
        )
        error = _of_compiled_code(error, journal.phase)
        failed = class_of(error, journal.phase, job)
        journal.note(failure=failures.reported(error, failed, journal.phase))
        journal.note(frame=failures.frame_of(error), own_place=failures.own_place_of(error))
        with suppress(OSError):  # the target may have filled the file of what it prints
            print_traceback(error)
    journal.note(done=True)
    journal.close()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)  # as a case does


def _of_compiled_code(error: Exception, phase: str) -> Exception:
    """Return the error, as a wrong result if eager code went through."""
    if isinstance(error, TargetError) and phase == "compile":
        said = str(error).removeprefix("--step: ")
        return failures.CaseError("wrong", f"of compiled code alone, {said}")
    if isinstance(error, failures.CaseError) and "the variant changes its inputs" in str(error):
        return failures.CaseError(
            "wrong", "compiled code changes its inputs, and eager code does not"
        )
    return error


def _judged(job: Job, journal: Journal) -> tuple[Any, ...]:
    """Judge the target, and return its own code and its compiled form.

    Code that has no float64 form, or rounds to 16 bits in it, is judged by eager code itself.
    """
    journal.enter("eager")  # this calls it for the first time
    narrow = _rounds_to_16_bits()
    journal.enter("import")
    if not narrow:
        try:
            return _arms(job, journal, "float64")
        except Exception:
            if journal.phase not in ("reference", "eager"):
                raise
    return _arms(job, journal, "tolerance")


def _arms(job: Job, journal: Journal, reference: str) -> tuple[Any, ...]:
    workload = _workloads(reference)[0]
    if _rounds_to_16_bits():
        workload = replace(workload, tolerance=_NARROW)
    (case,) = select_cases((workload,), names=[NAME], device=job.effort.device)
    journal.note(reference=reference)
    measurement = _Tried(job, case, journal)
    measurement.run()
    return measurement.arms


def _let_compile(stance: str) -> None:
    """Let code of ``torch.compile`` run compiled (``default``) or as eager code (``force_eager``).

    Eager code must not be compiled where the target calls ``torch.compile`` itself.
    """
    global _stance  # noqa: PLW0603  (as PyTorch's own is)
    if stance == _stance:
        return
    _stance = stance
    import torch  # noqa: PLC0415

    if hasattr(torch.compiler, "set_stance"):
        torch.compiler.set_stance(stance)
        return
    from torch._dynamo import eval_frame as place  # noqa: PLC0415

    # Before 2.6. Its wrappers call this function by its name, which 2.5 has changed.
    name = "_maybe_set_eval_frame" if hasattr(place, "_maybe_set_eval_frame") else "set_eval_frame"
    usual = getattr(getattr(place, name), "__wrapped__", getattr(place, name))
    never = wraps(usual)(lambda _: usual(None))
    setattr(place, name, usual if stance == "default" else never)


@cache
def _rounds_to_16_bits() -> bool:
    """Return whether code that gets float64 casts to 16 bits: its float64 form is no reference."""
    import torch  # noqa: PLC0415
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415

    seen: set[Any] = set()

    class Seen(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
        def __torch_dispatch__(
            self,
            func: Any,  # noqa: ANN401
            types: Any,  # noqa: ANN401
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> Any:  # noqa: ANN401
            found = func(*args, **(kwargs or {}))
            seen.add(getattr(found, "dtype", None))
            return found

    if dtype() == "float64":
        return False
    try:
        made = _made()
        call = _exactly(copy.deepcopy(made) if is_model() else made, guess_of())
        with Seen():
            _call_quietly(call.func, call.args, call.keywords)
    except Exception:  # noqa: BLE001  (it has no float64 form)
        seen.add(getattr(torch, dtype()))
    return bool(seen & {torch.bfloat16, torch.float16})


class _Tried(Measurement):
    """Keeps what was compiled, so that the first look compiles nothing again.

    The cache of the cell holds what every first compile needs. Code of the target is compiled in an
    empty cache: an earlier trial may have compiled the same code.

    Attributes:
        arms: The target's own code and its compiled form, of the last compilation.
    """

    arms: tuple[Any, ...] = ()

    def _begin(self, setup: Setup, *, warn: bool = False) -> Begun:
        from ivhl.measure.leaves import Opaque  # noqa: PLC0415  (imports torch)

        begun = super()._begin(setup, warn=warn)
        others = begun.eager.anchors[0].eager.others.items()
        opaque = [f"{path} ({name})" for path, name in others if isinstance(name, Opaque)]
        self.journal.note(not_compared=opaque)
        return begun

    def _compiler(self, setup: Setup) -> Callable[..., Any]:
        compiler = super()._compiler(setup)
        own_cache = str(Path(self.job.journal).with_name("inductor"))
        shared = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])

        def compile_and_keep(function: Callable[..., Any]) -> Callable[..., Any]:
            if self.job.effort.device == "cpu":
                with suppress(Exception):  # it only saves time
                    find_instructions()
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = own_cache
            if self.job.effort.device == "cpu":
                _compile_kernels_side_by_side()
                with suppress(Exception):  # it only saves time
                    precompile_kernel_header(shared)
            # Code that is already compiled keeps its settings: a second compiler would drop them.
            own = getattr(function, "forward", function)
            is_compiled = hasattr(own, "_torchdynamo_orig_callable")
            is_compiled = is_compiled and not hasattr(own, "_torchdynamo_disable")
            compiled: Callable[..., Any] = function if is_compiled else compiler(function)

            def compiled_alone(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
                before = _stance
                _let_compile("default")
                try:
                    return compiled(*arguments, **keywords)
                finally:
                    _let_compile(before)

            self.arms = function, compiled_alone
            return compiled_alone

        return compile_and_keep


def _compile_kernels_side_by_side() -> None:
    """Let Inductor start as many C++ compilers as there are CPUs, as it does of itself.

    Set before torch is imported, it would also start processes that compile for GPUs.
    """
    from torch._inductor import config  # noqa: PLC0415

    config.compile_threads = min(len(os.sched_getaffinity(0)), _COMPILERS)


def indicative(function: Callable[..., Any], compiled: Callable[..., Any]) -> dict[str, Any]:
    """Time the target by hand: a first look, and no measurement.

    Args:
        function: The function or the model.
        compiled: The same, compiled.

    Returns:
        ``eager_s`` and ``compiled_s``, medians of a call; ``again``, how often equal calls compiled
        once more, as for each value of a counter.
    """
    with _called_alike(function, compiled) as both:
        calls = [_bound(one, guess_of()) for one in both]
        again = _settled(calls[1])
        eager_s, compiled_s = _medians(*calls)
    return {"eager_s": eager_s, "compiled_s": compiled_s, "again": again}


def with_larger_batch(
    function: Callable[..., Any], compiled: Callable[..., Any]
) -> dict[str, Any] | None:
    """Call the target with a larger batch, and return what that did.

    ``None`` if the target takes none, or none is asked for.
    """
    first = guess_of()
    larger = first._replace(arguments=tuple(map(_larger, first.arguments)))
    if not target().larger or larger == first or first.keywords:
        return None
    with _called_alike(function, compiled) as (own, other):
        return _second_shape(own, other, larger)


@contextmanager
def _called_alike(*arms: Callable[..., Any]) -> Iterator[tuple[Callable[..., Any], ...]]:
    """Yield arms to call as the harness has called them: otherwise all is compiled once more."""
    import torch  # noqa: PLC0415

    if not is_model():
        arms = tuple(parts(lambda _, arm=arm: arm) for arm in arms)
    forward_only = is_model() and not (target().step or needs_gradients())
    with torch.no_grad() if forward_only else nullcontext():
        yield arms


def _settled(call: Callable[[], Any]) -> int:
    """Call until nothing is compiled any more, or for some seconds; return how often it was."""
    seen = [sum(convert_frame_counts().values())]
    ends = time.perf_counter() + _SETTLES_S
    while len(seen) == 1 or (seen[-1] != seen[-2] and time.perf_counter() < ends):
        call()
        seen.append(sum(convert_frame_counts().values()))
    return seen[-1] - seen[0]


def _medians(*calls: Callable[[], Any]) -> list[float]:
    """Return the median seconds of eager and compiled calls, in turns for half a second."""
    seen: list[list[float]] = [[] for _ in calls]
    before = _stance
    ends = time.perf_counter() + _LOOK_S
    while len(seen[0]) < _LOOKS[0] or (time.perf_counter() < ends and len(seen[0]) < _LOOKS[1]):
        for stance, call, times in zip(_STANCES, calls, seen, strict=True):
            _let_compile(stance)  # here, where it takes no time of the call
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
    _let_compile(before)
    return [median(times) for times in seen]


def _second_shape(
    function: Callable[..., Any], compiled: Callable[..., Any], guess: Guess
) -> dict[str, Any] | None:
    try:
        eager = _compared(_bound(function, guess)())
        # The compiled model has seen other calls, which matters to one that keeps something.
        varies = distance(eager, _compared(_bound(function, guess)())) != (0.0, "")
    except Exception:  # noqa: BLE001  (not every function takes another size)
        return None
    before = sum(convert_frame_counts().values())
    try:
        found = _compared(_bound(compiled, guess)())
    except Exception as error:  # noqa: BLE001  (a result)
        told = f"{failures.qualified_name(error)}: {failures.headline(failures.message_of(error))}"
        return {"inputs": str(guess), "failure": told}
    again = sum(convert_frame_counts().values()) - before
    seen = {"inputs": str(guess), "recompiles": again, "varies": varies}
    if varies:
        return seen
    exact = eager
    with suppress(Exception):  # not all code runs in float64
        twin = copy.deepcopy(function) if is_model() else function
        exact = _compared(_exactly(twin, guess)())
    looks = _looks(function, guess, lambda call, _: _compared(call()))
    off, unlike = _unexplained(eager, found, exact, looks)
    return seen | {"off": off, "unlike": unlike}


def _exactly(function: Callable[..., Any], guess: Guess) -> partial[Any]:
    """Return the call of the same code in float64; a model is cast where it is."""
    import torch  # noqa: PLC0415

    from ivhl.measure.draws import cast  # noqa: PLC0415  (imports torch)
    from ivhl.measure.models import cast_model  # noqa: PLC0415

    exact, cpu = torch.float64, torch.device("cpu")
    if is_model():
        cast_model(function, exact, cpu)
    call = _bound(function, guess)
    return partial(call.func, *cast(call.args, exact, cpu), **cast(call.keywords, exact, cpu))


def _looks(function: Any, guess: Guess, run: Callable[..., Any]) -> Iterator[Any]:  # noqa: ANN401
    """Yield what eager code returns where inputs and state are moved by 1 to 8 roundings.

    Args:
        function: The function or the model.
        guess: The inputs.
        run: Gets the call and, of a model, the copy that it calls; returns the outcome.
    """
    import torch  # noqa: PLC0415

    from ivhl.measure.accuracy import ROUNDOFF  # noqa: PLC0415  (imports torch)
    from ivhl.measure.draws import cast, rounded_again  # noqa: PLC0415
    from ivhl.measure.exact import Rounded  # noqa: PLC0415
    from ivhl.measure.jumps import FURTHER, LOOKS_S, MOST_LOOKS  # noqa: PLC0415
    from ivhl.measure.models import Held  # noqa: PLC0415

    began, cpu = time.perf_counter(), torch.device("cpu")
    for look in range(MOST_LOOKS):
        far, twin = FURTHER[look % len(FURTHER)] * ROUNDOFF[dtype()], copy.deepcopy(function)
        if is_model():
            held = Held(twin, None)
            held.keep()
            Rounded(held).move(far, look)
        call = _bound(twin, guess)
        wide = cast((call.args, call.keywords), torch.float64, cpu)
        args, named = cast(rounded_again(wide, far, look), getattr(torch, dtype()), cpu)
        with suppress(Exception):  # it may refuse such inputs
            yield run(partial(call.func, *args, **named), twin)
        if time.perf_counter() - began > LOOKS_S:
            return


def _unexplained(eager: Any, found: Any, exact: Any, looks: Any) -> tuple[float, str]:  # noqa: ANN401
    """Return ``distance`` of compiled code from eager code, without what rounding explains.

    That is code as near to float64 as eager code is, and an element that eager code returns, too,
    on inputs that are moved a little.

    Args:
        eager: What eager code returns.
        found: What compiled code returns.
        exact: What eager code returns in float64; if it cannot, what it returns.
        looks: Yields what it returns on other inputs; read only where something seems wrong.
    """
    from ivhl.measure.accuracy import largest_of  # noqa: PLC0415  (imports torch)
    from ivhl.measure.jumps import Jumps  # noqa: PLC0415

    eager, found = _leaves(eager), _leaves(found)
    off, unlike = distance(eager, found)
    if unlike:
        return off, unlike
    if _rounds_to_16_bits():
        return off if off > _NARROW else 0.0, ""
    exact = _widened(exact)
    (own, other), (others, _) = (distance(exact, _widened(one)) for one in (eager, found))
    off = 0.0 if not other and others <= _ROUNDING * own else off
    if off > OFF:
        references, tensors = ([*x.tensors.values()] for x in (eager, found))
        jumps = Jumps(tensors, references, [OFF * largest_of(x) for x in references])
        for look in looks:
            jumps.look([*_leaves(look).tensors.values()])
            if jumps.settled:
                break
        found = replace(found, tensors=dict(zip(found.tensors, jumps.without(), strict=True)))
        off = distance(eager, found)[0]
    return off, ""


def _leaves(outcome: Any) -> Any:  # noqa: ANN401
    from ivhl.measure.leaves import Leaves, leaves_of  # noqa: PLC0415  (imports torch)

    return outcome if isinstance(outcome, Leaves) else leaves_of(outcome)


def _widened(outcome: Any) -> Any:  # noqa: ANN401
    """Return the leaves of an outcome in float64."""
    import torch  # noqa: PLC0415

    from ivhl.measure.draws import cast  # noqa: PLC0415  (imports torch)

    leaves = _leaves(outcome)
    return replace(leaves, tensors=cast(leaves.tensors, torch.float64, torch.device("cpu")))


def refuse_later_calls(function: Callable[..., Any], compiled: Callable[..., Any]) -> None:
    """Refuse compiled code of a model that differs from eager code in a later call.

    Raises:
        CaseError: If it does.
    """
    import torch  # noqa: PLC0415

    if not is_model():
        return
    with nullcontext() if target().step or needs_gradients() else torch.no_grad():
        try:
            twins = [copy.deepcopy(function) for _ in range(3)]
            eager, again = ([*_in_turn(_bound(one, guess_of()), one)] for one in twins[:2])
            exact = eager
            with suppress(Exception):  # not all code runs in float64
                exact = [*_in_turn(_exactly(twins[2], guess_of()), twins[2])]
        except Exception:  # noqa: BLE001  (what eager code cannot do is no verdict)
            return
        found = _in_turn(_bound(compiled, guess_of()), function)
        for number, outcomes in enumerate(zip(eager, again, exact, found, strict=True), 1):
            if distance(*outcomes[:2]) != (0.0, ""):
                return
            looks = _looks(function, guess_of(), partial(_last_of, number))
            off, unlike = _unexplained(outcomes[0], outcomes[3], outcomes[2], looks)
            if unlike or off > OFF:
                twin = copy.deepcopy(function)
                first = [_last_of(1, _bound(twin, guess_of()), twin) for _ in range(2)]
                state = ", which keeps state" if distance(*first) != (0.0, "") else ""
                raise failures.CaseError(
                    "wrong",
                    f"call {number} of {_CALLS} on equal inputs is not like eager code{state}: "
                    + (unlike or f"off by {off:.2g}"),
                )


def _last_of(number: int, call: Callable[[], Any], model: Any) -> Any:  # noqa: ANN401
    return [*islice(_in_turn(call, model), number)][-1]


def _in_turn(call: Callable[[], Any], model: Any) -> Iterator[Any]:  # noqa: ANN401
    """Yield copies of what equal calls return and leave in a model's buffers."""
    import torch  # noqa: PLC0415

    from ivhl.measure.leaves import leaves_of  # noqa: PLC0415  (imports torch)

    for number in range(_CALLS):
        torch.manual_seed(number)
        outcome = _compared(call())
        yield leaves_of((outcome, dict(model.named_buffers()))).copied()


def _compared(outcome: Any) -> Any:  # noqa: ANN401
    """Return what is compared: gradients of this size have no limit to be judged by."""
    return outcome.output[0] if is_model() and target().step else outcome


def _drawn(guess: Guess) -> tuple[list[Any], dict[str, Any]]:
    import torch  # noqa: PLC0415

    def cast(x: Any) -> Any:  # noqa: ANN401
        is_float = isinstance(x, torch.Tensor) and x.is_floating_point()
        return x.to(getattr(torch, dtype())) if is_float else x

    arguments, keywords = _arguments(guess, torch.Generator().manual_seed(1))
    return [*map(cast, arguments)], {name: cast(x) for name, x in keywords.items()}


def _bound(function: Callable[..., Any], guess: Guess) -> partial[Any]:
    """Return the call of a function, or of a model, on drawn inputs."""
    arguments, keywords = _drawn(guess)
    if is_model():
        call = partial(model_step(), function) if target().step else function
        return partial(call, *arguments, **keywords)
    return partial(function, *arguments, *([keywords] if keywords else []))


def convert_frame_counts() -> dict[Any, int]:
    """Return how often Dynamo compiled each frame."""
    from torch._dynamo.convert_frame import FRAME_COMPILE_COUNTER  # noqa: PLC0415

    return dict(FRAME_COMPILE_COUNTER)


def _larger(value: Any) -> Any:  # noqa: ANN401
    """Return a tensor with one more in its first dimension, that of the batch."""
    if isinstance(value, TensorLike) and value.shape:
        return replace(value, shape=(value.shape[0] + 1, *value.shape[1:]))
    return value


def distance(one: Any, other: Any) -> tuple[float, str]:  # noqa: ANN401
    """Return the largest difference of two outputs, over the largest value, and what else differs.

    The difference is finite; the text is empty if structure, shapes, dtypes, places of NaN and
    infinities, and other values are equal.
    """
    import torch  # noqa: PLC0415

    from ivhl.measure.accuracy import as_real  # noqa: PLC0415  (imports torch)
    from ivhl.measure.leaves import difference  # noqa: PLC0415

    a, b = _leaves(one), _leaves(other)
    if unlike := difference(a, b):
        return 0.0, unlike
    found = 0.0
    for path, tensor in a.tensors.items():
        x, y = as_real(tensor.detach()), as_real(b.tensors[path].detach())
        if not torch.equal(x.isfinite(), y.isfinite()):
            return 0.0, f"{path} is not finite in other places"
        x, y = x.nan_to_num(), y.nan_to_num()
        if x.numel():
            scale = torch.maximum(x.abs().max(), y.abs().max()).clamp_min(_TINY)
            found = max(found, float((x - y).abs().max() / scale))
    return found, ""


if __name__ == "__main__":
    # Functions of the declaration are found by the module's own name.
    from ivhl.measure import target as itself  # noqa: PLW0406

    itself.main(sys.argv)
