"""Images without an engine: recipes, limits, records, and errors."""

from __future__ import annotations

import gc
import json
import tarfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from docker.errors import APIError, ContainerError, ImageNotFound
from hypothesis import given
from hypothesis import strategies as st
from requests.exceptions import ConnectionError as NoConnection
from typer.testing import CliRunner
from urllib3.exceptions import HTTPError

from ivhl.cli import app
from ivhl.errors import SpecError
from ivhl.image import inside
from ivhl.image.build import (
    EngineError,
    _failed,
    _pieces,
    _whole_lines,
    connect,
    engine_errors,
    has_buildkit,
    list_images,
)
from ivhl.image.container import Order, _payload, choose_cpus, choose_memory
from ivhl.image.executor import records_of_image
from ivhl.image.recipe import (
    PackageSources,
    Recipe,
    load_base,
    make_recipe,
    sources_here,
    write_context,
)
from ivhl.matrix.locks import lock_state
from ivhl.matrix.spec import CellSpec
from ivhl.measure.settings import Settings
from ivhl.records.files import append_record
from ivhl.records.record import Interval, Machine, RunRecord
from ivhl.tracker.changes.gate import judge
from studies.containers import judge_agreement
from tests.builders.project import git
from tests.builders.records import COMMIT, interval, make_failure, make_record

if TYPE_CHECKING:
    from ivhl.measure.run import Run

ROOT = Path(__file__).parents[2]
IMAGE, OTHER = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
MACHINE = Machine(name="m", cpu="c", n_cpus=8, memory_bytes=16 << 30, system="Linux x86_64")


def recipe(**changes: Any) -> Recipe:  # noqa: ANN401
    lock = lock_state(ROOT, CellSpec("3.12", "2.6.0"))
    made = make_recipe(ROOT, lock, device="cpu", commit=COMMIT)
    return replace(made, **{"base": "base:1"} | changes)


def in_image(record: RunRecord, image: str | None) -> RunRecord:
    return replace(record, conditions=replace(record.conditions, image=image))


def test_both_bases_are_pinned_by_digest() -> None:
    for device in ("cpu", "cuda"):
        name, _, digest = load_base(ROOT, device).partition("@sha256:")
        assert name
        assert len(digest) == 64


def test_a_base_without_a_digest_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "envs" / "docker"
    folder.mkdir(parents=True)
    text = (ROOT / "envs" / "docker" / "bases.toml").read_text(encoding="utf-8")
    (folder / "bases.toml").write_text(text.replace("sha256:", "latest:"), encoding="utf-8")
    with pytest.raises(SpecError, match=r"cpu\.digest: must be of the form sha256"):
        load_base(tmp_path, "cpu")


@pytest.mark.parametrize("text", [f"a = {'9' * 5_000}", f"a = {'[' * 100_000}", "a = ["])
def test_bases_that_are_no_toml_are_refused_by_name(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "envs" / "docker"
    folder.mkdir(parents=True)
    (folder / "bases.toml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=r"bases\.toml: is not valid TOML"):
        load_base(tmp_path, "cpu")


def test_without_buildkit_only_the_mounts_are_removed() -> None:
    made = recipe()
    text = made.classic_dockerfile()
    assert "--mount=" in made.dockerfile
    assert "--mount=" not in text
    assert "RUN set -eu" in " ".join(text.replace("\\\n", " ").split())
    assert len(text.splitlines()) >= len(made.dockerfile.splitlines()) - 1


def test_the_recipe_depends_only_on_the_contents_of_the_image() -> None:
    made = recipe()
    assert recipe(commit="f" * 40).digest == made.digest
    for change in ({"base": "base:2"}, {"uv": "0"}, {"dockerfile": "FROM x"}, {"device": "cuda"}):
        assert recipe(**change).digest != made.digest


def test_labels_have_lock_commit_and_versions() -> None:
    labels = recipe().labels
    assert labels["org.ivhl.lock"] == lock_state(ROOT, CellSpec("3.12", "2.6.0")).sha256
    assert labels["org.opencontainers.image.revision"] == COMMIT
    assert (labels["org.ivhl.python"], labels["org.ivhl.torch"]) == ("3.12", "2.6.0")


def test_equal_recipes_make_equal_contexts() -> None:
    made = [BytesIO(), BytesIO()]
    for file in made:
        write_context(recipe(), file, dockerfile="FROM x", settings=b"")
    assert made[0].getvalue() == made[1].getvalue()
    with tarfile.open(fileobj=BytesIO(made[0].getvalue())) as archive:
        assert set(archive.getnames()) == {"Dockerfile", "lock.txt", "settings.sh", "uv"}
        assert archive.getmember("uv").mode & 0o111


def test_the_shell_reads_settings_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = tmp_path / "ca.pem"
    certificates.write_text("-----BEGIN-----\n$(echo no)\n-----END-----\n", encoding="utf-8")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates))
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://u:p@mirror.example/it's $HOME")
    script = sources_here().script().decode()
    assert """UV_DEFAULT_INDEX='https://u:p@mirror.example/it'"'"'s $HOME'""" in script
    assert "<<'IVHL_END'\n-----BEGIN-----\n$(echo no)\n-----END-----\nIVHL_END\n" in script


