"""The machine code by which the speed of a machine is measured computes what its source says."""

from __future__ import annotations

import platform
import shutil
import struct
import subprocess
from array import array
from typing import TYPE_CHECKING

import pytest

from ivhl.measure.yardstick import CODE, COEFFICIENTS, NUMBERS, Yardstick

if TYPE_CHECKING:
    from pathlib import Path


def float32(value: float) -> float:
    """Round to float32; a product or sum of two float32 rounded twice is rounded right."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def polynomial(x: float) -> float:
    found = float32(COEFFICIENTS[0])
    for coefficient in COEFFICIENTS[1:]:
        found = float32(float32(found * x) + float32(coefficient))
    return found


@pytest.mark.skipif(platform.machine() not in CODE, reason="no code for this architecture")
def test_machine_code_computes_the_polynomial_of_its_source() -> None:
    code = Yardstick()
    code(2)
    x, y = array("f", code.x[:]), array("f", code.y[:])
    assert len(x) == len(y) == NUMBERS
    assert list(y) == [polynomial(one) for one in x]


PROGRAM = """
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
static const unsigned char code[] = {BYTES};
static const float coefficients[] = {COEFFICIENTS};
int main(void) {
    static float x[64] __attribute__((aligned(16))), y[64] __attribute__((aligned(16)));
    static float c[4 * 13] __attribute__((aligned(16)));
    void *page = mmap(0, sizeof code, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, code, sizeof code);
    __builtin___clear_cache((char *)page, (char *)page + sizeof code);
    for (int i = 0; i < 64; i++) x[i] = i / 64.0f;
    for (int i = 0; i < 4 * 13; i++) c[i] = coefficients[i / 4];
    ((void (*)(float *, float *, float *, long, long))page)(x, y, c, 16, 2);
    for (int i = 0; i < 64; i++) printf("%a\\n", y[i]);
}
"""


@pytest.mark.skipif(
    not (shutil.which("aarch64-linux-gnu-gcc") and shutil.which("qemu-aarch64")),
    reason="needs Debian's gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user",
)
def test_machine_code_of_the_other_architecture_computes_the_same(tmp_path: Path) -> None:
    text = PROGRAM.replace("BYTES", ",".join(map(str, CODE["aarch64"])))
    text = text.replace("COEFFICIENTS", ",".join(f"{one!r}f" for one in COEFFICIENTS))
    (tmp_path / "program.c").write_text(text, encoding="utf-8")
    compiler = ["aarch64-linux-gnu-gcc", "-O1", "-static", "program.c", "-o", "program"]
    subprocess.run(compiler, cwd=tmp_path, check=True)
    done = subprocess.run(
        ["qemu-aarch64", "./program"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert [float.fromhex(one) for one in done.stdout.split()] == [
        polynomial(i / 64) for i in range(64)
    ]


def test_code_that_cannot_run_here_is_an_error_and_no_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(OSError, match="no machine code for riscv64"):
        Yardstick()
    monkeypatch.undo()

    # The system maps no memory of no bytes, and answers as where it maps none that can be executed.
    monkeypatch.setitem(CODE, platform.machine(), b"")
    with pytest.raises(OSError, match="no memory that can be executed"):
        Yardstick()
