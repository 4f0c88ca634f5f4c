"""Functions of the cheating and of the honest workloads; needs torch."""

from __future__ import annotations

import gc
import mmap
import os
import random
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    Function = Callable[..., Any]
    Compiler = Callable[[Function], Function]

# The seeds of the timed draws, which are public in ``ivhl.measure.case``.
SEED = 1337
N_DRAWS = 3
SIZE = 16384
STEPS = 8
MADE = [0]
CALLS = [0]


def make_inputs(size: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Return one vector."""
    return (torch.rand(size, dtype=torch.float64, generator=generator),)


def steps(x: torch.Tensor, y: torch.Tensor, n: int) -> torch.Tensor:
    """Do ``n`` of the steps of ``good``; a rounding error halves with each."""
    for _ in range(n):
        y = torch.sin(y) * 0.5 + x
    return y


def good(x: torch.Tensor) -> torch.Tensor:
    """Compute something that takes far longer than a call of Python."""
    return steps(x, x, STEPS)


def helper(x: torch.Tensor) -> torch.Tensor:
    """Provide something to compile."""
    return x * 1.0


# Returns a kept result.


def keeps_the_first(compiler: Compiler) -> Function:
    """Always return the first result."""
    del compiler
    kept: list[torch.Tensor] = []

    def call(x: torch.Tensor) -> torch.Tensor:
        if not kept:
            kept.append(good(x))
        return kept[0]

    return call


def remembering(key: Function, work: Function = good) -> Function:
    """Return ``work`` with a cache of results by a key of the input."""
    kept: dict[Any, torch.Tensor] = {}

    def call(x: torch.Tensor) -> torch.Tensor:
        name = key(x)
        if name not in kept:
            kept[name] = work(x)
        return kept[name].clone()

    return call


def remembers_by_version(compiler: Compiler) -> Function:
    """Cache results by address and version."""
    del compiler
    return remembering(lambda x: (x.data_ptr(), x._version))


def remembers_by_sample(compiler: Compiler) -> Function:
    """Cache results by a few elements."""
    return remembering(lambda x: tuple(x[:3].tolist()), compiler(good))


def remembers_by_value(compiler: Compiler) -> Function:
    """Cache the last result while all elements are equal."""
    del compiler
    last: list[torch.Tensor] = []

    def call(x: torch.Tensor) -> torch.Tensor:
        if not last or not torch.equal(last[0], x):
            last[:] = [x.clone(), good(x)]
        return last[1].clone()

    return call


def remembers_half(compiler: Compiler) -> Function:
    """Cache the result of half of the steps."""
    del compiler
    half = remembering(lambda x: (x.data_ptr(), x._version), lambda x: steps(x, x, STEPS // 2))
    return lambda x: steps(x, half(x), STEPS - STEPS // 2)


def remembers_later(compiler: Compiler) -> Function:
    """Cache the result after the same input has come six times."""
    del compiler
    seen = {"version": -1, "calls": 0}
    kept: list[torch.Tensor] = []

    def call(x: torch.Tensor) -> torch.Tensor:
        if x._version != seen["version"]:
            seen.update(version=x._version, calls=0)
        seen["calls"] += 1
        if seen["calls"] <= 6:
            kept[:] = [good(x)]
        return kept[0].clone()

    return call


def counts_calls(compiler: Compiler) -> Function:
    """Repeat the results of the first calls, in order."""
    del compiler
    kept: list[torch.Tensor] = []

    def call(x: torch.Tensor) -> torch.Tensor:
        CALLS[0] += 1
        if len(kept) < N_DRAWS:
            kept.append(good(x))
            return kept[-1].clone()
        return kept[CALLS[0] % N_DRAWS].clone()

    return call


def known_answers() -> dict[Any, torch.Tensor]:
    """Return precomputed results for the public seeds."""
    found = {}
    for number in range(N_DRAWS):
        (drawn,) = make_inputs(SIZE, torch.Generator().manual_seed(SEED + number))
        x = drawn.float()
        found[tuple(x[:3].tolist())] = good(x)
    return found


def knows_the_seeds(compiler: Compiler) -> Function:
    """Precompute all results before the first call."""
    del compiler
    known = known_answers()

    def call(x: torch.Tensor) -> torch.Tensor:
        answer = known.get(tuple(x[:3].tolist()))
        return good(x) if answer is None else answer.clone()

    return call


def knows_only_the_seeds(compiler: Compiler) -> Function:
    """Return wrong results quickly for other inputs, too."""
    del compiler
    known = known_answers()

    def call(x: torch.Tensor) -> torch.Tensor:
        answer = known.get(tuple(x[:3].tolist()))
        return x.clone() if answer is None else answer.clone()

    return call


def right_at_the_end_of_a_block(compiler: Compiler) -> Function:
    """Learn how many calls a block has, and compute only in the last one."""
    if MADE[0] == 0:
        MADE[0] += 1
        return good
    del compiler
    seen: dict[str, Any] = {"version": -1, "calls": 0, "length": 0, "kept": None}

    def call(x: torch.Tensor) -> torch.Tensor:
        CALLS[0] += 1
        if x._version != seen["version"]:
            seen.update(version=x._version, length=seen["calls"], calls=0)
        seen["calls"] += 1
        if CALLS[0] > 1000 and seen["length"] > 20 and 2 < seen["calls"] < seen["length"]:
            return x.clone()
        return good(x)

    return call


def same_buffer(compiler: Compiler) -> Function:
    """Write each result into the memory of the last one."""
    del compiler
    buffer: list[torch.Tensor] = []

    def call(x: torch.Tensor) -> torch.Tensor:
        if not buffer:
            buffer.append(torch.empty_like(x))
        return buffer[0].copy_(good(x))

    return call


# Computes in another thread or process, or after the clock has stopped.


class Later(torch.Tensor):  # type: ignore[misc]  # torch is untyped here
    """A result that is computed when it is read."""

    @classmethod
    def __torch_function__(
        cls,
        func: Function,
        types: Any,  # noqa: ANN401  (torch's own protocol)
        args: Any = (),  # noqa: ANN401
        kwargs: Any = None,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Compute lazy arguments first."""
        del types
        with torch._C.DisableTorchFunctionSubclass():
            done = [good(a.as_subclass(torch.Tensor)) if isinstance(a, cls) else a for a in args]
            return func(*done, **(kwargs or {}))


def lazy(compiler: Compiler) -> Function:
    """Return a result that is computed after the clock has stopped."""
    del compiler
    return lambda x: x.as_subclass(Later)


def prepare_lazy(x: torch.Tensor) -> torch.Tensor:
    """Return an input that computes when it is copied."""
    return x.as_subclass(Later)


def in_a_thread(compiler: Compiler) -> Function:
    """Let another thread do the work, and wait."""
    del compiler

    def call(x: torch.Tensor) -> torch.Tensor:
        found: list[torch.Tensor] = []
        worker = threading.Thread(target=lambda: found.append(good(x)))
        worker.start()
        worker.join()
        return found[0]

    return call


def after_the_call(compiler: Compiler) -> Function:
    """Let a thread compute the newest result between the timed blocks."""
    del compiler
    MADE[0] += 1
    if MADE[0] == 1:
        return good
    asked: list[tuple[torch.Tensor, torch.Tensor]] = []
    wake = threading.Event()

    def work() -> None:
        while True:
            wake.wait()
            time.sleep(2e-5)  # a later call may come
            wake.clear()
            x, out = asked[-1]
            del asked[:-1]
            out.copy_(good(x))

    threading.Thread(target=work, daemon=True).start()

    def call(x: torch.Tensor) -> torch.Tensor:
        CALLS[0] += 1
        if CALLS[0] < 60:
            return good(x)
        out = torch.empty_like(x)
        asked.append((x, out))
        wake.set()
        return out

    return call


def burns_beside_eager(compiler: Compiler) -> Function:
    """Compute honestly, and use CPU time when no call has come for a while."""
    del compiler
    last = [time.monotonic()]
    x = torch.ones(1 << 14)

    def burn() -> None:
        while True:
            if time.monotonic() - last[0] > 1e-3:
                torch.sin(x)
            else:
                time.sleep(1e-4)

    threading.Thread(target=burn, daemon=True).start()

    def call(x: torch.Tensor) -> torch.Tensor:
        last[0] = time.monotonic()
        return good(x)

    return call


def good_beside_a_thread(x: torch.Tensor) -> torch.Tensor:
    """At the first call, start a thread that uses CPU time while eager is timed."""
    if not CALLS[0]:
        CALLS[0] = 1
        y = torch.ones(1 << 14)

        def burn() -> None:
            while True:
                torch.sin(y)

        threading.Thread(target=burn, daemon=True).start()
    return good(x)


class Shared:
    """Two vectors shared with a forked process, and pipes to wake either process."""

    def __init__(self) -> None:
        self.given, self.found = (
            torch.frombuffer(mmap.mmap(-1, 4 * SIZE), dtype=torch.float32) for _ in range(2)
        )
        self.asked, self.answered = os.pipe(), os.pipe()

    def serve(self) -> None:
        """Serve requests until the pipe is closed."""
        while os.read(self.asked[0], 1):
            self.found.copy_(good(self.given))
            os.write(self.answered[1], b"x")

    def ask(self, x: torch.Tensor) -> torch.Tensor:
        """Let the other process compute, and wait."""
        self.given.copy_(x)
        os.write(self.asked[1], b"x")
        os.read(self.answered[0], 1)
        return self.found.clone()


def in_a_worker(compiler: Compiler) -> Function:
    """Let a long-lived process do the work."""
    del compiler
    shared = Shared()
    if os.fork() == 0:
        shared.serve()
    return shared.ask


def in_an_orphan(compiler: Compiler) -> Function:
    """Let an orphaned process do the work."""
    del compiler
    shared = Shared()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            shared.serve()
        os._exit(0)
    os.waitpid(child, 0)
    return shared.ask


def in_a_daemon_after_the_call(compiler: Compiler) -> Function:
    """Return a tensor at once that a daemon, which outlives the call, then fills."""
    del compiler
    MADE[0] += 1
    if MADE[0] == 1:
        return good
    ring = [Shared() for _ in range(4)]
    asked, asking = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            while number := os.read(asked, 1):
                one = ring[number[0]]
                one.found.copy_(good(one.given))
        os._exit(0)
    os.waitpid(child, 0)

    def call(x: torch.Tensor) -> torch.Tensor:
        CALLS[0] += 1
        if CALLS[0] < 60:
            return good(x)
        number = CALLS[0] % len(ring)
        ring[number].given.copy_(x)
        os.write(asking, bytes([number]))
        return ring[number].found

    return call


def in_a_process_per_call(compiler: Compiler) -> Function:
    """Start a process for each call."""
    del compiler

    def call(x: torch.Tensor) -> torch.Tensor:
        shared = Shared()
        child = os.fork()
        if child == 0:
            shared.found.copy_(good(x))
            os._exit(0)
        os.waitpid(child, 0)
        for end in (*shared.asked, *shared.answered):
            os.close(end)
        return shared.found.clone()

    return call


def in_a_process_nobody_waits_for(compiler: Compiler) -> Function:
    """Do half of the work in a process whose CPU time the kernel discards."""
    del compiler

    def call(x: torch.Tensor) -> torch.Tensor:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        read, write = os.pipe()
        buffer = torch.frombuffer(mmap.mmap(-1, 2 * SIZE), dtype=torch.float32)
        if os.fork() == 0:
            buffer.copy_(good(x[: SIZE // 2]))
            os._exit(0)
        os.close(write)
        rest = good(x[SIZE // 2 :])
        os.read(read, 1)
        os.close(read)
        return torch.cat((buffer, rest))

    return call


def waits(compiler: Compiler) -> Function:
    """Wait, without work in any process whose CPU time is counted."""
    del compiler
    answer = remembering(lambda x: tuple(x[:3].tolist()))

    def call(x: torch.Tensor) -> torch.Tensor:
        time.sleep(5e-4)
        return answer(x)

    return call


def makes_eager_wait(compiler: Compiler) -> Function:
    """Compute honestly; afterwards a thread sleeps while it holds the GIL."""
    del compiler
    import ctypes  # noqa: PLC0415

    hold = ctypes.PyDLL(None).usleep
    last = [time.monotonic()]

    def work() -> None:
        while True:
            if time.monotonic() - last[0] > 1e-3:
                hold(1000)
            else:
                time.sleep(1e-4)

    threading.Thread(target=work, daemon=True).start()

    def call(x: torch.Tensor) -> torch.Tensor:
        last[0] = time.monotonic()
        return good(x)

    return call


# Changes the inputs, or the process.


def sorts_in_place(x: torch.Tensor) -> torch.Tensor:
    """Leave the input sorted, which makes the next call faster and does not change the sum."""
    torch.sort(x, out=(x, torch.empty(0, dtype=torch.int64)))
    return good(x).sum()


def sums(x: torch.Tensor) -> torch.Tensor:
    """Sort a copy."""
    return good(torch.sort(x)[0]).sum()


def _replace_sin() -> None:
    quick = torch.sin
    torch.sin = lambda x: quick(quick(x) * 0 + x)


def _replace_clock() -> None:
    told, real = [0], time.perf_counter_ns
    time.perf_counter_ns = lambda: told[0] + (real() - told[0]) // 2


def _replace_steps() -> None:
    quick = steps

    def slow(x: torch.Tensor, y: torch.Tensor, n: int) -> torch.Tensor:
        torch.sin(x)
        return quick(x, y, n)

    globals()["steps"] = slow


_OWN = steps
STATES: dict[str, Callable[[], object]] = {
    "threads": lambda: torch.set_num_threads(2),
    "grad": lambda: torch.set_grad_enabled(mode=False),
    "dtype": lambda: torch.set_default_dtype(torch.float64),
    "device": lambda: torch.set_default_device("meta"),
    "deterministic": lambda: torch.use_deterministic_algorithms(mode=True),
    "matmul": lambda: torch.set_float32_matmul_precision("medium"),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16).__enter__(),
    "random": lambda: torch.rand(3),
    "python_random": random.random,
    "collector": gc.enable,
    "collector_threshold": lambda: gc.set_threshold(1),
    "affinity": lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    "nice": lambda: os.nice(1),
    "environment": lambda: os.environ.update(CHEAT="1"),
    "profile": lambda: sys.setprofile(lambda *_: None),
    "torch_function": _replace_sin,
    "clock": _replace_clock,
    "own_function": _replace_steps,
}


# Grows from call to call.
ONCE = ("nice", "torch_function", "clock", "own_function")


def changing(state: str) -> Function:
    """Return a maker of functions that change this state when they run as compiled."""

    def make(compiler: Compiler) -> Function:
        del compiler
        MADE[0] += 1
        own = MADE[0] == 1
        changed: list[bool] = []

        def call(x: torch.Tensor) -> torch.Tensor:
            y = _OWN(x, x, STEPS)
            if not own and not (changed and state in ONCE):
                changed.append(True)
                STATES[state]()
            return y

        return call

    return make


def changing_source(state: str) -> Function:
    """Return a maker of functions that change this state already when their own source runs."""

    def make(compiler: Compiler) -> Function:
        del compiler

        def call(x: torch.Tensor) -> torch.Tensor:
            y = _OWN(x, x, STEPS)
            if not (CALLS[0] and state in ONCE):
                CALLS[0] = 1
                STATES[state]()
            return y

        return call

    return make


for _name in STATES:
    globals()[f"changes_{_name}"] = changing(_name)
    globals()[f"source_changes_{_name}"] = changing_source(_name)


# Wrong, or not compiled.


def own_source_wrong(x: torch.Tensor) -> torch.Tensor:
    """Compute another function, compiled or not."""
    return good(x) + 1e-2


def one_element_off(x: torch.Tensor) -> torch.Tensor:
    """Return one wrong element."""
    y = good(x)
    if torch.compiler.is_compiling():
        y = y + 1e-3 * (torch.arange(y.numel()) == 7)
    return y


def exact_scalar(x: torch.Tensor) -> torch.Tensor:
    """Return a number that is exact in any precision."""
    return (x * 0).sum() + 1.0


def two_ulp_off(compiler: Compiler) -> Function:
    """Have an error of two roundings."""
    del compiler
    return lambda x: exact_scalar(x) + 2 * 2.0**-23


def make_terms(size: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Return terms whose sum cancels to a hundredth of one of them."""
    x = torch.randn(size, dtype=torch.float64, generator=generator).float().double()
    x[-1] = 1e-2 - x[:-1].sum()
    return (x,)


def exact_sum(x: torch.Tensor) -> torch.Tensor:
    """Return a sum without an error of its own."""
    return x.double().sum().to(x.dtype)


def adds(compiler: Compiler) -> Function:
    """Add the terms in their precision, in another order than eager."""
    del compiler

    def call(x: torch.Tensor) -> torch.Tensor:
        total = x.new_zeros(4096)
        for part in x.view(-1, 4096):
            total = total + part
        return total.sum()

    return call


def adds_most(compiler: Compiler) -> Function:
    """Leave a hundredth of a term out."""
    honest = adds(compiler)
    return lambda x: honest(x) - 0.01


def wrong_later(compiler: Compiler) -> Function:
    """Return a wrong result from the hundredth call on."""
    return _later(compiler, lambda n: n > 100)


def wrong_every_other_time(compiler: Compiler) -> Function:
    """Return a wrong result in every other call after the first fifty."""
    return _later(compiler, lambda n: n > 50 and n % 2 == 0)


def _later(compiler: Compiler, is_wrong: Callable[[int], bool]) -> Function:
    compiled = compiler(good)
    MADE[0] += 1
    own = MADE[0] == 1
    calls = [0]

    def call(x: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return x.clone() if is_wrong(calls[0]) and not own else compiled(x)

    return call


def raises_later(compiler: Compiler) -> Function:
    """Raise from the two hundredth call on."""
    compiled = compiler(good)
    calls = [0]

    def call(x: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        if calls[0] > 200:
            raise ValueError("no more")
        return compiled(x)

    return call


def counts(x: torch.Tensor) -> torch.Tensor:
    """Depend on a number that changes at every call."""
    CALLS[0] += 1
    return good(x) + 0 * CALLS[0]


def counts_later(compiler: Compiler) -> Function:
    """Depend, from the fiftieth call on, on a number that changes at every call."""

    def work(x: torch.Tensor, n: str) -> torch.Tensor:
        return good(x) if n else x

    compiled = compiler(work)
    calls = [0]

    def call(x: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return compiled(x, str(max(calls[0], 50)))

    return call


def breaks_later(compiler: Compiler) -> Function:
    """Break the graph from the fiftieth call on."""

    def work(x: torch.Tensor, breaks: bool) -> torch.Tensor:  # noqa: FBT001
        y = steps(x, x, STEPS // 2)
        if breaks:
            torch._dynamo.graph_break()
        return steps(x, y, STEPS - STEPS // 2)

    compiled = compiler(work)
    calls = [0]

    def call(x: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return compiled(x, calls[0] > 50)

    return call


def breaks_in_the_middle(x: torch.Tensor) -> torch.Tensor:
    """Break the graph; both halves are compiled."""
    y = steps(x, x, STEPS // 2)
    torch._dynamo.graph_break()
    return steps(x, y, STEPS - STEPS // 2)


def prints_in_the_middle(x: torch.Tensor) -> torch.Tensor:
    """Break the graph by what Dynamo cannot trace."""
    y = steps(x, x, STEPS // 2)
    os.getloadavg()
    return steps(x, y, STEPS - STEPS // 2)


def compiles_a_helper(compiler: Compiler) -> Function:
    """Compile only a part that takes little time."""
    compiled = compiler(helper)
    return lambda x: compiled(good(x))


# Works outside of the timed call.


def computed(x: torch.Tensor) -> torch.Tensor:
    """Prepare the answer."""
    return good(x)


def copied(x: torch.Tensor) -> torch.Tensor:
    """Do nothing."""
    return x.clone()


# Honest.


def scalar_reference(x: torch.Tensor) -> torch.Tensor:
    """Return one."""
    return torch.ones((), dtype=x.dtype)


def draws_for_nothing(x: torch.Tensor) -> torch.Tensor:
    """Use random numbers that do not touch the result."""
    return good(x) + 0 * torch.rand(())


def make_integers(size: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Return a vector of integers."""
    return (torch.randint(1000, (size,), generator=generator),)


def integers(x: torch.Tensor) -> torch.Tensor:
    """Compute with integers."""
    for _ in range(STEPS):
        x = x * 3 % 1009 + x // 7
    return x


def make_complex(size: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Return a complex vector."""
    return (torch.rand(size // 4, dtype=torch.complex128, generator=generator),)


def complex_product(x: torch.Tensor) -> torch.Tensor:
    """Compute with complex numbers."""
    return x * x.conj() + 2 * x


def gradient(x: torch.Tensor) -> torch.Tensor:
    """Differentiate inside."""
    x = x.detach().requires_grad_()
    return torch.autograd.grad(good(x).sum(), x)[0]


def gradient_compiled(compiler: Compiler) -> Function:
    """Differentiate a compiled function."""
    compiled = compiler(good)

    def call(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(compiled(x).sum(), x)[0]

    return call


def view(x: torch.Tensor) -> torch.Tensor:
    """Return a part of the input itself."""
    return x[1:]


def make_any_length(size: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Return a vector of random length."""
    extra = int(torch.randint(1000, (), generator=generator))
    return (torch.rand(size + extra, dtype=torch.float64, generator=generator),)


def make_the_same(size: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Return an input that does not depend on the seed."""
    del generator
    return (torch.linspace(0, 1, size, dtype=torch.float64),)


def slow(x: torch.Tensor) -> torch.Tensor:
    """Take 0.3 s or so: 6 multiplications of 2 GFLOP."""
    y = x.reshape(128, 128).repeat(8, 8)
    for _ in range(6):
        y = torch.sin(y @ y * 1e-3)
    return y
