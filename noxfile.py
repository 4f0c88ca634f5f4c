"""Tasks by name; ``nox -l`` lists them. Sessions only call tools or ``ivhl``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import nox

from ivhl.errors import IvhlError
from ivhl.matrix.spec import load_matrix

if TYPE_CHECKING:
    from collections.abc import Sequence

try:
    MATRIX = load_matrix(Path("envs/matrix.toml"))
except IvhlError as error:
    sys.exit(f"error: {error}\nnext: {error.hint}")
RELEASES = MATRIX.releases("default")
NEWEST_TORCH = RELEASES[-1]
# Where all tests run: the last release that refuses Python 3.13, the first that compiles there, and
# the newest. Of the others, the records tell.
TESTED = ("2.5.1", "2.6.0", NEWEST_TORCH)
OLDEST_TORCH = TESTED[0]
# Hot paths need something that is newer than the oldest release of the tier.
WITH_HOT_PATHS = RELEASES[RELEASES.index(OLDEST_TORCH) :]
# Those that a machine for the tests has: newer ones are in the matrix before everybody has them.
PYTHONS = Path(".python-version").read_text(encoding="utf-8").split()
OLDEST_PYTHON, NEWEST_PYTHON = PYTHONS[0], PYTHONS[-1]
# The packages of sessions without a cell; in others a cell's lock comes first. docs/adr/0050
GROUPS = "envs/ci/groups.txt"
LOCKED = ("--constraint", GROUPS)
# Tags. CHECK: required by `tests`, run by .github/workflows/tests.yml at each push. FULL: required
# by `tests-full` only, run by that workflow at night.
CHECK, FULL = ["check"], ["full"]
# Tests wait for other processes a quarter of their time. More would need more memory.
SIDE_BY_SIDE = ("--numprocesses", "4", "--dist", "worksteal")

END_TO_END = tuple(
    f"tests/e2e/test_{name}.py"
    for name in ("two_cells", "foreign", "distribution", "init_builds", "run", "plugin")
)

nox.options.sessions = ["tests"]
nox.options.error_on_missing_interpreters = True
nox.options.reuse_existing_virtualenvs = True


def define_bench(python: str) -> None:
    """Define ``bench-X.Y``; nox makes such names only for its own environments."""

    @nox.session(name=f"bench-{python}", venv_backend="none")
    def bench(session: nox.Session) -> None:
        """Build the cells of one Python, measure, publish; ``-- --help`` lists the arguments."""
        session.run(
            *(sys.executable, "-m", "ivhl", "bench", "--python", python, *session.posargs),
            # By default nox kills after half a second, and asv would go on measuring without bench.
            # After Ctrl-C, bench publishes what is there.
            interrupt_timeout=300,
            terminate_timeout=20,
        )


for _python in MATRIX.pythons:
    define_bench(_python)


@nox.session(venv_backend="none")
def repeat(session: nox.Session) -> None:
    """Run the core suite repeatedly, and show the spread between runs.

    ``-- [--runs N] [arguments of ivhl bench]``; default: ten runs of the newest release.
    """
    arguments = list(session.posargs)
    runs = 10
    if arguments[:1] == ["--runs"]:
        runs, arguments = int(arguments[1]), arguments[2:]
    arguments = arguments or ["--torch", NEWEST_TORCH]
    if "--results" not in arguments:
        arguments += ["--results", ".asv/repeat"]
    command = [sys.executable, "-m", "ivhl"]
    for _ in range(runs):
        session.run(
            *(*command, "bench", "--python", OLDEST_PYTHON, "--force", "--no-publish", *arguments),
            interrupt_timeout=20,
            terminate_timeout=20,
        )
    folder = arguments[arguments.index("--results") + 1]
    session.run(sys.executable, "-m", "studies.spread", "--results", folder)


def install_beside(session: nox.Session, locks: Sequence[str], *wanted: str) -> None:
    """Install locks, and beside them what is wanted, as locked by CI where they do not have it."""
    hashed = (word for lock in locks for word in ("-r", lock))
    session.install("--require-hashes", "--only-binary", ":all:", *hashed)
    texts = [Path(lock).read_text(encoding="utf-8") for lock in locks]
    names = {name for text in texts for name in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)}
    pins = re.split(r"\n(?=\w)", Path(GROUPS).read_text(encoding="utf-8"))
    rest = (pin for pin in pins if pin.partition("==")[0] not in names)
    # Not `create_tmp`, which makes it the TMPDIR of the tests: a folder in this checkout.
    constraints = Path(session.virtualenv.location) / "constraints.txt"
    constraints.write_text("\n".join([*texts, *rest]), encoding="utf-8")
    session.install("--constraint", str(constraints), *wanted)


def install_cell(session: nox.Session, release: str, project: str = ".") -> None:
    """Install a cell's lock and the packages of the tests; torch comes from the lock."""
    lock = f"envs/locks/py{session.python}-torch{release}.txt"
    install_beside(session, [lock], "--group", "test", "-e", project)


