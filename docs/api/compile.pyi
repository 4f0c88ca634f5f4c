# Promised of ivhl.compile (docs/api.md); python -m tests.contract.api writes it.
import contextlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, overload

class CompileFallbackWarning(RuntimeWarning):
    ...
@dataclass(frozen=True, slots=True)
class CompileReport:
    functions: tuple[FunctionReport, ...]
@dataclass(frozen=True, kw_only=True, slots=True)
class FunctionReport:
    name: str
    mode: Mode
    frames: int
    graph_breaks: dict[str, int]
    recompiles: dict[str, int]
    seconds: float
    fell_back: bool
    cause: str
Mode = Literal['default', 'reduce-overhead', 'max-autotune', 'max-autotune-no-cudagraphs']
def clear_compile_cache(*, disk: bool=False) -> None:
    ...
@contextlib.contextmanager
def compile_mode(mode: Mode | Literal['auto'] | None) -> Iterator[None]:
    ...
def compile_report() -> CompileReport:
    ...
def get_compile_mode(device: torch.device | str | None=None) -> Mode | None:
    ...
@overload
def get_compiled(function: Callable[P, R], *, mode: Mode | None=None, dynamic: bool | None=None, fullgraph: bool=False, fallback_on_error: bool=True, backend: Callable[..., Any] | None=None) -> Callable[P, R]:
    ...
@overload
def get_compiled(function: None=None, *, mode: Mode | None=None, dynamic: bool | None=None, fullgraph: bool=False, fallback_on_error: bool=True, backend: Callable[..., Any] | None=None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    ...
def get_compiled(function: Callable[P, R] | None=None, *, mode: Mode | None=None, dynamic: bool | None=None, fullgraph: bool=False, fallback_on_error: bool=True, backend: Callable[..., Any] | None=None) -> Callable[P, R] | Callable[[Callable[P, R]], Callable[P, R]]:
    ...
def set_compile_mode(mode: Mode | Literal['auto'] | None) -> None:
    ...
