"""Every block of code on a page runs: here, or in the test or session that a list names.

What ``python -m studies.tables`` writes is run by ``test_docs_tables``.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from typer.core import TyperCommand
from typer.testing import CliRunner

from ivhl.cli import app
from ivhl.matrix.spec import load_matrix
from ivhl.observatory.rows import read_rows
from ivhl.tracker.support.expectations import load_expectations
from ivhl.tracker.support.known import known_causes
from tests.builders.pages import ROOT, code_blocks, commands

if TYPE_CHECKING:
    from pathlib import Path

# Commands that are not run here (regular expressions of whole commands), and why.
ELSEWHERE: Final = {
    # What measures takes minutes to hours, and cells of gigabytes.
    r"nox -s bench-.*|ivhl bench.*": "minutes to hours: tests/e2e/test_two_cells.py",
    r"ivhl try.*|TORCH_LOGS=.* ivhl try .*": "makes a cell: tests/unit/test_script.py",
    r"ivhl run (tests/e2e/reproducers|studies)/.*": "makes cells: tests/e2e/test_known_causes.py",
    r"ivhl run repro\.py .*": "makes cells: tests/e2e/test_run.py",
    r"ivhl report .*": "makes cells: tests/unit/test_script_report.py",
    r"ivhl observe .*--torch next": "needs an index of nightlies: tests/unit/test_matrix_next.py",
    r"ivhl observe pytorch-tcn .*": "an invented row: tests/unit/test_observatory_run.py",
    r"ivhl attribute .*--rounds.*": "measures: tests/unit/test_attribution.py",
    r"ivhl attribute .*@.*": "records of two commits: tests/unit/test_attribution.py",
    r"ivhl blame .*": "measures in two cells: tests/e2e/test_causes.py",
    r"ivhl repeat .*": "builds an environment: tests/unit/test_repetition.py",
    r"ivhl gate .*--measure.*": "measures two commits: tests/unit/test_fleet_gate.py",
    r"ivhl bisect \.\.\. --dry-run": "short for the commands above it, which run with --dry-run",
    r"python -m studies\.(builds|containers|throughput|founding|detection) .*"
    r"|python -m studies\.throughput|IVHL_IMAGE_CPUS=1 .*": "minutes, other Pythons, or data",
    r"python -m ivhl\.measure .*": "measures on a GPU: tests/gpu/test_gpu.py",
    r"python -m ivhl\.surgical advise .*": "measures a model: tests/unit/test_surgical_advice.py",
    r"nox -s (fuzz|unit|browser|peers|instrument|\"founding).*": "sessions of their own",
    # What changes this checkout, or installs.
    r"python3 -m venv .*|\. \.venv/bin/activate|python -m pip install .*": "installs: .ci/run",
    r"python -m studies\.tables": "writes pages: tests/unit/test_docs_tables.py",
    r"ivhl init .*": "writes a project: tests/unit/test_init.py",
    r"ivhl lock": "writes locks: tests/unit/test_matrix_locks.py",
    r"ivhl publish": "writes the site: tests/unit/test_asv_publish.py",
    r"towncrier .*": "writes fragments; nox -s lint builds a draft",
    r"git diff .*": "shows changes of a person",
    r"git (add|commit|tag|push) .*|uv version .*": "publishes: tests/docker/test_release.py",
    r"asv .*": "asv's own: tests/unit/test_asv_commands.py",
    # What a machine or a service must be there for.
    r"ivhl matrix --new.*": "asks a registry: tests/unit/test_matrix_releases.py",
    r"ivhl import( .*)?": "records of other machines: tests/unit/test_fleet_import.py",
    r"ivhl fleet .*|.* ivhl fleet work|createdb .*|psql .*|export IVHL_QUEUE=.*": "a server: "
    "tests/fleet/test_fleet.py",
    r"ivhl image .*|docker .*": "an engine: tests/docker/test_images.py",
    r"sbatch .*": "a cluster: tests/slurm/test_slurm.py",
    r"gh .*": "asks GitHub: tests/unit/test_fleet_signed.py",
    r"export IVHL_NEXT_INDEX=.*": "an index of nightlies: tests/unit/test_matrix_next.py",
    r"ivhl doctor --device cuda": "needs a GPU: tests/unit/test_bench_tools.py",
    r"ivhl version-checks sbi-.*": "source of others: tests/unit/test_version_checks.py",
    r"tar .*|\.\./Python-.*|PATH=\$HOME.*|python3\.14t .*|python -m timeit .*": "builds of Python",
    # What is indented, and no command.
    r"\"plugins\": .*": "a line of JSON: tests/unit/test_asv_installed.py",
    r"<PyTorch's own cache folder>.*|(rmse|largest error).*": "a path; formulas",
}
# Blocks that are not run here, by words in them, and why.
BLOCKS_ELSEWHERE: Final = {
    "x_transformers": "x-transformers is in no environment of the tests",
    "MyModel().eval()": "the reader's model: tests/unit/test_surgical_advice.py",
    "CALLS = ": "files of a project: tests/e2e/test_foreign.py",
    "softplus": "files of a project: tests/e2e/test_foreign.py",
    "What ivhl measures of this project": "files of a project: tests/e2e/test_foreign.py",
    "A function that is worth compiling": "files of a project: tests/e2e/test_foreign.py",
    "def make_inputs(size, generator)": "files of a project: tests/e2e/test_models.py",
    "exclude-newer": "files of a project: tests/e2e/test_foreign.py",
    "build-backend": "files of a project: tests/e2e/test_foreign.py",
    "the 40 digits of a commit": "a job of GitLab: tests/unit/test_workflows.py",
    "of the time   compiled alone": "output, measured",
}
# What stands for the words that a reader replaces, and for commits that a clone may lack.
WORDS: Final = {
    "CELL CELL": "py3.12-torch2.5.1 py3.12-torch2.6.0",
    "PATH": "tests/unit/test_hotpath.py",  # three version checks
    "v1.0 main": "HEAD~1 HEAD",
    "--base main": "--base HEAD~1",
}
# Exit codes that are answers (docs/commands.md), besides 0.
ANSWERS: Final = {"doctor": {1}, "gate": {7, 8, 11}, "matrix": {1}}
BLOCKS: Final = list(code_blocks())
LINES: Final = sorted(
    {line for block in BLOCKS if block.language in {"", "console"} for line in commands(block)}
)


def reason_of(line: str) -> str | None:
    return next((why for rule, why in ELSEWHERE.items() if re.fullmatch(rule, line)), None)


def words_of(line: str) -> list[str]:
    """Return the words of a command, with those that a reader replaces."""
    for word, value in WORDS.items():
        line = re.sub(rf"(?<=\s){re.escape(word)}\b", value, line)
    return shlex.split(line)


IN_A_PAGE: Final = "python -m ivhl.rollout "  # between the blocks of Python of its page
HERE: Final = [
    line for line in LINES if reason_of(line) is None and not line.startswith(IN_A_PAGE)
]


def test_no_other_program_runs_here() -> None:
    """A page may say `git push`: what it says is not run because nobody thought of it."""
    programs = {words_of(line)[0] for line in HERE}
    assert programs <= {"ivhl", "nox", "python", "python3"}, "add their lines to ELSEWHERE"


def test_what_is_not_run_here_is_on_a_page_and_its_test_exists() -> None:
    unused = [rule for rule in ELSEWHERE if not any(re.fullmatch(rule, line) for line in LINES)]
    texts = [block.text for block in BLOCKS]
    unused += [word for word in BLOCKS_ELSEWHERE if not any(word in text for text in texts)]
    assert unused == [], "no page has these: delete them"
    reasons = (*ELSEWHERE.values(), *BLOCKS_ELSEWHERE.values())
    named = {name for why in reasons for name in re.findall(r"(?:tests|\.ci)/[\w/.]+", why)}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_every_script_of_the_findings_is_run_by_a_known_cause() -> None:
    run = {cause.script for cause in known_causes()}
    lines = [line for line in LINES if re.match(r"ivhl run (tests|studies)/", line)]
    assert len(lines) > 20
    assert {line.split()[2] for line in lines} <= run


def test_ivhl_nox_and_python_take_every_command_of_the_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page names no command, option, session or module that is gone, also if it runs elsewhere."""
    monkeypatch.setattr(TyperCommand, "invoke", lambda self, context: None, raising=False)  # noqa: ARG005
    monkeypatch.chdir(ROOT)
    listed = subprocess.run(
        [sys.executable, "-m", "nox", "--list"],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    sessions = set(re.findall(r"(?m)^[-*] (\S+)", listed.stdout))
    refused, called = [], set()
    for line in LINES:
        asked = re.fullmatch(r"(?:\w+=\S+ )*((?:ivhl|nox -s|python -m) .*)", line)
        if asked is None:
            continue
        words = words_of(asked[1])
        if words[0] == "nox":
            if words[2] not in sessions:
                refused.append(line)
            if not words[2].startswith("bench-") or "--help" in words:
                continue
            words = ["ivhl", "bench", "--python", words[2].removeprefix("bench-"), *words[4:]]
        if words[0] == "python" and words[2] != "pip" and find_spec(words[2]) is None:
            refused.append(line)
        if words[0] == "ivhl" and "..." not in words:
            called.add(words[1])
            done = CliRunner().invoke(app, words[1:])
            if done.exit_code:
                refused.append(f"{line}: {done.output}")
    assert not refused, "\n".join(refused)
    assert len(called) > 15


@pytest.mark.parametrize("line", HERE)
def test_a_command_of_a_page_runs(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    program, *words = words_of(line)
    assert program in {"ivhl", "nox", "python", "python3"}
    if program == "ivhl":
        # A bisection and the observatory measure: their plan is what runs here.
        dry = ["--dry-run"] if words[0] in {"bisect", "observe"} else []
        done = CliRunner().invoke(app, [*words, *dry])
        # That of an error is set where the program ends.
        code = getattr(done.exception, "exit_code", done.exit_code)
        assert code in {0, *ANSWERS.get(words[0], ())}, (done.output, done.exception)
        assert done.output
        return
    if program in {"nox", "python"}:
        words = [*(["-m", "nox"] if program == "nox" else ()), *words]
        program = sys.executable
    subprocess.run([program, *words], cwd=ROOT, check=True, env=environment())


def environment() -> dict[str, str]:
    # In a checkout, these modules are found beside the tests and not in an installed ivhl.
    return os.environ | {"PYTHONPATH": str(ROOT)}


# What a page takes for granted before one of its blocks, by the first words of the block.
BEFORE: Final = {
    "block = hotpath.auto()": "block = hotpath.auto()",
    'with hotpath.boundary("forward")': "model.encoder = torch.nn.Identity()",
    "with fp8_step(stack)": """
        from ivhl.surgical import fp8_step
        stack = TransformerStack(configuration, plan="sdpa").to(torch.bfloat16)
        x = torch.randn(1, 256, 512, dtype=torch.bfloat16)
    """,
    "Workload(": "from ivhl.workload import Workload",
    "xarray.open_zarr": "import xarray",
}
# Sizes that would take minutes, and the ones here.
SMALLER: Final = {
    "--operators 100 --steps 500": "--operators 1 --steps 2 --realisations 1 --height 16 --eager",
    "--width 64 --steps 20": "--width 64 --steps 2 --realisations 1",
    "state, 500,": "state, 5,",
    "run(1000)": "run(10)",
}


def elsewhere(text: str) -> bool:
    return any(word in text for word in BLOCKS_ELSEWHERE)


def script_of(page: str) -> str:
    """Return the Python of a page as one script, with the commands of modules between its blocks."""
    parts = ["import subprocess, sys", "import torch"]
    for block in BLOCKS:
        if block.page != page:
            continue
        text = block.text
        for long, short in SMALLER.items():
            text = text.replace(long, short)
        if block.language == "python" and not elsewhere(text):
            parts += [dedent(v) for word, v in BEFORE.items() if text.startswith(word)]
            parts.append(text)
        elif block.language == "":
            parts += [
                f"subprocess.run([sys.executable, *{shlex.split(line)[1:]!r}], check=True)"
                for line in commands(block._replace(text=text))
                if line.startswith(IN_A_PAGE)
            ]
    return "\n".join(parts)


# These compile for a minute.
COMPILING: Final = {
    "docs/compile.md",
    "docs/hotpath.md",
    "docs/rollout.md",
    "docs/surgical.md",
}
PYTHON_PAGES: Final = sorted(
    {b.page for b in BLOCKS if b.language == "python" and not elsewhere(b.text)}
)


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=[pytest.mark.full] * (p in COMPILING)) for p in PYTHON_PAGES],
)
def test_the_python_of_a_page_runs(page: str, tmp_path: Path) -> None:
    if page == "docs/mlff.md":
        pytest.importorskip("ase", reason="its first block needs the extra `ase`")
    script = tmp_path / "page.py"
    script.write_text(script_of(page), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_every_block_of_another_language_is_read_by_its_reader(tmp_path: Path) -> None:
    left = []
    for block in BLOCKS:
        if block.language in {"", "console", "python"} or elsewhere(block.text):
            continue
        if block.language == "toml":
            read_toml_of(block.page, block.text, tmp_path)
        elif block.language == "yaml":
            read_workflow(yaml.safe_load(block.text))
        else:
            left.append(block)
    assert left == []


def read_toml_of(page: str, text: str, folder: Path) -> None:
    if page == "docs/expectations.md":
        (folder / "envs").mkdir(exist_ok=True)
        (folder / "envs" / "expectations.toml").write_text(text, encoding="utf-8")
        found = load_expectations(folder)
        assert len(found.entries) + len(found.notes) == 1
    elif page == "observatory/README.md":
        (folder / "libraries.toml").write_text(text, encoding="utf-8")
        (library,) = read_rows(folder)
        assert (library.name, len(library.questions)) == ("pytorch-tcn", 2)
    else:
        assert page == "docs/matrix.md"
        matrix = (ROOT / "envs" / "matrix.toml").read_text(encoding="utf-8")
        (folder / "matrix.toml").write_text(f"{matrix}\n{text}", encoding="utf-8")
        added = tomllib.loads(text)["torch"][0]["release"]
        assert added not in load_matrix(ROOT / "envs" / "matrix.toml").releases("extended")
        assert added in load_matrix(folder / "matrix.toml").releases("extended")


def read_workflow(block: Any) -> None:  # noqa: ANN401  (YAML)
    """Check that a workflow or step uses a file of this repository, with inputs that it has.

    Lines of a job must keep forks off a machine with the labels of our own, as the template does
    for the job that writes.
    """
    if "runs-on" in block:
        ours = yaml.safe_load((ROOT / ".github/workflows/bench.yml").read_text(encoding="utf-8"))
        assert block["runs-on"] == ours["jobs"]["measure"]["runs-on"]
        template = (ROOT / "ivhl/init/templates/workflow.yml").read_text(encoding="utf-8")
        jobs = yaml.safe_load(template)["jobs"]
        assert "runs-on" in jobs["compare"]
        assert "if" not in jobs["compare"]
        assert block["if"] in jobs["comment"]["if"]
        return
    (step,) = block["jobs"].values() if "jobs" in block else block
    place = step["uses"].partition("@")[0].removeprefix("ivhl/ivhl").strip("/") or "action.yml"
    used = yaml.safe_load((ROOT / place).read_text(encoding="utf-8"))
    assert step.get("with", {}).keys() <= used.get("inputs", {}).keys()
