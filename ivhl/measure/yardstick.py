"""Fixed machine code, whose seconds measure the speed of the machine.

No wheel, interpreter, compiler or C library has a part in it, so it is the same work in every cell.
A kernel of torch is not: ``torch.sin`` calls MKL, which chooses by processor, and with AVX-512 takes
14.0 us in 2.4.1 and 12.5 us from 2.5.1 on.

The code evaluates a polynomial of degree 12 for each of ``4 * n`` float32 numbers, in four
independent chains, with the vector instructions that every processor of the architecture has
(SSE2, NEON)::

    typedef float four __attribute__((vector_size(16)));

    void polynomial(const four *x, four *y, const four *c, long n, long passes)
    {
        for (long pass = 0; pass < passes; pass++) {
            for (long i = 0; i < n; i += 4) {
                four a = c[0], b = c[0], d = c[0], e = c[0];
                for (long k = 1; k < 13; k++) {
                    a = a * x[i] + c[k];
                    b = b * x[i + 1] + c[k];
                    d = d * x[i + 2] + c[k];
                    e = e * x[i + 3] + c[k];
                }
                y[i] = a;
                y[i + 1] = b;
                y[i + 2] = d;
                y[i + 3] = e;
            }
        }
    }

Source:
    The bytes are the section ``.text`` that GCC 12.2 makes of it, with ``-O2 -ffp-contract=off
    -fno-stack-protector -fno-asynchronous-unwind-tables`` and ``-march=x86-64
    -fcf-protection=none`` or ``-march=armv8-a``. They refer to no address outside of themselves.
    ``tests/unit/test_measure_yardstick.py`` compares their results with the polynomial in Python.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from array import array
from typing import Final

CODE: Final = {
    "x86_64": bytes.fromhex(
        "4d85c00f8ec3000000488d41ff554d89c34889f548c1e802534889fb4531d248c1e0064889d74889ca4c8d4c"
        "03404885d20f8e860000004c8d4710488d97d00000004889ee4889d90f1f8400000000000f280f440f28014c"
        "89c00f2879100f2871200f2869300f28d10f28d90f28e190410f59c80f28004883c0100f59e70f59de0f59d5"
        "0f58c80f58e00f58d80f58d04839c275db4883c1400f290e4883c6400f2966d00f295ee00f2956f04939c975"
        "9f4983c2014d39d375885b5dc34983c2014d39d30f8564ffffffebeec3"
    ),
    "aarch64": bytes.fromhex(
        "e90300aae80304aaea0301aae50302aae00303aa9f0000f10d050054640400d121010191070080d284fc42d3"
        "2418048b1f0000f14d040054a6400091a1400391e3030aaae20309aaa100c03de00306aa501c40ad461441ad"
        "221ca14e231ca14e241ca14e1f2003d50004c13c01de216ee4dc246ec3dc236ea2dc226e21d4204e04d4244e"
        "03d4234e02d4224e3f0000ebc1feff5442000191611000ad630801ad630001919f0002eb01fdff54e7040091"
        "1f0107eb61fcff54c0035fd6e70400911f0107eb61fbff54c0035fd6"
    ),
}
COEFFICIENTS: Final = tuple(1.0 / (k + 1) for k in range(13))
# x and y are 128 KiB together, which fits into the L2 cache of every processor of the last 15 years.
NUMBERS: Final = 2**14
_LANES: Final = 4


class Yardstick:
    """The machine code with its data, each at the beginning of a page.

    Raises:
        OSError: If this architecture has no code, or the system maps no memory that can be executed.
    """

    def __init__(self) -> None:
        code = CODE.get(platform.machine())
        if code is None or not hasattr(os, "memfd_create"):
            raise OSError(f"no machine code for {platform.machine()}")
        kind = ctypes.CFUNCTYPE(None, *(ctypes.c_void_p,) * 3, *(ctypes.c_long,) * 2)
        self._call = kind(_mapped(code))
        self.x, self.y, c = (
            mmap.mmap(-1, 4 * n) for n in (NUMBERS, NUMBERS, _LANES * len(COEFFICIENTS))
        )
        self.x[:] = array("f", (i / NUMBERS for i in range(NUMBERS))).tobytes()
        c[:] = array("f", (one for one in COEFFICIENTS for _ in range(_LANES))).tobytes()
        pages = (self.x, self.y, c)
        self._addresses = [ctypes.addressof(ctypes.c_char.from_buffer(page)) for page in pages]
        self._pages = pages

    def __call__(self, passes: int) -> None:
        """Evaluate the polynomial of all numbers so many times."""
        self._call(*self._addresses, NUMBERS // _LANES, passes)


def _mapped(code: bytes) -> int:
    """Return the address of executable memory with this code, for as long as the process lives.

    It is mapped from a file in memory, so that no page is ever both written and executed.
    """
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    file = os.memfd_create("ivhl-yardstick")
    try:
        os.write(file, code)
        rights = mmap.PROT_READ | mmap.PROT_EXEC
        address = library.mmap(None, len(code), rights, mmap.MAP_PRIVATE, file, 0)
    finally:
        os.close(file)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "no memory that can be executed")
    return int(address)
