"""Datasets of trajectories: what is written, resumed, extended and refused."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
pytest.importorskip("zarr", reason="zarr is an extra")
import torch
import zarr

from ivhl.errors import SpecError
from ivhl.rollout import Architecture, Policy, StepNoise, evolve
from ivhl.rollout.__main__ import main
from ivhl.rollout.dataset import (
    UNFINISHED,
    DatasetRecipe,
    generate,
    initial_conditions,
    operator_parameters,
)

if TYPE_CHECKING:
    from ivhl.rollout.dataset import DatasetProgress

pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning")

ROOT = Path(__file__).parents[2]
RECIPE = DatasetRecipe(
    architecture=Architecture(width=2, depth=1),
    policy=Policy("residual", 0.1),
    n_realisations=2,
    n_steps=6,
    keep_every=2,
    height=8,
    width=6,
)
ARGUMENTS = (
    *("--features", "2", "--depth", "1", "--value", "0.1", "--realisations", "2"),
    *("--steps", "6", "--keep-every", "2", "--height", "8", "--width", "6"),
    *("--precision", "float32", "--eager", "--threads", "1", "--device", "cpu"),
)


def read(folder: Path, name: str) -> torch.Tensor:
    return torch.from_numpy(zarr.open_group(folder, mode="r")[name][:])


def test_a_dataset_holds_the_trajectories_of_its_recipe(tmp_path: Path) -> None:
    seen: list[DatasetProgress] = []
    done = generate(RECIPE, tmp_path / "d", n_operators=2, compiled=False, report=seen.append)
    assert [one.operators for one in seen] == [0, 1, 2]
    assert (done.operators, done.of, done.written, done.diverged) == (2, 2, 2, 0)
    state = read(tmp_path / "d", "state")
    assert state.shape == (2, 2, 4, 3, 8, 6)
    for number in range(2):
        parameters, start = operator_parameters(RECIPE, number), initial_conditions(RECIPE, number)
        expected = evolve(
            RECIPE.architecture, parameters, start[None], 6, policy=RECIPE.policy,
            noise=StepNoise(0.01, 0), keep_every=2, first_operator=number, compiled=False,
        )  # fmt: skip
        assert torch.equal(state[number], expected[:, 0].transpose(0, 1))
        flat = torch.cat([values.flatten() for values in parameters.values()])
        assert torch.equal(read(tmp_path / "d", "weights")[number], flat)
    assert read(tmp_path / "d", "finite_steps").tolist() == [[6, 6], [6, 6]]


def test_xarray_reads_it_with_names_and_times(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray", reason="xarray is in the group of tests")
    generate(RECIPE, tmp_path / "d", n_operators=1, compiled=False)
    with xarray.open_zarr(tmp_path / "d", consolidated=False, chunks=None) as dataset:
        assert dict(dataset["state"].sizes) == {
            "operator": 1, "realisation": 2, "time": 4, "channel": 3, "y": 8, "x": 6,
        }  # fmt: skip
        assert dataset["time"].values.tolist() == [0, 2, 4, 6]
        assert dataset.attrs["architecture"]["norm"] == "instance"
        assert float(dataset["state"].sel(time=6).isel(operator=0).std()) > 0.0


def test_initial_conditions_are_smooth_and_differ() -> None:
    fields = initial_conditions(replace(RECIPE, height=32, width=32), 3)
    other = initial_conditions(replace(RECIPE, height=32, width=32), 4)
    assert torch.allclose(fields.std((-2, -1)), torch.ones(2, 3), atol=1e-3)
    assert torch.allclose(fields.mean((-2, -1)), torch.zeros(2, 3), atol=1e-5)
    assert float((fields.roll(1, -1) - fields).std()) < 0.7  # white noise: 1.4
    assert not torch.equal(fields, other)


@pytest.mark.full
def test_a_killed_run_goes_on_to_the_same_dataset(tmp_path: Path) -> None:
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    command = [sys.executable, "-m", "ivhl.rollout", "generate", "--out", str(killed)]
    process = subprocess.Popen(
        [*command, "--operators", "4000", *ARGUMENTS],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("3 of"):
            break
    else:
        pytest.fail("it ended by itself")
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    marks = read(killed, "finite_steps")
    complete = int((marks >= 0).all(1).sum())
    assert 3 <= complete < 4000
    assert bool(read(killed, "state")[:complete].isfinite().all())
    # What is written by half, as by a disk that stopped, has another name; so has what was killed.
    left = killed / "state" / "c" / "0" / "0" / "0" / "0" / "0" / "0.abc.partial"
    left.write_bytes(b"half")
    n = complete + 2
    done = generate(RECIPE, killed, n_operators=n, compiled=False)
    assert (done.operators, done.written) == (n, 2)
    assert not left.exists()
    generate(RECIPE, whole, n_operators=n, compiled=False)
    for name in ("weights", "finite_steps"):
        assert torch.equal(read(killed, name)[:n], read(whole, name))
    # Another test may have set another number of threads here: sums then round otherwise.
    torch.testing.assert_close(
        read(killed, "state")[:n], read(whole, "state"), rtol=1e-4, atol=1e-4
    )


def test_more_operators_are_added_and_a_complete_dataset_is_left_alone(tmp_path: Path) -> None:
    generate(RECIPE, tmp_path / "d", n_operators=1, compiled=False)
    done = generate(RECIPE, tmp_path / "d", n_operators=2, compiled=False)
    assert (done.operators, done.written) == (2, 1)
    generate(RECIPE, tmp_path / "both", n_operators=2, compiled=False)
    for name in ("operator", "state", "weights", "finite_steps"):
        assert torch.equal(read(tmp_path / "d", name), read(tmp_path / "both", name))
    assert generate(RECIPE, tmp_path / "d", n_operators=1, compiled=False).written == 0


def test_a_run_that_was_killed_while_it_added_operators_numbers_them(tmp_path: Path) -> None:
    generate(RECIPE, tmp_path / "d", n_operators=1, compiled=False)
    zarr.open_group(tmp_path / "d", mode="r+")["operator"].resize((2,))
    generate(RECIPE, tmp_path / "d", n_operators=2, compiled=False)
    assert read(tmp_path / "d", "operator").tolist() == [0, 1]


def test_an_empty_folder_stays_be_it_a_link_or_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (tmp_path / "link").symlink_to(there)
    monkeypatch.chdir(there)
    before = there.stat().st_ino
    for folder, written in ((tmp_path / "link", 1), (Path(), 0)):
        assert generate(RECIPE, folder, n_operators=1, compiled=False).written == written
    assert there.stat().st_ino == before
    assert (tmp_path / "link").is_symlink()
    generate(RECIPE, tmp_path / "new", n_operators=1, compiled=False)
    files = [
        {path.relative_to(folder): path.is_file() and path.read_bytes() for path in found}
        for folder, found in ((f, f.rglob("*")) for f in (there, tmp_path / "new"))
    ]
    assert files[0] == files[1]


@pytest.mark.parametrize("n_moved", range(7))
def test_a_run_that_was_killed_while_it_filled_an_empty_folder_begins_again(
    n_moved: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    moved: list[str] = []
    rename = Path.rename

    def killed(path: Path, target: Path) -> Path:
        if path.parent.name == UNFINISHED:
            if len(moved) == n_moved:
                raise KeyboardInterrupt
            moved.append(path.name)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", killed)
    monkeypatch.setattr(Path, "rmdir", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        generate(RECIPE, tmp_path / "d", n_operators=1, compiled=False)
    monkeypatch.undo()
    assert len(moved) == n_moved
    assert generate(RECIPE, tmp_path / "d", n_operators=1, compiled=False).written == 1
    assert not (tmp_path / "d" / UNFINISHED).exists()


@pytest.mark.parametrize("name", ["state", "weights", "finite_steps"])
@pytest.mark.parametrize("size", [100, 0, None])
def test_an_operator_that_cannot_be_read_is_written_again(
    name: str, size: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["generate", "--out", str(tmp_path / "d"), "--operators", "3", *ARGUMENTS]
    assert main(command) == 0
    before = {one: read(tmp_path / "d", one) for one in ("weights", "state", "finite_steps")}
    inner = {"state": "1/1/0/0/0/0", "weights": "1/0", "finite_steps": "1/0"}[name]
    chunk = tmp_path / "d" / name / "c" / inner
    whole = chunk.read_bytes()
    chunk.unlink()
    if size is not None:
        chunk.write_bytes(whole[: min(size, len(whole) - 1)])
    capsys.readouterr()
    # What is gone or empty is seen without being asked for, and so are marks, which are always
    # read; another broken content only by reading it.
    is_seen = not size or name == "finite_steps"
    assert main(command if is_seen else [*command, "--check"]) == 0
    told = capsys.readouterr().out
    assert "3 operators, 1 of them written now" in told
    # Without its marks an operator that was written is as one that was not.
    missing_marks = name == "finite_steps" and size is None
    assert ("1 of them could not be read, and were written again" in told) is not missing_marks
    for one, values in before.items():
        torch.testing.assert_close(read(tmp_path / "d", one), values, rtol=1e-4, atol=1e-4)
    assert main([*command, "--check"]) == 0
    assert "0 of them written now\n" in capsys.readouterr().out


def test_broken_marks_among_many_leave_only_sentences(tmp_path: Path) -> None:
    # With some dozens of chunks zarr leaves tasks pending when one cannot be decoded: a process that
    # ends there prints each of them.
    command = [
        *(sys.executable, "-W", "ignore:Failed to initialize NumPy:UserWarning"),
        *("-m", "ivhl.rollout", "generate", "--out", str(tmp_path / "d"), "--operators", "60"),
        *ARGUMENTS,
    ]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    before = read(tmp_path / "d", "finite_steps")
    (tmp_path / "d" / "finite_steps" / "c" / "9" / "0").write_bytes(b"xx")
    again = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert "1 of them could not be read, and were written again" in again.stdout
    assert all(" of 60 operators" in line for line in again.stderr.splitlines()), again.stderr
    assert torch.equal(read(tmp_path / "d", "finite_steps"), before)


@pytest.mark.parametrize("name", ["time", "operator"])
@pytest.mark.parametrize("content", [b"xx", None])
def test_a_coordinate_that_is_broken_is_written_again(
    name: str, content: bytes | None, tmp_path: Path
) -> None:
    generate(RECIPE, tmp_path / "d", n_operators=2, compiled=False)
    before = read(tmp_path / "d", name)
    chunk = tmp_path / "d" / name / "c" / "0"
    chunk.unlink()
    if content is not None:
        chunk.write_bytes(content)
    generate(RECIPE, tmp_path / "d", n_operators=2, compiled=False)
    assert torch.equal(read(tmp_path / "d", name), before)


def test_another_recipe_is_refused_and_names_what_differs(tmp_path: Path) -> None:
    generate(RECIPE, tmp_path / "d", n_operators=1, compiled=False)
    with pytest.raises(SpecError, match="n_steps: 6 there, 4 asked for"):
        generate(replace(RECIPE, n_steps=4), tmp_path / "d", n_operators=1, compiled=False)


def test_what_diverges_is_kept_and_marked(tmp_path: Path) -> None:
    recipe = replace(RECIPE, architecture=Architecture(width=2, depth=0, norm="none"))
    growing = replace(recipe, policy=Policy("residual", 1e20), noise=0.0)
    done = generate(growing, tmp_path / "d", n_operators=1, compiled=False)
    assert done.diverged == 2
    finite = read(tmp_path / "d", "finite_steps")[0]
    state = read(tmp_path / "d", "state")[0]
    for realisation, last in enumerate(finite.tolist()):
        assert 0 <= last < 6
        assert bool(state[realisation, : last // 2 + 1].isfinite().all())
        assert not bool(state[realisation, last // 2 + 1].isfinite().all())


def test_a_full_disk_is_a_sentence_and_keeps_what_is_complete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a small disk")
    try:
        arguments = ["generate", "--out", str(disk / "d"), "--operators", "400", *ARGUMENTS]
        assert main(arguments) == 5
        message = capsys.readouterr().err
        assert "error: " in message
        assert f"{disk / 'd'}: the dataset cannot be written: No space left on device" in message
        assert "next: make room there and run the same command again, it goes on" in message
        assert "Traceback" not in message
        marks = read(disk / "d", "finite_steps")
        complete = int((marks >= 0).all(1).sum())
        assert 0 < complete < 400
        assert bool(read(disk / "d", "state")[:complete].isfinite().all())
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.parametrize(
    ("number", "says", "step"),
    [
        (errno.ENOSPC, "No space left on device", "make room there and run the same command"),
        (errno.EROFS, "Read-only file system", "choose a folder on a disk that can be written"),
        (errno.EACCES, "Permission denied", "check the permissions of this folder and its disk"),
    ],
)
def test_a_folder_that_cannot_be_written_is_named_and_no_file_of_zarr(
    number: int,
    says: str,
    step: str,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*_: Any, **__: Any) -> None:  # noqa: ANN401
        raise OSError(number, os.strerror(number), "zarr.abc.partial")

    monkeypatch.setattr(zarr, "open_group", refuse)
    assert main(["generate", "--out", str(tmp_path / "d"), "--operators", "1", *ARGUMENTS]) == 5
    error, hint = capsys.readouterr().err.splitlines()
    assert error == f"error: {tmp_path / 'd'}: the dataset cannot be written: {says}"
    assert hint.startswith(f"next: {step}")
    assert "--out" in hint


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--operators 0", "--operators must be from 1 to 10,000,000, got 0"),
        ("--operators 99999999999", "must be from 1 to 10,000,000, got 99999999999"),
        ("--steps 0", "--steps must be at least 1, got 0"),
        ("--keep-every 0", "--keep-every must be at least 1, got 0"),
        ("--realisations 0", "--realisations must be at least 1, got 0"),
        ("--channels 0", "--channels must be an integer of at least 1, got 0"),
        ("--features 0", "--features must be an integer of at least 1, got 0"),
        ("--width 1", "--width must be at least 2, got 1"),
        ("--noise -1", "--noise must be finite and not negative, got -1.0"),
        ("--policy convex --value 2", "the --value of a convex policy must be in [0, 1], got 2.0"),
        (
            "--norm group --features 8 --groups 3",
            "--groups must divide --features, 8, for the norm 'group', got 3",
        ),
        ("--steps 9999999 --keep-every 1", "keep fewer states (--keep-every)"),
        (
            "--memory 1e-9 --height 16 --width 16 --features 8 --depth 1",
            " GiB, what one realisation takes here, got 1e-09",
        ),
    ],
)
def test_wrong_arguments_are_a_sentence(
    arguments: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names options, not parameters of the library, and no folder is made before it."""
    command = ["generate", "--out", str(tmp_path / "d"), "--device", "cpu", "--operators", "1"]
    assert main([*command, *arguments.split()]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert message in error
    assert hint.startswith("next: ")
    assert not (tmp_path / "d").exists()


def test_the_least_memory_that_is_named_is_enough(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["generate", "--out", str(tmp_path / "d"), "--operators", "1", *ARGUMENTS]
    assert main([*command, "--memory", "1e-9"]) == 2
    least = capsys.readouterr().err.partition("--memory must be at least ")[2].split()[0]
    assert main([*command, "--memory", least]) == 0


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--threads", "x", "must be a whole number from 1 to 32768 (got 'x')"),
        ("--threads", "99999999999", "must be a whole number from 1 to 32768"),
        ("--memory", "x", "must be a finite number above 0 (got 'x')"),
        ("--memory", "inf", "must be a finite number above 0 (got 'inf')"),
    ],
)
def test_what_is_no_such_number_is_a_sentence(
    option: str, value: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as usage:
        main(["generate", "--operators", "1", "--out", "d", option, value])
    assert usage.value.code == 2
    assert f"argument {option}: {says}" in capsys.readouterr().err


def test_no_folder_is_not_the_current_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as usage:
        main(["generate", "--operators", "1", "--out", ""])
    assert usage.value.code == 2
    assert "argument --out: must name a folder (got '')" in capsys.readouterr().err


def test_a_folder_of_other_files_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    arguments = ["generate", "--out", str(tmp_path), "--operators", "1", *ARGUMENTS]
    assert main(arguments) == 2
    assert "holds files and no dataset" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_trajectory_that_is_too_long_for_a_chunk_is_refused() -> None:
    with pytest.raises(ValueError, match=r"keep fewer states \(keep_every\)"):
        DatasetRecipe(n_steps=5_000_000_000_000, keep_every=2)
