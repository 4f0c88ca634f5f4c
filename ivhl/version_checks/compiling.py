"""What code does with compiling, by its syntax tree: compiles, asks about it, or turns it off."""

from __future__ import annotations

import ast
import re
from typing import Final

from ivhl.version_checks.names import first_name, last_name

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
# What only describes an argument or a result of an export, or sets the compiler up.
_SET_UP: Final = re.compile(
    r"torch\.export\.(?:Dim|dims|ShapesCollection|ExportedProgram)\b.*"
    r"|.*\.(?:_dynamo|_inductor|dynamo|compiler)\.(?:config\b.*|reset|(?:dis)?allow_in_graph"
    r"|(?:maybe_)?mark_\w+|assume_constant_result)"
)
# Packages whose `compile` is their own.
_FOREIGN: Final = frozenset(
    {
        *("re", "regex", "torch_tensorrt", "tensorrt", "trt", "triton", "tl", "tilelang", "numba"),
        *("jax", "tf", "tensorflow", "keras", "openvino", "ov", "coremltools", "builtins"),
    }
)
# The exporter to ONNX has an argument of this name.
_OF_ONNX: Final = re.compile(r"torch\.onnx\.[\w.]+|[\"']?\bdynamo\b[\"']?\s*[]=:,]")
_CALLED: Final = re.compile(r"compile|\w+_compiled?|compiled?_\w+")
_ASKING: Final = re.compile(r"is_\w+|hasattr|isinstance|setattr")
# What turns compiling off for all that runs after it.
_TURNS_OFF: Final = re.compile(
    r".*\b_?dynamo\.config\.disable = True|.*environ.*TORCH(?:DYNAMO|_COMPILE)_DISABLE.*"
    r"|(?:\w+\.)*(?!\w*(?:pre|re)compil)\w*(?:compile|dynamo|inductor)\w* = False"
)


def speaks_of_compiling(text: str) -> bool:
    """Return whether a text is about compiling."""
    return COMPILING.search(_OF_ONNX.sub("", text)) is not None


def asks_whether_compiling(node: ast.AST) -> bool:
    """Return whether a condition holds only in compiled code, or only outside of it."""
    calls = (one for one in ast.walk(node) if isinstance(one, ast.Call))
    return any(last_name(one.func) in {"is_compiling", "is_dynamo_compiling"} for one in calls)


def is_disable(node: ast.AST) -> bool:
    """Return whether an expression is ``torch.compiler.disable``, called or not."""
    named = getattr(node, "func", node)
    # Nearly all are none, and writing down each would take long.
    return (
        isinstance(named, ast.Attribute)
        and named.attr in _OFF_NAMES
        and _DISABLE.fullmatch(ast.unparse(named)) is not None
    )


def compiles(node: ast.AST) -> bool:
    """Return whether code compiles, not whether its texts speak of it, or it asks about it.

    To import a function that compiles counts, since it is called elsewhere. To import a module does
    not: code that turns compiling off does so, too.
    """
    left = [node]
    while left:
        one = left.pop()
        text = _said(one)
        if text is None:
            continue
        if _CODE.search(text) or _CALLED.fullmatch(text):
            return True
        left += ast.iter_child_nodes(one)
    return False


def _said(node: ast.AST) -> str | None:
    """Return what a node says of compiling; ``None`` if nothing inside of it compiles."""
    if isinstance(node, ast.Attribute):
        text = ast.unparse(node)
        asks = _ASKING.fullmatch(node.attr) or node.attr == "OptimizedModule"
        is_set = not isinstance(node.ctx, ast.Load)
        return None if asks or is_set or is_disable(node) or _SET_UP.fullmatch(text) else text
    if isinstance(node, ast.Call):
        text = "" if first_name(node.func) in _FOREIGN else last_name(node.func)
        whole = any(word.arg == "fullgraph" for word in node.keywords)
        return None if _ASKING.fullmatch(text) else "compile" if whole else text
    if isinstance(node, ast.ImportFrom):
        names = (f"{node.module}.{alias.name}" for alias in node.names)
        return next((n for n in names if not (_SET_UP.match(n) or _DISABLE.match(n))), "")
    return ""


def turns_off(node: ast.AST) -> bool:
    """Return whether code turns compiling off for what runs after it, or for a function."""
    return any(
        (isinstance(one, ast.Call) and is_disable(one))
        or (isinstance(one, ast.Assign | ast.Expr) and _TURNS_OFF.fullmatch(ast.unparse(one)))
        or any(map(is_disable, getattr(one, "decorator_list", ())))
        for one in ast.walk(node)
    )
