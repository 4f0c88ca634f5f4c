"""Two wrapped methods of asv: one keeps a failure as a point, one learns the machine's name."""

from __future__ import annotations

from functools import wraps
from typing import Any

from asv.machine import Machine
from asv.results import Results

# The name of this machine, once asv has said it.
KNOWN: dict[str, str] = {}


def install() -> None:
    """Wrap the methods, once."""
    if not hasattr(Results.add_result, "__wrapped__"):
        Results.add_result = _keep_failures(Results.add_result)
        Machine.save = _keep_name(Machine.save)


def _keep_failures(add_result: Any) -> Any:  # noqa: ANN401  (asv has no types)
    @wraps(add_result)
    def wrapped(self: Any, benchmark: Any, result: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        # A cell that cannot be made gives asv no value at all, and its graphs then show nothing:
        # a benchmark says itself, by this attribute, what its value is in that case.
        if "on_failure" in benchmark and result.result is not None:
            wanted = kwargs.get("selected_idx")
            kept = [
                benchmark["on_failure"] if r is None and (wanted is None or i in wanted) else r
                for i, r in enumerate(result.result)
            ]
            result = result._replace(result=kept)
        add_result(self, benchmark, result, *args, **kwargs)

    return wrapped


def _keep_name(save: Any) -> Any:  # noqa: ANN401
    @wraps(save)
    def wrapped(self: Any, results_dir: str) -> None:  # noqa: ANN401
        # Under plain `asv run --machine NAME` only asv knows the name, and records go by it. asv
        # saves the machine before it makes the first environment.
        KNOWN["machine"] = self.machine
        save(self, results_dir)

    return wrapped
