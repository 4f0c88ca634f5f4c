"""Try a function or a model by its name in a cell of the user (``ivhl try package:function``)."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final, Self

import ivhl
from ivhl.errors import SpecError
from ivhl.measure import target_spec
from ivhl.measure.job import Job
from ivhl.measure.launcher import Launcher, failure_of, read_journal
from ivhl.measure.process import tail
from ivhl.script import no_network
from ivhl.script.confined import confined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ivhl.measure.effort import Effort

# User of a trial with temporary files of its own: their place has the user's name.
_USER: Final = "ivhl"
_HEADERS: Final = "precompiled_headers"
# Seconds between two looks at what a trial knows.
_LOOKS_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class TargetTried:
    """What is known of a target in a cell.

    Attributes:
        found: The findings of its process (``ivhl.measure.case``), its failure among them.
        output: The end of what it printed.
        cpu_s: CPU seconds of its process, if that was killed at a limit.
    """

    found: dict[str, Any]
    output: str
    cpu_s: float = 0.0


def read_target(
    text: str, inputs: Sequence[str], *, step: bool, beside: Path | None = None
) -> tuple[target_spec.Target, Path | None]:
    """Return a target by its text, and the folder that its module is imported from.

    Args:
        text: ``package.module:expression`` or ``file.py:expression``.
        inputs: As ``--input`` has them.
        step: Whether gradients are taken.
        beside: Folder that files lie in, where each module is installed; by default both may lie in
            the current folder.

    Raises:
        SpecError: If the text or an input has another form, or the file is not there.
    """
    module, _, expression = text.partition(":")
    folder, place = None, Path(*module.split("."))
    if is_file := module.endswith(".py"):
        path = (beside or Path()) / module
        if not path.is_file():
            raise SpecError(
                f"{module}: must be a Python file", hint="name one, e.g. model.py:forward"
            )
        folder, module = path.resolve().parent, path.stem
    elif beside is None and (Path(f"{place}.py").is_file() or any(place.glob("*.py"))):
        folder = Path.cwd()
    try:
        compile(expression, "<target>", "eval")
        if not is_file:
            compile(module, "<target>", "eval")
        for one in inputs:
            target_spec.parse_input(one)
    except SyntaxError as error:
        raise SpecError(
            f"{text!r}: must be MODULE:EXPRESSION ({error.msg})",
            hint="e.g. torch.nn.functional:softmax, or 'timm:create_model(\"resnet18\")'",
        ) from error
    except target_spec.TargetError as error:
        raise SpecError(str(error), hint='e.g. --input 8,64 --input "long 2,32 <1000"') from error
    return target_spec.Target(module, expression, tuple(inputs), step), folder


def packages_of(target: target_spec.Target, folder: Path | None) -> tuple[str, ...]:
    """Return the distribution that the module is probably of: none for torch and one's own file."""
    top = target.module.partition(".")[0]
    is_there = folder is not None or top == "torch" or top in sys.stdlib_module_names
    return () if is_there else (top.replace("_", "-"),)


