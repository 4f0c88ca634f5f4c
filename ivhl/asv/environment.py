"""asv environments made from locks: a virtual environment, the lock, the project, nothing else.

Also of one cell outside of a run (``make_cell``), in the folder where runs find it again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import asv.util
from asv.config import Config
from asv.console import log
from asv.environment import Environment, EnvironmentUnavailable

from ivhl.asv.commands import KNOWN, results_of
from ivhl.asv.configuration import load_configuration, settings_of_project
from ivhl.asv.files import write_machine
from ivhl.asv.installed import altered_files
from ivhl.asv.machine import asv_machine
from ivhl.errors import IvhlError, LockError
from ivhl.machine.identity import this_machine
from ivhl.matrix.environment import CellError, make_environment, uv_or_fail
from ivhl.matrix.interpreter import find_interpreter
from ivhl.matrix.locks import lock_state
from ivhl.matrix.project import MATRIX, load_project
from ivhl.matrix.spec import CellSpec, load_matrix
from ivhl.measure.outcome import failed_everywhere
from ivhl.measure.settings import (
    BASE_VARIABLE,
    CELL_VARIABLE,
    COMMIT_VARIABLE,
    PROJECT_VARIABLE,
    VARIABLE,
    Settings,
    read_settings,
    write_settings,
)
from ivhl.records.files import append_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.records.record import Cell


_NAMED = 3  # files in a message; all are in its output
# Read by cells/suite/__init__.py. Not PYTHONPATH: asv takes that away, and its ASV_PYTHONPATH too,
# since run_executable renames it before asv's own script in the cell looks for it.
INSTRUMENT_VARIABLE = "IVHL_INSTRUMENT"


# What ends the building of a project.
BUILD_ERRORS = (CellError, OSError, IvhlError, asv.util.ProcessError, asv.util.UserError)


class Locked(Environment):  # type: ignore[misc]  # asv has no types
    """One cell of the matrix. asv calls the methods; what they override is asv 0.6.6's.

    A ``create`` that raises would abort the whole run, so failures are remembered and reported
    when the project is installed: the only exception that makes asv leave out just this
    environment is ``asv.util.ProcessError`` from ``install_project``.
    """

    tool_name: ClassVar[str] = "locked"
    _is_setup: bool  # set by asv
    matches_python_fallback: ClassVar[bool] = False

    def __init__(
        self,
        conf: Any,  # noqa: ANN401
        python: str,
        requirements: dict[str, str],
        tagged_env_vars: Any,  # noqa: ANN401
    ) -> None:
        root = Path(getattr(conf, "ivhl_root", Path.cwd()))
        self._settings = settings_of(conf, root)
        try:
            matrix = load_matrix(root / MATRIX)
            self._lock = lock_state(root, CellSpec(python, requirements.get("torch", "")))
        except IvhlError as error:
            raise EnvironmentUnavailable(str(error)) from error
        if self._lock.kind != "locked" or self._lock.stale(matrix):
            why = self._lock.message or f"its lock is {self._lock.kind} or stale: ivhl lock"
            raise EnvironmentUnavailable(f"{self._lock.cell.id}: {why}")
        self._root = root
        self.failure: CellError | None = None
        # Where two commits take turns: the folder of each that was built, and the commit of the run.
        self._laid: dict[str, Path] = {}
        self._unbuilt: dict[str, asv.util.ProcessError] = {}  # by commit
        self._wanted = ""
        self._target: Path | None = None
        # asv's own __init__ reads both of these before it sets them.
        self._python, self._requirements = python, requirements
        super().__init__(conf, python, requirements, tagged_env_vars)

    @classmethod
    def matches(cls, python: str) -> bool:
        """Return whether this is a version, and not the path of an interpreter."""
        return python[:1].isdigit()

    @property
    def cell(self) -> Cell:
        """The cell as records name it."""
        return self._lock.cell.as_recorded(self._lock.sha256)

    def create(self) -> None:
        """Create the environment; a failure is remembered, not raised."""
        if self._is_setup or self.failure:
            return
        if self.check_presence():
            self._is_setup = True
            return
        began = time.monotonic()
        self._settings.report("cell-creating", cell=self.cell.id)
        try:
            super().create()
        except (CellError, OSError, IvhlError) as error:
            output = getattr(error, "output", "")
            hint = getattr(error, "hint", "")
            self.failure = CellError(f"{error}\n{hint}".strip(), output)
        self._settings.report(
            "cell-failed" if self.failure else "cell-created",
            cell=self.cell.id,
            seconds=time.monotonic() - began,
            message=str(self.failure or ""),
        )

    @property
    def folder(self) -> Path:
        """Folder of the environment."""
        return Path(self._path)

    def check_presence(self) -> bool:
        """Return whether the environment on disk is this lock's; asv's own test wants pip in it."""
        try:
            if self.load_info_file(self._path) != self._info():
                return False
            self.run_executable("python", ["-c", "pass"])
        except (asv.util.UserError, asv.util.ProcessError, OSError, IvhlError):
            return False
        return True

    def save_info_file(self, path: str) -> None:
        """Write what the environment was made from; a changed lock makes a new one."""
        asv.util.write_json(os.path.join(path, "asv-env-info.json"), self._info())  # noqa: PTH118

    def _info(self) -> dict[str, Any]:
        return {
            "tool_name": self.tool_name,
            "cell": self.cell.id,
            "interpreter": str(self._interpreter()),
            "lock_sha256": self._lock.sha256,
        }

    def _interpreter(self) -> str:
        known = self._settings.interpreters.get(self._python)
        return known or str(find_interpreter(self._root, self._python).path)

    def _setup(self) -> None:
        log.info(f"Creating {self.cell.id} from {self._lock.path.name}")
        make_environment(
            self._root,
            self._lock,
            self._interpreter(),
            self.folder,
            timeout_s=float(self._install_timeout),
        )

    def _uv(self, *arguments: str) -> None:
        uv_or_fail(self._root, *arguments, timeout_s=float(self._install_timeout))

    def install_project(self, conf: Any, repo: Any, commit_hash: str) -> None:  # noqa: ANN401
        """Build the project at a commit and install it into the cell.

        Raises:
            asv.util.ProcessError: If the cell or the project could not be made; every case then
                has a record that says so.
        """
        if commit_hash in self._unbuilt:  # asv asks for it twice
            raise self._unbuilt[commit_hash]
        # After `asv run -j` the environment was created in another process.
        self.create()
        self.failure = self.failure or self._altered()
        if self.failure:
            for commit in filter(None, (self._settings.base, commit_hash)):
                self._record_failure("environment", self.failure, commit)
            raise self._refusal("environment", self.failure)
        try:
            self._settings.report("cell-building", cell=self.cell.id, commit=commit_hash)
            if self._settings.base is None:
                super().install_project(conf, repo, commit_hash)
                return
            if self._wanted != commit_hash:  # asv asks for it twice
                self._wanted = commit_hash
                self._lay_both(conf, repo, self._settings.base, commit_hash)
        except BUILD_ERRORS as error:
            failure = build_error(error)
            self._report_failure(failure)
            self._record_failure("build", failure, commit_hash)
            self._unbuilt[commit_hash] = self._refusal("build", failure)
            raise self._unbuilt[commit_hash] from error
        if not self._laid:
            raise self._refusal("build", CellError("neither commit was built", ""))

    def _lay_both(self, conf: Any, repo: Any, *commits: str) -> None:  # noqa: ANN401
        """Lay two commits beside each other; if one cannot be built, only its cases have failed."""
        for commit in commits:
            try:
                self._lay(conf, repo, commit)
            except BUILD_ERRORS as error:
                failure = build_error(error)
                self._record_failure("build", failure, commit)
                if not self._laid and commit == commits[-1]:
                    # Neither has been built: asv will say no more than that.
                    self._report_failure(failure)

    def _lay(self, conf: Any, repo: Any, commit_hash: str) -> None:  # noqa: ANN401
        """Build the project at a commit, and lay it into a folder of its own.

        Nothing of the project is installed then, so neither commit sees modules of the other.
        """
        self._target = self.folder / "projects" / commit_hash
        # Measured code could have written there.
        shutil.rmtree(self._target, ignore_errors=True)
        try:
            self._set_installed_commit_hash(None)
            super().install_project(conf, repo, commit_hash)
        finally:
            self._set_installed_commit_hash(None)
            laid, self._target = self._target, None
        self._laid[commit_hash] = laid

    @property
    def installed_commit_hash(self) -> str | None:
        """The commit that is installed; where two take turns, none is."""
        return None if self._settings.base else super().installed_commit_hash

    def _altered(self) -> CellError | None:
        """Return the failure of a cell whose packages are not those of the lock any more."""
        altered = altered_files(
            self.folder, device=self._settings.effort.device, without=self._project
        )
        if not altered:
            return None
        names = ", ".join(altered[:_NAMED]) + (", ..." if len(altered) > _NAMED else "")
        return CellError(
            f"installed files must be as in their wheels (changed: {names}), also in uv's cache; "
            f"next: uv cache clean, and remove {self.folder.name} in {self.folder.parent.name}",
            "\n".join(altered),
        )

    def _refusal(self, phase: str, error: CellError) -> asv.util.ProcessError:
        """Return the one error at which asv leaves out this environment and goes on."""
        return asv.util.ProcessError([phase, self.name], 1, str(error), error.output)

    def _report_failure(self, error: CellError) -> None:
        self._settings.report("cell-failed", cell=self.cell.id, seconds=0.0, message=str(error))

    def _record_failure(
        self, phase: Literal["environment", "build"], error: CellError, commit: str
    ) -> None:
        settings = self._settings
        run = settings.run_in(self.cell, commit)
        with suppress(IvhlError):
            for case in settings.cases():
                record = failed_everywhere(
                    run,
                    case,
                    phase=phase,
                    failure_class=phase,
                    message=str(error),
                    output=error.output,
                )
                append_record(run.record_file, record)

    def _build_project(self, repo: Any, commit_hash: str, build_dir: str) -> None:  # noqa: ANN401, ARG002
        folder = self._global_env_vars["ASV_BUILD_CACHE_DIR"]
        self._uv(
            "build", "--wheel", "--no-build-isolation", "--offline",
            "--python", self._path, "--out-dir", folder, build_dir,
        )  # fmt: skip

    def _install_project(self, repo: Any, commit_hash: str, build_dir: str) -> None:  # noqa: ANN401, ARG002
        wheels = sorted(Path(self._global_env_vars["ASV_BUILD_CACHE_DIR"]).glob("*.whl"))
        self._uv(
            "pip", "install", "--python", self._path, "--no-deps", "--offline", "--reinstall",
            *(("--target", str(self._target)) if self._target else ()), *map(str, wheels),
        )  # fmt: skip

    def _uninstall_project(self) -> None:
        self._set_installed_commit_hash(None)
        self._uv("pip", "uninstall", "--python", self._path, self._project)

    def run(self, args: Sequence[str], **kwargs: Any) -> Any:  # noqa: ANN401
        """Run the cell's Python, with the instrument of this checkout before the project."""
        inherited = kwargs.pop("env", None) or os.environ
        # Bytecode is written once into the cell; without it every process of every case would
        # compile all of torch's 1,600 modules again.
        environment = {k: v for k, v in inherited.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment |= {
            INSTRUMENT_VARIABLE: str(copy_instrument(Path(self._env_dir), self._settings)),
            CELL_VARIABLE: json.dumps(asdict(self.cell)),
            COMMIT_VARIABLE: str(self.installed_commit_hash or ""),
        }
        if self._wanted:
            environment[COMMIT_VARIABLE] = self._wanted
        for commit, folder in self._laid.items():
            which = PROJECT_VARIABLE if commit == self._wanted else BASE_VARIABLE
            environment[which] = str(folder)
        return self.run_executable("python", list(args), env=environment, **kwargs)


def build_error(error: Exception) -> CellError:
    """Return why a project could not be built, with what the failing command printed."""
    output = getattr(error, "output", "") or getattr(error, "stdout", "")
    return CellError(str(error)[:1500], output)


def settings_of(conf: Any, root: Path) -> Settings:  # noqa: ANN401
    """Return the settings of this run; under plain ``asv run`` make them, all by default."""
    if VARIABLE not in os.environ:
        path = root / ".asv" / "settings.json"
        machine = this_machine(KNOWN.get("machine"))
        results = results_of(conf).resolve()
        if KNOWN:  # `ivhl try` makes a cell, and writes nothing into the results
            write_machine(results, machine.name, asv_machine(machine))
        write_settings(path, settings_of_project(load_project(root), machine, results))
        os.environ[VARIABLE] = str(path)
    return read_settings()


def copy_instrument(env_dir: Path, settings: Settings) -> Path:
    """Return a folder that holds what a cell is given to measure with, and nothing else."""
    carried = settings.carried()
    target = env_dir.resolve() / f"instrument-{_bytes_digest(carried)}"
    if not target.is_dir():
        fresh = target.with_name(f"{target.name}.{os.getpid()}")
        for source, name in carried:
            (fresh / name).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, fresh / name)
        with suppress(OSError):  # another process was faster
            fresh.rename(target)
    return target


