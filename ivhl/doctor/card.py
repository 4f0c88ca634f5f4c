"""Check the NVIDIA driver and the GPUs. Read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ivhl.measure.finding import Finding
from ivhl.measure.gpu import SmiError, ask_cards, look_at_processes, look_at_steadiness

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ivhl.measure.finding import System
    from ivhl.records import Level


def look_at_cards(system: System, *, wanted: bool) -> Iterator[Finding]:
    """Yield findings about the driver and each GPU.

    Args:
        system: Gives access to ``/proc``.
        wanted: Whether the run needs a GPU, so that a missing one is wrong.
    """
    driver = (system.root / "proc/driver/nvidia").exists()
    try:
        cards = ask_cards()
    except FileNotFoundError:
        if driver:
            yield Finding(
                "GPU",
                "wrong",
                "there is a driver but no nvidia-smi",
                "put it on PATH; start a container with --gpus all",
            )
        elif wanted:
            yield Finding(
                "GPU", "wrong", "no NVIDIA driver", "install one (docs/runners.md), or measure cpu"
            )
        else:
            yield Finding("GPU", "ok", "no NVIDIA driver; cases run on the CPU")
        return
    except SmiError as error:
        level: Level = "wrong" if wanted or driver else "warning"
        hint = "see dmesg; a driver that was updated without a reboot fails like this"
        yield Finding("GPU", level, f"nvidia-smi: {error}", hint)
        return
    for card in cards:
        yield from _look_at(card)
    yield look_at_processes()


def _look_at(card: Mapping[str, str]) -> Iterator[Finding]:
    name = f"GPU {card['index']}"
    yield Finding(name, "ok", f"{card['name']}, driver {card['driver_version'] or 'not told'}")
    if card["compute_mode"] == "Prohibited":
        hint = f"sudo nvidia-smi -i {card['index']} -c DEFAULT"
        yield Finding(f"{name} compute mode", "wrong", "prohibited: nothing can run", hint)
    yield _persistence(name, card)
    yield _mig(name, card)
    yield from look_at_steadiness(card)


def _persistence(name: str, card: Mapping[str, str]) -> Finding:
    check = f"{name} persistence mode"
    if card["persistence_mode"] == "Disabled":
        hint = "sudo nvidia-smi -pm 1, or nvidia-persistenced: else each process loads the driver"
        return Finding(check, "warning", "off", hint)
    return Finding(check, "ok", "on" if card["persistence_mode"] == "Enabled" else "not told")


def _mig(name: str, card: Mapping[str, str]) -> Finding:
    if card["mig.mode.current"] == "Enabled":
        hint = "measure on a whole GPU, or give the slice its own --machine name"
        return Finding(f"{name} MIG", "warning", "on: cases run on a slice of the GPU", hint)
    return Finding(f"{name} MIG", "ok", "off")
