"""``ivhl bench --executor nice``: leave the CPUs to whatever else needs them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ivhl.bench.main import Executor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.bench.request import Request
    from ivhl.records.record import Machine


class NiceExecutor(Executor):
    """This machine, with a lower priority."""

    interface = 1

    def machine(self, request: Request) -> Machine:
        """Return this machine by a name of its own: other times are not comparable."""
        machine = super().machine(request)
        return replace(machine, name=f"{machine.name}-nice")

    def command(self, words: Sequence[str]) -> Sequence[str]:
        """Return the command, run by ``nice``."""
        return ["nice", "-n", "5", *words]
