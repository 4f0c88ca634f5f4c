"""Write down how a script ended and what the compiler did: runs in the script's own process.

A cell holds this file as ``_ivhl_observer``; a ``.pth`` file imports it if ``IVHL_OBSERVE`` names a
file. It needs the standard library only, changes nothing that the script sees, and reads the last
exception and the counters of Dynamo when the interpreter ends. A process that ends otherwise
(``os._exit``, a signal) leaves no file. ``IVHL_CHANGE`` (``ivhl blame SCRIPT``) holds a
backend to use in place of Inductor, or settings of the compiler, as JSON; torch is imported first.

The ``.pth`` file also shortens Inductor's check of vector instructions: up to 2.12 a script that
compiles starts a process that imports torch, 1.6 CPU s, for each set of them.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import sys
import traceback
from contextlib import suppress
from functools import reduce
from importlib import import_module
from typing import Any

VARIABLE = "IVHL_OBSERVE"
# Each has more of the compiler than the one before.
BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")
CHANGE = "IVHL_CHANGE"
MODULE = "_ivhl_observer"
# How the process of a check of vector instructions begins what it runs.
CHECK = '\nimport torch\nfrom ctypes import cdll\ncdll.LoadLibrary("'
# Python runs the lines of a ``.pth`` file that begin with ``import``.
PTH = f"""\
import os; os.environ.get({VARIABLE!r}) and __import__({MODULE!r}).observe()
import sys; sys.orig_argv[2:3] and sys.orig_argv[2].startswith({CHECK!r}) \
and __import__({MODULE!r}).check_instructions()
"""
_SHOWN = 20  # reasons of graph breaks, and of recompiles
_CHAIN = 100  # exceptions, each raised from the next: they may be a ring


def observe() -> None:
    """Begin: take the name of the file out of the environment, so that no child writes it."""
    path = os.environ.pop(VARIABLE)
    change = json.loads(os.environ.pop(CHANGE, "null"))
    main = os.getpid()
    seen: dict[str, Any] = {}

    def write() -> None:
        if os.getpid() != main:  # a fork that ended by itself
            return
        for read in (last_exception, counts):
            # An exception whose text raises another, or a release without these counters.
            with suppress(Exception):
                seen.update(read())
        with open(f"{path}.part", "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(seen, file)
        os.replace(f"{path}.part", path)  # noqa: PTH105

    atexit.register(write)
    if change is not None:
        change_compiler(change, seen)


def last_exception() -> dict[str, Any]:
    """Return the exception that Python passed to ``sys.excepthook``, whoever had replaced that."""
    error = getattr(sys, "last_exc", None)  # since Python 3.12, the oldest of the cells
    if error is None:
        return {}
    found = {
        "type": name_of(error),
        "message": str(error),
        "frames": [
            [f.filename, f.lineno, f.name] for f in traceback.extract_tb(error.__traceback__)
        ],
    }
    inner = source_of(error)
    if inner is not error:
        found["inner"] = [name_of(inner), str(inner)]
    return {"exception": found}


def name_of(error: BaseException) -> str:
    """Return the type of an exception, with its module if that is not Python's."""
    kind = type(error)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def source_of(error: BaseException) -> BaseException:
    """Return the exception from which others were raised, as a traceback begins.

    An exception of torch ends the search: what torch handled before it differs between releases,
    and its message has what it was raised from.
    """
    for _ in range(_CHAIN):
        before = error.__cause__
        if before is None and not error.__suppress_context__ and not is_in_torch(error):
            before = error.__context__
        if before is None or type(error).__module__.startswith("torch."):
            break
        error = before
    return error


def is_in_torch(error: BaseException) -> bool:
    """Return whether code of torch raised an exception."""
    frames = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and f"{os.sep}torch{os.sep}" in frames[-1]


def check_instructions() -> None:
    """Load what was compiled for a set of instructions, as Inductor does since 2.13, and end.

    Return if that fails: then the process imports torch and loads it again.
    """
    from ctypes import CDLL  # noqa: PLC0415  (neither is of use to the script's own process)
    from importlib.util import find_spec  # noqa: PLC0415

    path, _, rest = sys.orig_argv[2].removeprefix(CHECK).partition('"')
    torch = find_spec("torch")
    if (
        rest.strip() != ")" or torch is None or torch.origin is None
    ):  # code that does more runs whole
        return
    with suppress(OSError):
        CDLL(os.path.join(os.path.dirname(torch.origin), "lib", "libtorch.so"))  # noqa: PTH118, PTH120
        CDLL(path)
        os._exit(0)


def change_compiler(change: dict[str, Any], seen: dict[str, Any]) -> None:
    """Import torch, and change what compiles; ``seen`` gets ``refused``, or ``changed``."""
    torch: Any = import_module("torch")
    if name := change.get("backend"):
        change_backend(torch, name, seen)
    if change.get("off"):
        turn_off(torch)
    given = change.get("settings", [change] if "field" in change else [])
    lacking = [one for one in given if not set_value(one)]
    if given and lacking == given:
        fields = ", ".join(f"{one['module']}.{one['field']}" for one in lacking)
        seen["refused"] = f"this release has no setting {fields}"