def _bytes_digest(carried: Sequence[tuple[Path, str]]) -> str:
    """Return a name for exactly this code: unlike the instrument's version, a comment changes it."""
    digest = hashlib.sha256()
    for source, name in carried:
        for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if path.is_file() and path.suffix != ".pyc":
                inner = path.relative_to(source).as_posix()
                digest.update(f"{name}/{inner}".encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def make_cell(root: Path, cell: CellSpec) -> Path:
    """Return the folder of a cell's environment; create it from its lock if it is not there.

    Raises:
        SpecError: See ``load_configuration``.
        LockError: If the environment cannot be made.
    """
    environment = _environment(root, cell)
    environment.create()
    if failure := environment.failure:
        raise LockError(
            f"{cell.id}: {failure}", hint="see what uv says, then try again"
        ) from failure
    return environment.folder


def find_cell(root: Path, cell: CellSpec) -> Path | None:
    """Return the folder of a cell's environment; ``None`` if it is not there, or not of its lock.

    Raises:
        SpecError: See ``load_configuration``.
        LockError: If its lock is missing or stale.
    """
    environment = _environment(root, cell)
    return environment.folder if environment.check_presence() else None


def _environment(root: Path, cell: CellSpec) -> Locked:
    conf = Config.from_json(load_configuration(root))
    try:
        return Locked(conf, cell.python, {"torch": cell.torch}, {})
    except EnvironmentUnavailable as error:
        raise LockError(str(error), hint="ivhl lock") from error