def test_missing_certificates_are_named() -> None:
    with pytest.raises(SpecError, match=r"no/ca\.pem"):
        PackageSources(certificates=Path("no/ca.pem")).script()


@pytest.mark.parametrize(
    ("text", "threads", "chosen"),
    [("", 1, (6, 7)), ("", 20, tuple(range(8))), ("2-3,6", 1, (2, 3, 6)), ("0", 4, (0,))],
)
def test_cpus_are_the_named_or_the_last_ones(
    text: str, threads: int, chosen: tuple[int, ...]
) -> None:
    assert choose_cpus(text, MACHINE, threads) == chosen


@pytest.mark.parametrize("text", ["8", "1-9", "x", "-1", "3-2", ","])
def test_missing_cpus_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="from 0 to 7"):
        choose_cpus(text, MACHINE, 1)


@given(limit=st.integers(min_value=1 << 20, max_value=64 << 30))
def test_the_memory_limit_of_a_case_is_below_the_containers(limit: int) -> None:
    container = choose_memory(limit, MACHINE)
    assert container <= MACHINE.memory_bytes
    assert 0.9 * container <= limit
    if limit <= 0.9 * MACHINE.memory_bytes:
        assert container >= limit


def test_records_of_another_image_or_of_none_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    mine = in_image(make_record(variant="a"), IMAGE)
    for record in (
        mine,
        in_image(make_record(variant="b"), OTHER),
        make_record(variant="c"),
        in_image(make_record(variant="d"), IMAGE),
        make_record(variant="d"),
    ):
        append_record(path, record)
    with path.open("ab") as file:
        file.write(b"half a li")
    (kept,) = records_of_image(path, IMAGE)
    assert '"variant":"a"' in kept
    assert records_of_image(tmp_path / "none.jsonl", IMAGE) == ()


def test_a_container_gets_the_digest_of_its_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "nothing")
    settings = Settings(
        root="", project="ivhl", workloads="benchmarks", machine=MACHINE,
        results="", scratch="", events="", interpreters={},
        names=("ops.normalize_field/medium/real-compiled",),
    )  # fmt: skip
    order = Order(
        root=tmp_path, image=IMAGE, settings=settings, cell=make_record().cell,
        commit=git(tmp_path, "rev-parse", "HEAD"), records=(), run="r",
        cpus="0",
        memory_bytes=1 << 30,
    )  # fmt: skip
    with tarfile.open(fileobj=BytesIO(_payload(order))) as payload:
        payload.extractall(tmp_path, filter="data")
    runs: list[Run] = []
    monkeypatch.setattr("ivhl.measure.runner.run_cases", lambda run, *_: runs.append(run))
    monkeypatch.setattr("ivhl.image.inside.HERE", tmp_path)
    told = json.loads((tmp_path / "order.json").read_text(encoding="utf-8"))
    inside.measure(told, {order.commit: str(tmp_path)}, lambda *_, **__: None)
    # The compile cache is off: it would be lost with the container.
    assert [(run.image, run.cache) for run in runs] == [(IMAGE, None)]


def measured(speedup: float, *, noise: float = 1.1, **changes: Any) -> RunRecord:  # noqa: ANN401
    aa = Interval(value=1.0, low=1 / noise, high=1.01, confidence=0.95, n=9)
    return replace(make_record(**changes), speedup=interval(speedup), aa=aa)


def test_native_and_container_agree_within_the_noise() -> None:
    native = [measured(2.0), measured(2.0)]
    (near,), _ = judge_agreement(native, [measured(2.4), measured(2.4)])
    assert near.floor == pytest.approx(1.1 * 1.1)
    assert near.agrees
    (far,), _ = judge_agreement(native, [measured(2.5), measured(2.5)])
    assert not far.agrees
    (slow,), _ = judge_agreement(native, [measured(1.6)])
    assert not slow.agrees


def test_repeated_runs_that_differ_raise_the_noise_floor() -> None:
    (one,), _ = judge_agreement([measured(2.0), measured(3.0)], [measured(1.8)])
    assert one.floor == pytest.approx(1.5)
    assert one.agrees


