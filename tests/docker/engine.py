"""Start a real Docker engine on this machine, with a local base image; for tests, as root.

python tests/docker/engine.py start FOLDER    starts dockerd; prints what to export
python tests/docker/engine.py base 3.12       makes the image ivhl-base:3.12 in that engine
python tests/docker/engine.py stop FOLDER     ends that dockerd

It needs Debian or Ubuntu with the packages docker.io and iptables. The base image consists of files
of this machine: some packages, including g++, with their dependencies, the certificates and
one Python. Nothing is downloaded.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ivhl.errors import IvhlError
from ivhl.matrix.interpreter import find_interpreter

if TYPE_CHECKING:
    from collections.abc import Sequence

PATIENCE_S = 60
_MOUNTS = 100  # more mounts than an engine has; ends the loop if one cannot be unmounted
_LEFT_OUT = ("/usr/share/doc/", "/usr/share/man/", "/usr/share/locale/", "/usr/share/info/")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# A shell with the usual tools, g++ for Inductor, and the libraries of a CPython built on Debian.
PACKAGES = (
    "base-files", "base-passwd", "bash", "ca-certificates", "coreutils", "dash", "dpkg", "findutils",
    "g++", "grep", "libbz2-1.0", "libffi8", "liblzma5", "libncursesw6", "libreadline8",
    "libsqlite3-0", "libssl3", "login", "passwd", "sed", "tar", "zlib1g",
)  # fmt: skip


class EngineError(Exception):
    """No engine can be started here."""


def why_not() -> str:
    """Return why no engine can be started here; empty if it is possible."""
    if os.geteuid() != 0:
        return "starting an engine needs root"
    missing = [tool for tool in ("dockerd", "iptables", "dpkg-query") if not shutil.which(tool)]
    if missing:
        return f"not installed: {', '.join(missing)} (apt-get install docker.io iptables)"
    return ""


def socket_of(folder: Path) -> str:
    """Return the value of ``DOCKER_HOST`` for the engine of a folder."""
    return f"unix://{folder.resolve() / 'docker.sock'}"


def start(folder: Path) -> subprocess.Popen[bytes]:
    """Start dockerd with all its data below the folder; return its process.

    Raises:
        EngineError: If it does not answer in time; contains the end of its output.
    """
    if reason := why_not():
        raise EngineError(reason)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    command = ["dockerd", "--host", socket_of(folder), "--pidfile", str(folder / "pid")]
    for option in ("data-root", "exec-root"):
        command += [f"--{option}", str(folder / option)]
    with log.open("ab") as sink:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends and process.poll() is None:
        if answers(folder):
            return process
        time.sleep(0.2)
    stop(folder)
    process.wait()
    said = log.read_text(errors="replace").strip().splitlines()
    raise EngineError(f"dockerd does not start here: {' | '.join(said[-3:])[-600:]}")


def answers(folder: Path | None) -> bool:
    """Return whether the engine of the folder, or docker's default engine, answers."""
    if shutil.which("docker") is None:
        return False
    return docker(folder, "version", check=False).returncode == 0


def stop(folder: Path) -> None:
    """Stop the engine of the folder and its containers, and wait for it."""
    with suppress(OSError, ValueError):
        process = int((folder / "pid").read_text())
        os.kill(process, signal.SIGTERM)
        ends = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends and (folder / "pid").exists():
            time.sleep(0.1)


