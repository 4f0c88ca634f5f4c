"""What code does with compiling, by its syntax tree: compiles, asks about it, or turns it off."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from ivhl.version_checks.names import first_name, last_name
from ivhl.version_checks.walks import nodes_in, statements_in

if TYPE_CHECKING:
    from collections.abc import Iterator

# Words that speak of compiling, in names and in texts.
COMPILING: Final = re.compile(
    r"(?<!re\.)\b(?:torch\.compile|torch\.compiler|_dynamo|dynamo|_inductor|inductor|aot_\w+|aoti\w*"
    r"|torch\.export|torch\._export|fullgraph|compile|compiled|compiler|compiling)\b",
    re.IGNORECASE,
)
_DISABLE: Final = re.compile(
    r"(?:torch\.)?(?:compiler|_dynamo|dynamo)\.(?:disable|skip)|torch\._disable_dynamo"
)
_OFF_NAMES: Final = frozenset({"disable", "skip", "_disable_dynamo"})  # their last parts
# What code that compiles says, not what asks whether something is compiled, or sets it up.
_CODE: Final = re.compile(
    r"torch\.compile\b|torch\._dynamo|torch\._inductor|torch\.export\b|torch\._export"
    r"|torch\.compiler\.|^dynamo\.|\._dynamo\b"
)
# What only describes an argument or a result of an export.
_DESCRIBES: Final = re.compile(r"torch\.export\.(?:Dim|dims|ShapesCollection|ExportedProgram)\b.*")
# Packages whose `compile` is their own.
_FOREIGN: Final = frozenset(
    {
        *("re", "regex", "torch_tensorrt", "tensorrt", "trt", "triton", "tl", "tilelang", "numba"),
        *("jax", "tf", "tensorflow", "keras", "openvino", "ov", "coremltools", "builtins"),
    }
)
# The exporter to ONNX has an argument of this name.
_OF_ONNX: Final = re.compile(r"torch\.onnx\.[\w.]+|[\"']?\bdynamo\b[\"']?\s*[]=:,]")
_SET_UP: Final = re.compile(
    r".*\.(?:_dynamo|_inductor|dynamo|compiler)\.(?:config\b.*|reset|(?:dis)?allow_in_graph"
    r"|(?:maybe_)?mark_\w+|assume_constant_result)"
)
_CALLED: Final = re.compile(r"compile|\w+_compiled?|compiled?_\w+")
_ABOUT: Final = frozenset({"OptimizedModule"})
# Calls that ask whether this code is being compiled.
_COMPILING_NOW: Final = frozenset({"is_compiling", "is_dynamo_compiling"})
_FLAG: Final = re.compile(r"(?i)(?!.*(?:pre|re)compil).*(?:compil|dynamo|inductor)\w*")
# Environment variables, and the field of a configuration, that turn compiling off.
_VARIABLES: Final = frozenset({"TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"})
_OFF: Final = re.compile(r".*\b_?dynamo\.config\.disable")


def speaks_of_compiling(text: str) -> bool:
    """Return whether a text is about compiling."""
    return COMPILING.search(_OF_ONNX.sub("", text)) is not None


def asks_whether_compiling(node: ast.AST) -> bool:
    """Return whether a condition holds only in compiled code, or only outside of it."""
    calls = (one for one in nodes_in(node) if isinstance(one, ast.Call))
    return any(last_name(one.func) in _COMPILING_NOW for one in calls)


def is_disable(node: ast.expr) -> bool:
    """Return whether an expression is ``torch.compiler.disable``, called or not."""
    named = getattr(node, "func", node)
    # Nearly all are none, and writing down each would take long.
    return (
        isinstance(named, ast.Attribute) and named.attr in _OFF_NAMES and _off(ast.unparse(named))
    )


def names_of_disable(tree: ast.AST) -> frozenset[str]:
    """Return the names of a file that somewhere become ``torch.compiler.disable``.

    Also one that is ``None``, or does nothing, until something else has been imported.
    """
    return frozenset(
        target.id
        for node in statements_in(tree)
        if isinstance(node, ast.Assign) and is_disable(node.value)
        for target in node.targets
        if isinstance(target, ast.Name) and not isinstance(node.value, ast.Call)
    )


def _off(name: str) -> bool:
    return _DISABLE.fullmatch(name) is not None


def compiles(node: ast.AST) -> bool:
    """Return whether code compiles, not whether its texts speak of it, or it asks about it.

    To import a function that compiles counts, since it is called elsewhere. To import a module does
    not: code that turns compiling off does so, too.
    """
    asked: set[int] = set()
    for one in nodes_in(node):  # from the outside in
        text = ""
        if isinstance(one, ast.Attribute):
            text = ast.unparse(one)
            if (
                id(one) in asked
                or one.attr.startswith("is_")
                or one.attr in _ABOUT
                or not isinstance(one.ctx, ast.Load)
                or _SET_UP.fullmatch(text)
                or _DESCRIBES.fullmatch(text)
                or is_disable(one)
            ):
                asked.add(id(one.value))
                continue
        elif isinstance(one, ast.Call):
            text = "" if first_name(one.func) in _FOREIGN else last_name(one.func)
            if text in ("hasattr", "isinstance", "set_stance", "setattr") or text.startswith(
                "is_"
            ):
                asked.update(map(id, nodes_in(one)))
                continue
            if any(word.arg == "fullgraph" for word in one.keywords):
                return True
        elif isinstance(one, ast.ImportFrom):
            names = (f"{one.module}.{alias.name}" for alias in one.names)
            text = next((n for n in names if not _SET_UP.fullmatch(n) and not _off(n)), "")
        elif _flag(one) is True:
            return True
        if id(one) not in asked and (_CODE.search(text) or _CALLED.fullmatch(text)):
            return True
    return False


def turned_off(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what in code turns compiling off for what runs after it, or for a function."""
    for one in nodes_in(node):
        if isinstance(one, ast.Call):
            stance = [*one.args[:1], *(w.value for w in one.keywords if w.arg == "stance")]
            given = [a.value for a in stance if isinstance(a, ast.Constant)]
            if is_disable(one) or (last_name(one.func) == "set_stance" and "force_eager" in given):
                yield one
        elif (
            _flag(one) is False
            or _replaces(one)
            or off_switch(one.value if isinstance(one, ast.Expr) else one) is not None
        ):
            yield one