def turn_off(torch: Any) -> None:  # noqa: ANN401  (a module)
    """Let the compiler return what it gets, also where a script asks for a whole graph.

    Since 2.13 ``fullgraph=True`` raises if nothing is compiled.
    """
    import_module("torch._dynamo.config").disable = True  # type: ignore[attr-defined]
    own = torch.compile

    def compile_nothing(model: Any = None, *, fullgraph: bool = False, **options: Any) -> Any:  # noqa: ANN401
        del fullgraph
        try:
            return own(model, **options)
        except RuntimeError:  # it refuses this Python, also if it is to compile nothing
            return model or (lambda function: function)

    torch.compile = compile_nothing


def change_backend(torch: Any, name: str, seen: dict[str, Any]) -> None:  # noqa: ANN401  (a module)
    """Use a backend in place of each that has more of the compiler, by ``BACKENDS``."""
    registry: Any = import_module("torch._dynamo.backends.registry")
    own = registry.lookup_backend
    seen["changed"] = False

    def lookup(asked: Any) -> Any:  # noqa: ANN401  (a name, or a function)
        if asked in BACKENDS[:-1]:  # of a script that names it
            seen["changed"] = True
            if BACKENDS.index(asked) > BACKENDS.index(name):
                return own(name)
        return own(asked)

    def compile_graph(_: object, graph: Any, inputs: Any) -> Any:  # noqa: ANN401
        seen["changed"] = True
        return own(name)(graph, inputs)

    registry.lookup_backend = lookup
    torch._TorchCompileInductorWrapper.__call__ = compile_graph  # noqa: SLF001


def set_value(setting: dict[str, Any]) -> bool:
    """Change a setting of the compiler; return whether this release has it."""
    *path, field = setting["field"].split(".")
    try:
        holder = reduce(getattr, path, import_module(setting["module"]))
        getattr(holder, field)
        setattr(holder, field, setting["value"])
    except (ImportError, AttributeError):
        return False
    return True


def counts() -> dict[str, Any]:
    """Return graphs, graph breaks and recompiles of this process; ``None`` for what is not known."""
    convert = sys.modules.get("torch._dynamo.convert_frame")
    found = sys.modules.get("torch._dynamo.utils")
    if convert is None or found is None:  # nothing was compiled
        return {"graphs": 0, "graph_breaks": 0, "recompiles": 0, "captured": 0}
    frames = found.counters["frames"]
    graphs = int(found.counters["stats"]["unique_graphs"])
    eager = max(int(frames["total"]) - int(frames["ok"]) - raised(convert, found), 0)
    broken = found.graph_break_reasons
    counted = sum(found.counters["graph_break"].values())
    # Of each frame, in all releases from 2.2; ``torch._dynamo.reset`` forgets it.
    compiles = convert.FRAME_COMPILE_COUNTER
    known = sum(compiles.values()) >= graphs  # of one compilation comes at most one
    return {
        "graphs": graphs,
        "captured": int(found.counters["stats"]["calls_captured"]),
        "graph_breaks": max(len(broken) + eager, counted),
        "recompiles": sum(n - 1 for n in compiles.values()) if known else None,
        "reasons": [reason_of(one) for one in broken[:_SHOWN]],
        "failed_guards": failed_guards(found),
    }


def reason_of(broken: Any) -> str:  # noqa: ANN401  (a GraphCompileReason)
    """Return why a graph broke, without the page that tells more."""
    return str(broken.reason).partition("For more details about this graph break")[0].strip()[:600]


def failed_guards(found: Any) -> list[str]:  # noqa: ANN401  (a module)
    """Return why code was compiled again: a guard that failed, of those that differ in numbers."""
    failures = getattr(found, "guard_failures", {})
    # Without the number of the code that was compiled before, the folder of the script, addresses.
    noise = re.compile(r"^\d+/\d+: |(?<=# )\S*/(?=\S+:\d+ in )")
    guards = (
        f"{getattr(code, 'co_name', '?')}: {noise.sub('', str(one).partition(chr(10))[0])}"
        for code, ones in failures.items()
        for one in ones
    )
    guards = (re.sub(r"\b\d{12,}(?=\))", "...", one) for one in guards)
    kinds: dict[str, str] = {}
    for one in guards:
        kinds.setdefault(re.sub(r"\d+", "", one), " ".join(one.split())[:600])
    return [*kinds.values()][:_SHOWN]


def raised(convert: Any, found: Any) -> int:  # noqa: ANN401  (modules)
    """Return how many frames ended with an exception that Dynamo passed on: no graph breaks.

    Dynamo runs a frame eagerly after ``Unsupported``, and in newer releases after ``UserError``.
    """
    if convert.config.suppress_errors:
        return 0
    soft: tuple[type, ...] = (convert.exc.Unsupported,)
    frame = getattr(convert, "ConvertFrame", None)  # none in 2.2
    if frame is not None and "UserError" in frame.__call__.__code__.co_names:
        soft += (convert.exc.UserError,)
    failures = (getattr(one, "fail_type", None) for one in found.get_compilation_metrics())
    kinds = (getattr(convert.exc, name, Exception) for name in failures if name)
    return sum(not issubclass(kind, soft) for kind in kinds)
