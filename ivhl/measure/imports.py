"""What all phases of a case need: torch, the device, the clock, the functions of the case."""

from __future__ import annotations

import inspect
import sys
import sysconfig
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ivhl.measure.failures import CaseError, place_of
from ivhl.measure.flags import FLAG_REFUSED, NoSuchFlagError, parse_flag, set_flag
from ivhl.measure.job import choose_clock
from ivhl.workload import ImportRefusedError, refusing_exits, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from ivhl.measure.exact import Exact
    from ivhl.measure.job import Clock, Job
    from ivhl.measure.journal import Journal
    from ivhl.measure.subject import Subject
    from ivhl.workload import Case


# Seed of the timed draws. The draws of new data have another seed in each run.
SEED = 1337
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The process of a case.

    Attributes:
        torch: The module, whose import is a phase that may fail.
        clock: Which clock times.
        dtype: Precision of eager.
        variant_dtype: Precision of the variant.
        random_state: The state of torch's random numbers before each block.
    """

    job: Job
    case: Case
    journal: Journal
    torch: Any
    device: torch.device
    clock: Clock
    dtype: torch.dtype
    variant_dtype: torch.dtype
    random_state: torch.Tensor

    def synchronize(self) -> None:
        """Wait for the device, if the case does not run on the CPU."""
        if self.device.type != "cpu":
            getattr(self.torch, self.device.type).synchronize()

    def timed(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """Return what is timed of an arm: the call, which by an elapsed time waits for its device.

        CUDA's events need no waiting, and the CPU has nothing to wait for.
        """
        if self.device.type in ("cpu", "cuda"):
            return call
        from ivhl.measure.timing import Restored  # noqa: PLC0415  (imports torch)

        if isinstance(call, Restored):
            return replace(call, call=self.timed(call.call))

        def wait() -> Any:  # noqa: ANN401  (any pytree)
            output = call()
            self.synchronize()
            return output

        return wait

    @contextmanager
    def random_numbers_kept(self) -> Iterator[None]:
        """Leave the state of the random numbers as it is."""
        state = self.torch.get_rng_state()
        try:
            yield
        finally:
            self.torch.set_rng_state(state)


@dataclass(frozen=True, slots=True)
class Functions:
    """What the modules of a workload define.

    Attributes:
        subject: What is called.
        exact: Runs it in float64, and near its inputs.
        make_inputs: Makes the inputs of a size.
        prepare: Makes the variant's own inputs of them, if it has any.
        finish: Makes eager's outputs of the variant's, if these differ.
    """

    subject: Subject
    exact: Exact
    make_inputs: Callable[..., Any]
    prepare: Callable[..., Any] | None
    finish: Callable[..., Any] | None


def import_torch(job: Job, case: Case, journal: Journal) -> Setup:
    """Import torch, set threads, seed and flags, and note what runs."""
    import torch  # noqa: PLC0415  (importing torch is a phase that may fail)

    torch.set_num_threads(job.effort.threads)
    torch.manual_seed(SEED)
    setup = Setup(
        job=job,
        case=case,
        journal=journal,
        torch=torch,
        random_state=torch.get_rng_state(),
        device=torch.device(job.effort.device),
        clock=choose_clock(torch.device(job.effort.device).type, job.effort.threads),
        dtype=getattr(torch, case.workload.dtype),
        variant_dtype=getattr(torch, case.dtype),
    )
    for flag in map(parse_flag, job.effort.flags):
        try:
            set_flag(flag)
        except NoSuchFlagError as error:
            raise CaseError("unsupported", f"{FLAG_REFUSED}{error}") from error
    device_name = setup.device.type
    if device_name != "cpu":
        name_of = getattr(getattr(torch, device_name), "get_device_name", None)  # mps has none
        device_name += "" if name_of is None else f" {name_of()}"
    journal.note(device=device_name, torch_full=torch.__version__, gil=gil_is_on())
    return setup


def import_workload(setup: Setup) -> Functions:
    """Import the modules of the workload, and return what they define."""
    from ivhl.measure.exact import Exact  # noqa: PLC0415  (imports torch)
    from ivhl.measure.subject import Subject  # noqa: PLC0415

    workload, variant = setup.case.workload, setup.case.variant
    try:
        with refusing_exits():
            make_inputs = of_size_and_generator(resolve(workload.make_inputs))
            subject = Subject(
                setup.case,
                dtype=setup.dtype,
                variant_dtype=setup.variant_dtype,
                device=setup.device,
                seed=SEED,
            )
            prepare, finish = (
                resolve(name) if name else None for name in (variant.prepare, variant.finish)
            )
    except ImportRefusedError as error:
        raise CaseError("import", f"{place_of(error)} {error}") from error
    # Importing the project may have changed it.
    setup.torch.set_num_threads(setup.job.effort.threads)
    return Functions(subject, Exact(subject), make_inputs, prepare, finish)


def of_size_and_generator(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``make_inputs``, also of a function that takes only the size, or nothing.

    Such a function draws from PyTorch's own generator, which gets the seed of the draw meanwhile.

    Raises:
        CaseError: If it is no function.
    """
    import torch  # noqa: PLC0415

    if not callable(function):
        raise CaseError("inputs", f"the inputs are a {type(function).__name__}, not a function")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # of a builtin function
        return function
    n = sum(one.kind in _POSITIONAL for one in parameters)
    if n > 1 or any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return function

    def make(size: Any, generator: torch.Generator) -> Any:  # noqa: ANN401
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(generator.initial_seed())
            return function(*(size,)[:n])

    return make


def gil_is_on() -> bool | None:
    """Return whether the GIL is on; ``None`` on a Python that is not free-threaded.

    Importing an extension that does not declare free-threading support switches it on.
    """
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    return bool(getattr(sys, "_is_gil_enabled")())  # noqa: B009  (since Python 3.13)