def off_switch(node: ast.AST) -> ast.Constant | None:
    """Return the value that turns Dynamo off for the whole process, where code sets it."""
    if isinstance(node, ast.Call) and last_name(node.func) == "setdefault":
        if "environ" in ast.unparse(node.func) and len(node.args) > 1:
            return _given(node.args[0], node.args[1])
    elif isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and "environ" in ast.unparse(target.value):
            return _given(target.slice, node.value)
        value = off_value(node)
        if isinstance(value, ast.Constant) and value.value is True:
            return value
    return None


def off_value(node: ast.Assign) -> ast.expr | None:
    """Return what code sets ``torch._dynamo.config.disable`` to; ``None`` if it does not."""
    target = node.targets[0]
    if len(node.targets) > 1 or not isinstance(target, ast.Attribute) or target.attr != "disable":
        return None
    return node.value if _OFF.fullmatch(ast.unparse(target)) else None


def _given(key: ast.expr, value: ast.expr) -> ast.Constant | None:
    if not isinstance(key, ast.Constant) or key.value not in _VARIABLES:
        return None
    return value if isinstance(value, ast.Constant) and value.value not in ("0", "") else None


def _flag(node: ast.AST) -> bool | None:
    """Return what code sets ``use_compile`` and the like to; ``None`` if it does not."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(
        node.value, ast.Constant
    ):
        return None
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        name = str(target.slice.value)
        if name == "dynamo":  # of the exporter to ONNX
            return None
    else:
        name = last_name(target)
    if not _FLAG.fullmatch(name) or _OFF.fullmatch(ast.unparse(target)):
        return None
    value = node.value.value
    return bool(value) if value is None or isinstance(value, bool) else None


def _replaces(node: ast.AST) -> bool:
    """Return whether ``torch.compile`` itself is replaced by a function that does nothing."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Lambda)
        and any(ast.unparse(target) == "torch.compile" for target in node.targets)
    )