# Required, not notified: `nox --parallel` orders and runs required sessions only. The longest come
# first. Two at a time leave a third of two CPUs idle: `unit` waits for deadlines, `e2e` for asv and
# uv, `docker-tests` and `fleet` for servers.
IN_TESTS = (
    *("unit", "e2e", "faults", f"contract(torch={OLDEST_TORCH!r})", "browser", "docker-tests"),
    *("founding-tests", "fleet", "slurm", "lint", "types"),
)
ONLY_IN_FULL = (
    *(f"contract(torch={release!r})" for release in TESTED if release != OLDEST_TORCH),
    *(f"long(torch={release!r})" for release in (OLDEST_TORCH, NEWEST_TORCH)),
    "calculator",
    "e2e-full",
    "causes",
    *(f"cheats(torch={release!r})" for release in TESTED),
    *(f"hotpath(torch={release!r})" for release in WITH_HOT_PATHS),
    "fuzz",
)


def run_tests(session: nox.Session, *arguments: str) -> None:
    """Run pytest beside other processes on the same CPUs."""
    # With more threads than CPUs, a thread that spins at a barrier delays those it waits for.
    passive = {"OMP_WAIT_POLICY": "PASSIVE"}
    slowest = ("--durations", "60", "--durations-min", "5")
    session.run("pytest", *slowest, *arguments, *session.posargs, env=passive)


@nox.session(venv_backend="none", requires=IN_TESTS)
def tests(_: nox.Session) -> None:
    """Run the tests that a change must pass; fastest with `nox --parallel 3 -s tests`."""


@nox.session(name="tests-full", venv_backend="none", requires=(*IN_TESTS, *ONLY_IN_FULL))
def tests_full(_: nox.Session) -> None:
    """Run `tests`, and the tests that take too long for each change."""


@nox.session(venv_backend="uv", tags=CHECK, allow_parallel=True)
def lint(session: nox.Session) -> None:
    """Check style, formatting, import contracts, changelog, locks, licences and workflows."""
    session.install(*LOCKED, "--group", "build", "--group", "lint", "-e", ".")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")
    session.run("towncrier", "build", "--draft", "--version", "next")
    session.run("python", "-m", "ivhl", "check", "locks")
    session.run("python", "-m", "studies.licences", "--check")
    # Without shellcheck and pyflakes, which actionlint would run only where they are installed.
    session.run("actionlint", "-shellcheck=", "-pyflakes=")
    session.run("zizmor", "--offline", "--persona=pedantic", ".github")
    for schema, pattern in (("workflows", "workflows/*.yml"), ("actions", "actions/*/action.yml")):
        files = sorted(map(str, Path(".github").glob(pattern)))
        session.run("check-jsonschema", "--builtin-schema", f"vendor.github-{schema}", *files)


@nox.session(venv_backend="uv", tags=CHECK, allow_parallel=True)
def types(session: nox.Session) -> None:
    """Check the types."""
    session.install(*LOCKED, "--group", "lint", "-e", ".")
    session.run("mypy")


@nox.session(venv_backend="uv")
def docs(session: nox.Session) -> None:
    """Build the documentation, as `browser` does; ``-- --output site``: beside the results."""
    session.install(*LOCKED, "--group", "docs", "-e", ".")
    session.run("python", "-m", "studies.docs", *session.posargs)


@nox.session(venv_backend="uv", python=NEWEST_PYTHON, tags=CHECK, allow_parallel=True)
def unit(session: nox.Session) -> None:
    """Run the unit tests beside the newest PyTorch of the default tier, ASE and zarr."""
    install_cell(session, NEWEST_TORCH, ".[ase,zarr]")
    run_tests(session, "tests/unit", *SIDE_BY_SIDE, "-m", "not full")


@nox.session(venv_backend="uv", python=NEWEST_PYTHON, tags=FULL, allow_parallel=True)
def calculator(session: nox.Session) -> None:
    """Run the tests of the ASE calculator where `torch.compile` refuses the Python."""
    install_cell(session, OLDEST_TORCH, ".[ase]")
    run_tests(session, "tests/unit/test_mlff_calculator.py")


@nox.session(venv_backend="uv", python=OLDEST_PYTHON, allow_parallel=True)
@nox.parametrize(
    "torch", [nox.param(r, tags=CHECK if r == OLDEST_TORCH else FULL) for r in TESTED]
)
def contract(session: nox.Session, torch: str) -> None:
    """Run the contracts of every workload, record and lock on one of the tested releases."""
    install_cell(session, torch)
    less = ("-m", "not full") if torch == OLDEST_TORCH else ()
    run_tests(session, "tests/contract", *SIDE_BY_SIDE, *less)


