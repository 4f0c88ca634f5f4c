"""The cause that a message of PyTorch, of Python or of a library names, in one line.

Two messages have one cause if ``cause_of`` returns the same for both: known failures are grouped by
it, and what is observed of many libraries.
"""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from typing import Final

from ivhl.tracker.wording import lines_of

_ID: Final = re.compile(r"/(gb\d{4})\.html")
# What PyTorch puts around an error: before it, or up to 2.5 on a line of its own.
_AROUND: Final = re.compile(
    r"backend=\S+ raised:\s*|C\+\+ compile error:?\s*|Failed running .*?\):(?:\s+|$)"
    r"|\b(?:\w+\.)*(?:BackendCompilerFailed|InductorError|LoweringException|CppCompileError"
    r"|TorchRuntimeError|Unsupported):(?:\s+|$)"
)
# Where ``measure.dynamo`` says that a graph breaks.
_PLACE: Final = re.compile(r"(?: \(in a loop: .*\))?(?: at \S+:\d+ \S+)?$")
# Standard packages and PyTorch's: what is in others is a library's own.
_KNOWN: Final = (
    r"_*(?:torch|aten|prims|numpy|builtins|math|random|time|os|posix|sys|re|io|json|warnings|logging"
    r"|inspect|functools|itertools|contextlib|copy|operator|collections|typing|weakref|threading"
    r"|hashlib|uuid|types|NoneType|Tensor|int|float|str|list|dict|tuple|set|bool|function)\b"
)
# Before a quoted name that is the cause.
_KEPT: Final = "".join(
    f"(?<!{text} )"
    for text in ("No module named", "cannot import name", "from", "has no attribute")
)
# What an error is about, in the lines below the first one: the operation of a lowering, the
# operation, builtin or method of a graph break.
_ABOUT: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?m)^ *target: (?P<about>[\w.]+)",
        r"Explanation: Operator `(?P<about>[\w.:]+)`",
        r"unsupported operator: (?P<about>(?:aten|prims)\.[\w.]+)",
        r"(?:builtin (?:operator )?|instruction )`(?:<unknown module>\.)?(?P<about>[\w.]*\w)",
        rf"that the function `(?P<name>[\w.]+)`(?: in file `(?P<about>{_KNOWN}\w*)\.py)?",
        r"(?:trace method `|handle op |wrap <class '|: call_function (?=\w+Var))(?P<about>[\w.]+)",
        r"example_value type: (?P<about>\w+); op: call_function; target: <built-in ",
    )
)
# The exception that Dynamo's message has in its own words: of an operation that raises when it is
# traced, or of the code that is compiled, up to 2.13 with the variable of its text.
_CARRIED: Final = re.compile(
    r"(?:with fake tensors: .{0,9999}?: got|raised exception) (?P<type>\w+)"
    r"(?:\((?:\[ConstantVariable\(str: )?(?P<quote>['\"])"
    r"(?P<text>(?:\\.|(?!(?P=quote)).)*)(?:(?P=quote)\)|$)|\(\[?\]?\))",  # or cut off
    re.DOTALL,
)
# How earlier releases of PyTorch word what later ones word otherwise.
_EARLIER: Final = tuple(
    (re.compile(pattern.replace("{known}", _KNOWN)), words)
    for pattern, words in tomllib.loads(
        (files("ivhl.tracker.support") / "earlier.toml").read_text(encoding="utf-8")
    ).items()
)
# What differs between two programs, machines or runs, and what stands for it.
_VARYING: Final = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"\x1b\[[0-9;]*m", ""),
        (r"; `requires` in \S+ names .*", ""),  # a hint of ours
        (r"^\w+(?= requires PyTorch)", "…"),
        (r"(?<='s )(grad|output|model|optimizer)[.\[]\S*", r"\1"),
        (r"\w+://\S+", "…"),
        (r"(?<![\w/.…])(?:~|\.{1,2})?/[\w.+@/-]*\w(?::\d+)*", "…"),
        (r"(?<![\w/.…])(?:[\w+@-][\w.+@-]*/)*[\w.+@-]+\.(?:py|so|cpp|h)\b(?::\d+)*", "…"),
        (r"\b0x(?:[0-9a-fA-F]+|…)", "#"),
        (r"<function \S+ at", "<function … at"),
        (r"\b(?:cpp|triton)_\w*fused_\w+", "…"),
        (r"\bL\[[^\]]*\](?:\.\w+|\[[^\]]*\])*", "…"),
        (r"\b(?:buf|arg|primals|tangents|tmp|getitem|in_ptr|out_ptr|op|s|u|x|y)_?\d\w*\b", "…"),
        (r"\b(\w*Variable)\([^()…]*\)", r"\1(…)"),
        (rf"{_KEPT}(?<![\w'])'(?!{_KNOWN})[^'\s…]+'(?!\w)", "'…'"),
        (r"(?<![\w.])\d+(?:\.\w+){2,}(?:\+\w+)?|\b\d+(?:x\d+)+\b", "#"),
        (r"(?<![\w.])[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?(?![\w]*[A-Za-z_])", "#"),
        (r"#(?:\s*[,x]\s*#)+", "#"),
    )
)


def dynamo_id(text: str) -> str:
    """Return Dynamo's number of a graph break that a text links to: ``GB0124``; else nothing."""
    found = _ID.search(text)
    return found[1].upper() if found else ""


def has_words(cause: str) -> bool:
    """Return whether a cause says more than a name that varies: ``'…'`` does not."""
    return re.search(r"[a-z]{2}", cause) is not None


def carried(message: str) -> tuple[str, str]:
    """Return type and message of the innermost exception in the words of one, or "" and its own."""
    kind = ""
    while found := _CARRIED.search(message):
        kind = found["type"]
        if not found["text"]:
            break
        message = re.sub(
            r"\\(.)", lambda escape: "\n" if escape[1] == "n" else escape[1], found["text"]
        )
    return kind, message


def cause_of(message: str) -> str:
    """Return the cause that a message names: its first line, without what varies.

    That is numbers, shapes, addresses, paths, names of tensors, kernels and the user's own, advice,
    and what PyTorch puts around an error. Added is what it is about: the operation of a lowering, or
    the function or operation that breaks a graph. Graph breaks have the words of 2.7 and later.
    """
    kind, message = carried(message)
    lines = lines_of(message)
    # Dynamo prints the instruction above the reason.
    while len(lines) > 1 and (_AROUND.fullmatch(lines[0]) or "Encountered graph" in lines[0]):
        del lines[0]
    text = _PLACE.sub("", lines[0]) if lines else ""
    below = "\n".join(lines[1:])
    found = next((found for one in _ABOUT if (found := one.search(below))), None)
    about = ".".join(filter(None, reversed(found.groups()))) if found else ""
    if about and about not in text:
        text = f"{text.rstrip(': ')}: {about}"
    before = None
    while text != before:  # what is left may show more of it
        before, text = text, next(iter(lines_of(_once(text))), "")  # advice is none of it
    return text if has_words(text) or not kind else f"{kind}: {text}"


def _once(text: str) -> str:
    text = _AROUND.sub("", text)
    for pattern, words in _EARLIER:
        if found := pattern.fullmatch(text):
            text = found.expand(words)
    for pattern, words in _VARYING:
        text = pattern.sub(words, text)
    return " ".join(text.split())