def remove(folder: Path) -> None:
    """Remove the data of a stopped engine, including mounts of a killed one."""
    for _ in range(_MOUNTS):
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
        mounts = [line.split()[4] for line in lines]
        below = [m for m in mounts if Path(m).is_relative_to(folder.resolve())]
        if not below:
            break
        subprocess.run(["umount", "--lazy", max(below, key=len)], check=False, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


def docker(
    folder: Path | None, *arguments: str, check: bool = True
) -> subprocess.CompletedProcess[bytes]:
    """Run the docker command against the engine of a folder, or that of ``DOCKER_HOST``.

    Raises:
        EngineError: If ``check`` and it fails.
    """
    environment = dict(os.environ)
    if folder is not None:
        environment["DOCKER_HOST"] = socket_of(folder)
    done = subprocess.run(
        ["docker", *arguments], env=environment, capture_output=True, check=False
    )
    if check and done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise EngineError(f"docker {arguments[0]}: {said[-600:]}")
    return done


def make_base(folder: Path | None, python: str, interpreter: Path) -> str:
    """Make and load the base image; return its name.

    Args:
        folder: Folder of the engine; ``None`` means the engine of ``DOCKER_HOST``.
        python: Python as in the matrix, e.g. ``3.12``.
        interpreter: A Python of this machine that is not the system's.

    Raises:
        EngineError: If a package is not installed here, the Python is the system's, or the engine
            fails.
    """
    asked = [str(interpreter), "-c", "import sys; print(sys.base_prefix)"]
    home = Path(subprocess.run(asked, capture_output=True, check=True, text=True).stdout.strip())
    if home in {Path("/"), Path("/usr")}:
        raise EngineError(
            f"{interpreter} is the system's own Python, which cannot be copied alone"
        )
    image = f"ivhl-base:{python}"
    search = f"{home}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    with tempfile.NamedTemporaryFile(prefix="ivhl-base-", suffix=".tar") as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            above = [Path("/", folder) for folder in home.relative_to("/").parents[:-1]]
            texts = {Path("/var/lib/dpkg/status"), Path("/etc/passwd"), Path("/etc/group")}
            for path in sorted(system_files() - texts - set(above)):
                archive.add(path, str(path.relative_to("/")), recursive=False)
            _add_text(archive, "var/lib/dpkg/status", _status(closure(PACKAGES)))
            accounts = Path("/usr/share/base-passwd")
            _add_text(archive, "etc/passwd", (accounts / "passwd.master").read_text())
            _add_text(archive, "etc/group", (accounts / "group.master").read_text())
            for path in reversed(above):
                _add_folder(archive, path)
            # At its original path, which is compiled into it.
            archive.add(home, str(home.relative_to("/")), filter=_plain_python)
        file.flush()
        changes = [f"ENV PATH={search}", f"ENV SSL_CERT_FILE={CERTIFICATES}"]
        options = [part for change in changes for part in ("--change", change)]
        docker(folder, "import", *options, file.name, image)
    return image


def system_files() -> set[Path]:
    """Return every file of the packages of the base image, by its real path."""
    listed = _dpkg("--listfiles", *closure(PACKAGES)).splitlines()
    found = {Path("/", name) for name in ("bin", "sbin", "lib", "lib64", "etc/ssl/certs")}
    found |= set(Path("/etc/alternatives").iterdir())
    found |= {Path("/usr/bin", name) for name in ("cc", "c++")}
    for name in listed:
        path = Path(name)
        if name.startswith("/") and not name.startswith(_LEFT_OUT) and os.path.lexists(name):
            found.add(path.parent.resolve() / path.name)
    if CERTIFICATES.is_file():
        found.add(CERTIFICATES)
    return {path for path in found if path != Path("/") and os.path.lexists(path)}


def closure(names: Sequence[str]) -> list[str]:
    """Return the packages and their installed dependencies.

    Raises:
        EngineError: If one of the packages is not installed.
    """
    shape = "${Package}\t${Status}\t${Provides}\t${Pre-Depends}, ${Depends}\n"
    wanted_by: dict[str, list[list[str]]] = {}
    provided: dict[str, str] = {}
    for line in _dpkg("--show", f"--showformat={shape}").splitlines():
        package, status, provides, depends = line.split("\t")
        if status != "install ok installed":
            continue
        wanted_by[package] = [[_name(x) for x in y.split("|")] for y in depends.split(",")]
        provided |= {_name(one): package for one in provides.split(",") if one.strip()}
    if missing := [name for name in names if name not in wanted_by]:
        raise EngineError(f"not installed here: {', '.join(missing)} (apt-get install)")
    found: set[str] = set()
    todo = list(names)
    while todo:
        package = todo.pop()
        if package in found:
            continue
        found.add(package)
        for alternatives in wanted_by[package]:
            there = [a if a in wanted_by else provided.get(a, "") for a in alternatives if a]
            todo += [one for one in there if one][:1]
    return sorted(found)


def _name(relation: str) -> str:
    return relation.split("(", maxsplit=1)[0].strip().split(":")[0]


def _status(packages: Sequence[str]) -> str:
    """Return dpkg's entries of the packages, so that dpkg works in the image."""
    return _dpkg("--status", *packages)


def _dpkg(*arguments: str) -> str:
    done = subprocess.run(
        ["dpkg-query", *arguments], capture_output=True, check=True, text=True, errors="replace"
    )
    return done.stdout


def _plain_python(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out installed packages of the Python, and its tests."""
    parts = Path(entry.name).parts
    left_out = {"test", "tests"} & set(parts) or entry.name.endswith(".a")
    inside = "site-packages" in parts and parts[-1] != "site-packages"
    return None if left_out or inside else entry


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    data = text.encode()
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def _add_folder(archive: tarfile.TarFile, path: Path) -> None:
    """Add a folder with access for all users, which it may lack on this machine."""
    entry = tarfile.TarInfo(str(path.relative_to("/")))
    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    archive.addfile(entry)


def find_python(python: str) -> Path:
    """Return an interpreter of this machine.

    Raises:
        EngineError: If there is none.
    """
    try:
        return find_interpreter(Path(__file__).parents[2], python).path
    except IvhlError as error:
        raise EngineError(str(error)) from error


def main(arguments: list[str]) -> int:
    """Run the command line."""
    match arguments:
        case ["start", folder]:
            start(Path(folder))
            sys.stdout.write(f"export DOCKER_HOST={socket_of(Path(folder))}\n")
        case ["base", python]:
            sys.stdout.write(f"{make_base(None, python, find_python(python))}\n")
        case ["stop", folder]:
            stop(Path(folder))
        case _:
            sys.stdout.write(__doc__ or "")
            return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except EngineError as error:
        sys.exit(f"error: {error}")