def test_records_that_cannot_be_compared_are_named() -> None:
    gate = make_failure("support_gate", variant="b")
    found, left_out = judge_agreement(
        [measured(2.0), gate, measured(1.0, variant="c"), measured(1.0, variant="d")],
        [measured(2.0), gate, make_failure("crash", variant="c")],
    )
    assert [one.case for one in found] == ["ops.gp_evolve/small/naive-compiled"]
    assert any("/b: support_gate on both sides" in line for line in left_out)
    assert any("/c: fails in some runs: crash" in line for line in left_out)
    assert any("/d: measured on one side only" in line for line in left_out)


# docker leaves a socket open if no engine answers.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_without_an_engine_the_error_has_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/docker.sock")
    with pytest.raises(EngineError, match=r"no Docker engine answers at unix:///no") as caught:
        connect()
    assert "DOCKER_HOST" in caught.value.hint
    refused = CliRunner().invoke(app, ["image", "py3.12-torch2.6.0"]).exception
    assert isinstance(refused, EngineError)
    assert refused.exit_code == 9
    del caught, refused
    gc.collect()


def test_exceptions_of_docker_become_engine_errors() -> None:
    told = {
        "no such image": ImageNotFound("no such image"),
        "reset": NoConnection("reset"),
        "cut off": HTTPError("cut off"),
        "no space left on device": APIError("write: no space left on device"),
        "status 127": ContainerError("c", 127, "cat", "i", b"no cat"),
        "No space left": OSError(28, "No space left on device"),
        "could not select device driver": APIError(
            'could not select device driver "" with capabilities: [[gpu]]'
        ),
    }
    hints = []
    for text, error in told.items():
        with pytest.raises(EngineError, match=text) as caught, engine_errors("measuring x"):
            raise error
        assert str(caught.value).startswith("measuring x: ")
        hints.append(caught.value.hint)
    assert "built when it is missing" in hints[0]
    assert "connection to the engine was lost" in hints[1] == hints[2]
    assert "docker image rm" in hints[3]
    assert "another base" in hints[4]
    assert "this machine" in hints[5]
    assert "NVIDIA container toolkit" in hints[6]


@given(pieces=st.lists(st.text(alphabet="ab\n", max_size=8)), red=st.lists(st.booleans()))
def test_build_output_in_pieces_is_joined_to_lines(pieces: list[str], red: list[bool]) -> None:
    failures: list[str] = []
    coloured = [
        {"stream": f"\x1b[91m{piece}\x1b[0m" if is_red else piece}
        for piece, is_red in zip(pieces, [*red, *[True] * len(pieces)], strict=False)
    ]
    said = _pieces([*coloured, {"error": "no"}, {"stream": "never"}], failures)
    lines = [line for line in _whole_lines(said) if line]
    assert lines == [line for line in [*"".join(pieces).split("\n"), "no"] if line]
    assert failures == ["no"]


def test_a_failed_build_has_a_hint() -> None:
    full = _failed(recipe(), ["unpacking", "", "error: No space left on device"])
    assert "docker image rm" in full.hint
    assert "No space left" in str(full)
    gone = _failed(recipe(), ["manifest for base:1 not found: manifest unknown"])
    assert "IVHL_IMAGE_BASE" in gone.hint
    assert "docs/docker.md" in _failed(recipe(), ["error: hash mismatch"]).hint


def test_buildkit_is_used_only_if_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_BUILDKIT", "0")
    assert not has_buildkit()
    monkeypatch.setenv("DOCKER_BUILDKIT", "1")
    monkeypatch.setenv("PATH", "")
    assert not has_buildkit()


def test_images_are_listed_newest_first_with_their_labels() -> None:
    def one(day: int) -> SimpleNamespace:
        labels = {"org.ivhl.lock": f"lock{day}"}
        about = {"Id": f"sha256:{day}", "Created": f"2026-11-0{day}", "Size": day}
        return SimpleNamespace(attrs=about | {"Config": {"Labels": labels}})

    there = [one(1), one(3), one(2)]
    client = SimpleNamespace(images=SimpleNamespace(list=lambda **_: there))
    found = list_images(client, "c")
    assert [image.lock for image in found] == ["lock3", "lock2", "lock1"]


def test_container_and_native_records_are_not_compared() -> None:
    before, after = make_record(), in_image(replace(make_record(), commit="f" * 40), IMAGE)
    verdict = judge([before, after], {before.commit}, {after.commit}, ())
    assert [(one.kind, one.reason) for one in verdict.findings] == [
        ("incomparable", "container no before, yes now")
    ]
