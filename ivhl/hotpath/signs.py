"""Signs that a program does something else than the turns of a loop that are not looked at.

Such as an evaluation after some training steps: the model is called once more, modules are put into
another mode, gradients are switched off. Python's own ``sys.monitoring`` tells when these functions
begin, without a replacement of any. Of modules, only the outermost ones of turns that were looked at
are signs: each sign takes up to a microsecond of a turn.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

_monitoring: Final[Any] = getattr(sys, "monitoring", None)  # from Python 3.12 on
# Of the tools that may watch a process, those that Python has for no purpose.
_TOOLS: Final = (3, 4)
# Not ``torch.set_grad_enabled``, which each step of an optimizer calls.
_ALWAYS: Final = (
    torch.nn.Module.train.__code__,
    torch.no_grad.__enter__.__code__,
    torch.inference_mode.__enter__.__code__,
)
_MODULE_CALL: Final = torch.nn.Module._wrapped_call_impl.__code__  # noqa: SLF001
# By id: the hash of code is that of all its instructions.
_watched: Final[dict[int, CodeType]] = {}
_tool: int | None = None  # ours, while there are blocks


def watch_signs(see: Callable[[CodeType, int], None]) -> None:
    """Call a function at each sign, in the thread that gives it.

    Never on Python 3.11, or if others have all tools.

    Args:
        see: Is given the code that begins, and the place in it.
    """
    global _tool  # noqa: PLW0603  (of the process, as what it watches)
    if _monitoring is None:
        return
    _tool = next((one for one in _TOOLS if _monitoring.get_tool(one) is None), None)
    if _tool is not None:
        _monitoring.use_tool_id(_tool, __name__)
        _monitoring.register_callback(_tool, _monitoring.events.PY_START, see)
        for code in _ALWAYS:
            watch_sign(code)


def watch_sign(code: CodeType) -> bool:
    """Take a function for a sign, too, until the last block has ended; return whether it is new."""
    if _tool is None or id(code) in _watched:
        return False
    _monitoring.set_local_events(_tool, code, _monitoring.events.PY_START)
    _watched[id(code)] = code
    return True


def unwatch_signs() -> None:
    """Undo ``watch_signs``."""
    global _tool  # noqa: PLW0603
    if _tool is not None:
        for code in _watched.values():
            _monitoring.set_local_events(_tool, code, 0)
        _watched.clear()
        _monitoring.register_callback(_tool, _monitoring.events.PY_START, None)
        _monitoring.free_tool_id(_tool)
        _tool = None


def model_of_caller() -> CodeType | None:
    """Return the ``forward`` of the outermost module that runs; ``None`` if nothing is watched."""
    if _tool is None:
        return None
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    # The two codes that a frame has called: of a module, ``_call_impl`` and ``forward``.
    below: tuple[CodeType | None, CodeType | None] = None, None
    found = None
    while frame is not None:
        if frame.f_code is _MODULE_CALL:
            found = below[0]
        below = below[1], frame.f_code
        frame = frame.f_back
    return found
