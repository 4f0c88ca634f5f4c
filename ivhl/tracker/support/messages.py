"""The cause that a message of PyTorch, of Python or of a library names, in one line.

Two messages have one cause if ``cause_of`` returns the same for both: known failures are grouped by
it, and what is observed of many libraries.
"""

from __future__ import annotations

import re
from typing import Final

from ivhl.tracker.wording import lines_of

_ID: Final = re.compile(r"/(gb\d{4})\.html")
# What PyTorch puts around an error, up to 2.5 on a line of its own, later before it.
_AROUND: Final = re.compile(
    r"(?:backend=\S+ raised:|(?:\w+\.)*(?:BackendCompilerFailed|InductorError|LoweringException"
    r"|TorchRuntimeError|Unsupported):)\s*"
)
# Where ``measure.dynamo`` says that a graph breaks.
_PLACE: Final = re.compile(r" at \S+\.py:\d+ .*$")
# The operation of a lowering that fails, below the error.
_TARGET: Final = re.compile(r"target: (?P<about>\S+)")
# What a graph break is about: operation, builtin function, function that Dynamo skips, method.
_ABOUT: Final = (
    re.compile(r"Explanation: Operator `(?P<about>[\w.:]+)`"),
    re.compile(r"builtin operator `(?P<about>\w+)`"),
    re.compile(r"(?P<about>module: \S+, qualname: \S+), skip reason"),
    re.compile(r"trace method `(?P<about>\w+)` of class"),
)
_QUALIFIED: Final = re.compile(r"module: (?P<module>\S+), qualname: (?P<name>\S+)")
# Names that are nobody's own: a user's function is no cause of PyTorch's.
_KNOWN: Final = (
    r"_*(?:torch|aten|prims|numpy|builtins|math|random|time|os|posix|sys|re|io|json|warnings|logging"
    r"|inspect|functools|itertools|contextlib|copy|operator|collections|typing|weakref|thread(?:ing)?"
    r"|hashlib|uuid|types|NoneType|Tensor|int|float|str|list|dict|tuple|set|bool|function)\b"
)
# How PyTorch 2.5 and 2.6 word what later releases word otherwise.
_EARLIER: Final = tuple(
    (re.compile(pattern), words)
    for pattern, words in {
        r"Tensor\.item|data dependent operator: aten\._local_scalar_dense\.default.*": (
            "Unsupported Tensor.item() call with capture_scalar_outputs=False"
        ),
        r"(?:data-dependent branching.*|generic_jump TensorVariable\(\)|Data-dependent jump)": (
            "Data-dependent branching"
        ),
        r"dynamic shape operator: ([\w.]+); to enable.*": r"Dynamic shape operator: \1",
        r"data dependent operator: ([\w.]+);.*": r"Data dependent operator: \1",
        r"call_function BuiltinVariable\((\w+)\) .*": r"Failed to trace builtin operator: \1",
    }.items()
)
# What differs between two programs, machines or runs, and what stands for it.
_VARYING: Final = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"\x1b\[[0-9;]*m", ""),
        (r"(?<=call's )(grad|output|model|optimizer)[.\[]\S*", r"\1"),
        (r"\w+://\S+", "…"),
        (r"(?<![\w/.…])(?:~|\.{1,2})?/?(?:[\w.+@-]+/)+[\w.+@-]*(?::\d+)*", "…"),
        (r"\b0x[0-9a-fA-F]+", "#"),
        (r"\b(?:cpp|triton)_\w*fused_\w+", "…"),
        (r"\bL\[[^\]]*\](?:\.\w+|\[[^\]]*\])*", "…"),
        (
            r"\b(?:buf|arg|primals|tangents|tmp|getitem|view|in_ptr|out_ptr|op|s|u|x|y)_?\d\w*\b",
            "…",
        ),
        (r"\b(?!(?:Builtin)Variable)(\w*Variable)\([^()]*\)", r"\1(…)"),
        (rf"(?<![\w'])'(?!{_KNOWN})[^'\s…]+'(?!\w)", "'…'"),
        (r"(?<![\w.])[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?(?![\w]*[A-Za-z_])", "#"),
        (r"#(?:\s*[,x×]\s*#)+", "#"),
    )
)


def dynamo_id(text: str) -> str:
    """Return Dynamo's number of a graph break that a text links to, e.g. ``GB0124``; else nothing."""
    found = _ID.search(text)
    return found[1].upper() if found else ""


def cause_of(message: str) -> str:
    """Return the cause that a message names: its first line, without what varies.

    That is numbers, shapes, addresses, paths, names of tensors, kernels and the user's own, advice,
    and what PyTorch puts around an error. Added is what it is about: the operation of a lowering, or
    the function or operation that breaks a graph. Graph breaks have the words of 2.7 and later.
    """
    lines = lines_of(message)
    while len(lines) > 1 and _AROUND.fullmatch(lines[0]):
        del lines[0]
    text = _PLACE.sub("", lines[0]) if lines else ""
    if (about := _about(lines)) and about not in text:
        text = f"{text.rstrip(': ')}: {about}"
    before = None
    while text != before:  # what is left may show more of it
        before, text = text, _once(text)
    return text


def _about(lines: list[str]) -> str:
    """Return what the lines below the first one say that it is about; empty if nothing known."""
    below = "\n".join(lines[1:])
    found = next((f for pattern in (_TARGET, *_ABOUT) if (f := pattern.search(below))), None)
    if found is None:
        return ""
    if (qualified := _QUALIFIED.match(found["about"])) is None:
        return found["about"]
    module = qualified["module"]
    return f"{module}.{qualified['name']}" if re.match(_KNOWN, module) else ""


def _once(text: str) -> str:
    text = _AROUND.sub("", text)
    for pattern, words in _EARLIER:
        if found := pattern.fullmatch(text):
            text = found.expand(words)
    for pattern, words in _VARYING:
        text = pattern.sub(words, text)
    return " ".join(text.split())