class Trials:
    """Tries targets in a cell, each in a process of its own; leaving the context ends all of them.

    Args:
        cell: Folder of the cell's environment.
        folder: Where the module of each target is, if it is not installed.
        effort: How to measure.
        network: Whether they may use the network.
        apart: Whether each gets a home, a current folder and temporary files of its own, which are
            removed afterwards, and is confined to them (``confined``).
        forks: Whether the processes are forked from one that has used the compiler, which takes as
            long as the first of them.
    """

    def __init__(
        self,
        cell: Path,
        folder: Path | None,
        effort: Effort,
        *,
        network: bool,
        apart: bool = False,
        forks: bool = False,
    ) -> None:
        self._effort, self._apart = effort, apart
        self._here = tempfile.TemporaryDirectory(prefix="ivhl-try-", ignore_cleanup_errors=True)
        here = Path(self._here.name)
        (here / "instrument").mkdir()
        (here / "instrument" / "ivhl").symlink_to(Path(ivhl.__file__).parent)
        self._environment = _environment(here, folder, effort)
        # -P: files of the current folder are no modules of the harness, whatever their names.
        python = [str(cell / "bin" / "python"), "-P"]
        self._inductor = (cell / "inductor").resolve()
        if apart:
            # What foreign code writes there is run by its next user.
            self._inductor = self._inductor.with_name("inductor-apart")
            self._inductor.mkdir(parents=True, exist_ok=True)
            reads = [folder] if folder else []
            python = confined(python, cell=cell, writes=[here, self._inductor], reads=reads)
        self._environment["TORCHINDUCTOR_CACHE_DIR"] = str(self._inductor)
        if not network:
            python = [sys.executable, "-I", "-S", no_network.__file__, *python]
        self._launcher = Launcher(
            effort,
            self._environment | self._places(here),
            here,
            self._inductor,
            python=python,
            module=target_spec.MODULE,
        )
        self._launcher.may_fork &= forks

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes, and remove what they have left."""
        self._launcher.close()
        self._here.cleanup()

    def run(
        self,
        target: target_spec.Target,
        deadline_s: float,
        tell: Callable[[TargetTried], object] | None = None,
    ) -> TargetTried:
        """Try a target, and return what is known of it after so many wall seconds at most.

        ``tell`` gets what is known when the target is timed: a larger batch compiles all once more.
        """
        with tempfile.TemporaryDirectory(dir=self._here.name, ignore_cleanup_errors=True) as name:
            here = Path(name)
            job = Job(
                project="target",
                workloads=f"{target_spec.MODULE}:WORKLOADS",
                workload=target_spec.NAME,
                size=target_spec.SIZE,
                variant="compiled",
                effort=self._effort,
                stage="compile",
                process=1,
                journal=str(here / "journal.jsonl"),
            )
            own = self._places(here)
            output = here / "output"
            with _telling(Path(job.journal), tell) if tell else nullcontext():
                ending = self._launcher.launch(
                    job,
                    environment=self._environment
                    | {target_spec.VARIABLE: json.dumps(target._asdict())}
                    | own,
                    folder=Path(own["TMPDIR"]) if self._apart else None,
                    output=output,
                    deadline_s=deadline_s,
                )
            phase, found = read_journal(Path(job.journal))
            if not found.get("done"):
                failure = failure_of(phase, found, ending, output)
                found["failure"] = None if failure is None else asdict(failure)
            return TargetTried(found, tail(output), ending.cpu_s)

    def _places(self, here: Path) -> dict[str, str]:
        """Make a place for temporary files, apart also a home, and return the variables for them.

        There, Inductor finds its precompiled headers, which it keeps under the temporary files: 0.2
        GB for each set of flags.
        """
        home = here / "home"
        shared = self._inductor / _HEADERS
        shared.mkdir(parents=True, exist_ok=True)
        place = home / f"torchinductor_{_USER}"
        place.mkdir(parents=True)
        (place / _HEADERS).symlink_to(shared)
        places = {"TMPDIR": str(home), "USER": _USER}
        return places | {"HOME": str(home)} if self._apart else places


@contextmanager
def _telling(journal: Path, tell: Callable[[TargetTried], object]) -> Iterator[None]:
    """Meanwhile, tell what a journal knows as soon as the target is timed."""
    ended = Event()

    def follow() -> None:
        while not ended.wait(_LOOKS_S):
            found = read_journal(journal)[1] if journal.exists() else {}
            if "eager_s" in found:
                tell(TargetTried(found, ""))
                return

    thread = Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _environment(here: Path, folder: Path | None, effort: Effort) -> dict[str, str]:
    kept = ["HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "USER", "LD_LIBRARY_PATH"]
    kept += ["CUDA_VISIBLE_DEVICES"]
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    return environment | {
        "PYTHONPATH": str(here / "instrument"),
        target_spec.FOLDER_VARIABLE: str(folder or ""),
        "PYTHONSAFEPATH": "1",  # as -P: Inductor asks a new Python what the processor can do
        "PYTHONUNBUFFERED": "1",
        "IVHL_MEASURING": "1",
        "OMP_NUM_THREADS": str(effort.threads),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