@nox.session(venv_backend="uv", python=OLDEST_PYTHON)
def gpu(session: nox.Session) -> None:
    """Run what a GPU is needed for; skipped where PyTorch sees none."""
    install_cell(session, NEWEST_TORCH)
    run_tests(session, "tests/gpu", *SIDE_BY_SIDE)


@nox.session(venv_backend="uv", python=OLDEST_PYTHON, tags=FULL)
@nox.parametrize("torch", [OLDEST_TORCH, NEWEST_TORCH])
def long(session: nox.Session, torch: str) -> None:
    """Run what `contract` and `unit` leave out, since it compiles for minutes."""
    install_cell(session, torch, ".[ase,zarr]")
    folder = "tests/contract" if torch == OLDEST_TORCH else "tests/unit"
    run_tests(session, folder, *SIDE_BY_SIDE, "-m", "full")


@nox.session(venv_backend="uv", python=OLDEST_PYTHON, tags=CHECK, allow_parallel=True)
def e2e(session: nox.Session) -> None:
    """Run end to end: a new user's two cells, another project's first commit, our wheel."""
    install_cell(session, OLDEST_TORCH)
    run_tests(session, *END_TO_END, "-m", "not full")


@nox.session(name="e2e-full", venv_backend="uv", python=OLDEST_PYTHON, tags=FULL)
def e2e_full(session: nox.Session) -> None:
    """Run what `e2e`, `faults`, `docker-tests`, `slurm`, `fleet` and `browser` leave out."""
    install_cell(session, OLDEST_TORCH, ".[fleet]")
    others = ("tests/e2e/test_faults.py", "tests/docker", "tests/slurm", "tests/fleet")
    run_tests(session, *END_TO_END, *others, "tests/browser", "-m", "full")


@nox.session(venv_backend="uv", python=OLDEST_PYTHON, tags=CHECK, allow_parallel=True)
def faults(session: nox.Session) -> None:
    """Run every fault, and one workload of each kind that cheats or has a model."""
    install_cell(session, OLDEST_TORCH)
    files = ("tests/e2e/test_faults.py", "tests/e2e/test_cheats.py", "tests/e2e/test_models.py")
    run_tests(session, *files, "-m", "not full")


@nox.session(venv_backend="uv", tags=FULL)
def causes(session: nox.Session) -> None:
    """Ask `ivhl blame` for a known defect, and run each known cause and report as it stands."""
    session.install(*LOCKED, "--group", "test", "-e", ".")
    names = ("causes", "known_causes", "reports")
    run_tests(session, *(f"tests/e2e/test_{name}.py" for name in names))


@nox.session(venv_backend="uv", python=OLDEST_PYTHON, tags=FULL)
@nox.parametrize("torch", TESTED)
def cheats(session: nox.Session, torch: str) -> None:
    """Run every workload that cheats, the honest ones for comparison, and all with a model."""
    install_cell(session, torch)
    run_tests(
        session,
        "tests/e2e/test_cheats.py",
        "tests/e2e/test_models.py",
        "tests/e2e/test_one_answer.py",
    )


@nox.session(venv_backend="uv", python=OLDEST_PYTHON, tags=FULL)
@nox.parametrize("torch", WITH_HOT_PATHS)
def hotpath(session: nox.Session, torch: str) -> None:
    """Run the tests of hot paths, and 150 random programs compiled by Inductor."""
    install_cell(session, torch)
    units = ("tests/unit/test_hotpath.py", "tests/unit/test_hotpath_updates.py")
    run_tests(session, *units, "tests/e2e/test_hotpath.py", *SIDE_BY_SIDE)


@nox.session(venv_backend="uv", python=NEWEST_PYTHON, tags=FULL, allow_parallel=True)
def fuzz(session: nox.Session) -> None:
    """Attack what reads files of others, for 10 minutes: `-- --seconds 3600 --seed 7 records`."""
    session.install(*LOCKED, "--group", "test", "-e", ".")
    arguments = list(session.posargs)
    if "--seconds" not in arguments:
        arguments += ["--seconds", "600"]
    session.run("python", "-m", "tests.fuzz", *arguments)


@nox.session(venv_backend="uv", tags=CHECK, allow_parallel=True)
def slurm(session: nox.Session) -> None:
    """Run on a one-node Slurm started for the tests; skip if its programs are missing."""
    session.install(*LOCKED, "--group", "test", "-e", ".")
    run_tests(session, "tests/slurm", "-m", "not full")


@nox.session(venv_backend="uv", tags=CHECK, allow_parallel=True)
def fleet(session: nox.Session) -> None:
    """Run a fleet on a PostgreSQL started for the tests; skip if it is missing."""
    session.install(*LOCKED, "--group", "test", "-e", ".[fleet]")
    run_tests(session, "tests/fleet", "-m", "not full")


@nox.session(name="docker-tests", venv_backend="uv", tags=CHECK, allow_parallel=True)
def docker_tests(session: nox.Session) -> None:
    """Build images of cells and measure in them, on a running Docker engine or one started here."""
    session.install(*LOCKED, "--group", "test", "-e", ".")
    run_tests(session, "tests/docker", "-m", "not full")


@nox.session(venv_backend="uv", tags=CHECK, allow_parallel=True)
def browser(session: nox.Session) -> None:
    """Open the site and the documentation in headless Chromium."""
    session.install(*LOCKED, "--group", "test", "--group", "docs", "-e", ".")
    run_tests(session, "tests/browser", "-m", "not full")


@nox.session(venv_backend="uv", python=OLDEST_PYTHON)
def peers(session: nox.Session) -> None:
    """Compare with other libraries: ``-- [SUITE] [arguments of python -m studies.peers]``."""
    named = [text for text in session.posargs[:1] if not text.startswith("-")]
    suite = named[0] if named else "ops"
    lock = Path("envs/peers") / f"{suite}.txt"
    if not lock.is_file():
        known = ", ".join(sorted(path.stem for path in lock.parent.glob("*.txt")))
        session.error(f"unknown suite of peers {suite!r}; known: {known}")
    session.install("--require-hashes", "-r", str(lock))
    session.install("--no-deps", "--no-build-isolation", "-e", ".")
    session.run("python", "-m", "studies.peers", suite, *session.posargs[len(named) :])


@nox.session(venv_backend="uv", python=OLDEST_PYTHON)
def rollout(session: nox.Session) -> None:
    """Time the phases of the rollout: ``-- [arguments of python -m studies.rollout]``."""
    session.install("--require-hashes", "-r", "envs/rollout/rollout.txt")
    session.install("--no-deps", "--no-build-isolation", "-e", ".")
    session.run("python", "-m", "studies.rollout", *session.posargs)


def founding_locks(session: nox.Session, release: str) -> list[str]:
    """Return the locks of a cell and of ASE beside it."""
    return [f"envs/locks/py{session.python}-torch{release}.txt", "envs/founding/founding.txt"]


@nox.session(venv_backend="uv", python=PYTHONS)
@nox.parametrize("torch", TESTED)
def founding(session: nox.Session, torch: str) -> None:
    """Run the founding benchmark again: ``-- [arguments of python -m studies.founding]``."""
    locks = founding_locks(session, torch)
    install_beside(session, locks, "--no-deps", "--no-build-isolation", "-e", ".")
    session.run("python", "-m", "studies.founding", *session.posargs)


@nox.session(
    name="founding-tests",
    venv_backend="uv",
    python=NEWEST_PYTHON,
    tags=CHECK,
    allow_parallel=True,
)
def founding_tests(session: nox.Session) -> None:
    """Run the tests that need ASE, beside the newest PyTorch of the default tier."""
    locks = founding_locks(session, NEWEST_TORCH)
    install_beside(session, locks, "--group", "test", "--group", "founding", "-e", ".")
    run_tests(session, "tests/founding")


def install_training(session: nox.Session) -> None:
    """Install the packages for training."""
    session.install("--require-hashes", "-r", "envs/train/mlff.txt")
    session.install("--no-deps", "--no-build-isolation", "-e", ".")


@nox.session(name="train-mlff", venv_backend="uv", python=OLDEST_PYTHON)
def train_mlff(session: nox.Session) -> None:
    """Train the weights of ivhl.mlff again: ``-- [arguments of python -m studies.training]``."""
    install_training(session)
    session.run("python", "-m", "studies.training", *session.posargs)


@nox.session(name="train-tests", venv_backend="uv", python=OLDEST_PYTHON)
def train_tests(session: nox.Session) -> None:
    """Test the labels and a small training run, with tblite."""
    install_training(session)
    # As in studies.training, which sets this too late here: the tests import tblite first.
    session.run("pytest", "tests/train", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session(venv_backend="none")
def lock(session: nox.Session) -> None:
    """Make the locks of the whole matrix again."""
    arguments = session.posargs or ["--force"]
    session.run(sys.executable, "-m", "ivhl", "lock", *arguments)


@nox.session(venv_backend="none")
def instrument(session: nox.Session) -> None:
    """Record whether a change of measuring code changes numbers: ``--raise``, ``--unchanged``."""
    session.run(sys.executable, "-m", "tests.contract.instrument", *session.posargs)


@nox.session(venv_backend="none")
def publish(session: nox.Session) -> None:
    """Build the site from the results in the repository."""
    session.run(sys.executable, "-m", "ivhl", "publish", *session.posargs)
