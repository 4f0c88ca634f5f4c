"""A PostgreSQL of the study, on a socket and a port of its own, and a link to it that can be cut."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import psycopg

_DEBIAN: Final = "/usr/lib/postgresql/*/bin"
# The server refuses to run as root.
_USER: Final = "postgres"
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def program(name: str) -> str | None:
    """Return a program of PostgreSQL, on PATH or where Debian has the newest."""
    debian = sorted(Path("/").glob(f"{_DEBIAN[1:]}/{name}"))
    return shutil.which(name) or (str(debian[-1]) if debian else None)


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


class Database:
    """A server in a folder of its own; `start` and `kill` as often as needed."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="queues-"))
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            shutil.chown(self.folder, _USER, _USER)
        self._run("initdb", "-A", "trust", "-U", _USER, "--no-sync", str(self.folder / "data"))

    def url(self, port: int = 0) -> str:
        """Return where the database of the running fault is, perhaps behind a link."""
        return f"postgresql://{_USER}@127.0.0.1:{port or self.port}/fleet"

    def _as_user(self, name: str, *arguments: str) -> list[str]:
        command = [str(program(name)), *arguments]
        if os.geteuid() != 0:
            return command
        return ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups", *command]

    def _run(self, name: str, *arguments: str) -> None:
        command = self._as_user(name, *arguments)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self.folder)

    def start(self) -> None:
        """Start, and wait until it answers; after a kill it recovers first."""
        # What the system's cache holds survives a killed process, so nothing is lost without fsync.
        settings = {"fsync": "off", "port": self.port, "unix_socket_directories": self.folder}
        options = [part for item in settings.items() for part in ("-c", f"{item[0]}={item[1]}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._as_user("postgres", "-D", str(self.folder / "data"), *options),
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        for _ in range(600):
            with suppress(psycopg.OperationalError), self.connect("postgres"):
                return
            time.sleep(0.1)
        message = f"{self.folder}/log: PostgreSQL does not answer"
        raise RuntimeError(message)

    def connect(self, name: str = "fleet") -> psycopg.Connection:
        """Return a connection of the study itself, which no fault cuts."""
        place = {"host": "127.0.0.1", "port": self.port, "user": _USER, "dbname": name}
        return psycopg.connect(**place, autocommit=True, application_name="study")

    def renew(self) -> None:
        """Make the database of a fault anew."""
        with self.connect("postgres") as connection:
            connection.execute("DROP DATABASE IF EXISTS fleet WITH (FORCE)")
            connection.execute("CREATE DATABASE fleet")

    def cut(self) -> None:
        """End every connection but the study's."""
        with self.connect() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND application_name <> 'study'"
            )

    def _children(self) -> list[int]:
        assert self.process  # noqa: S101, after `start`
        file = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in file.read_text().split()]

    def cpu_s(self) -> float:
        """Return the CPU seconds of the server and of all its processes, also of ended ones."""
        assert self.process  # noqa: S101, after `start`
        ticks = 0
        for pid in (self.process.pid, *self._children()):
            with suppress(FileNotFoundError, ProcessLookupError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                # utime and stime, and of the server also those of its ended children
                ticks += sum(map(int, fields[11 : 15 if pid == self.process.pid else 13]))
        return ticks / _TICKS

    def kill(self) -> None:
        """Kill the server and each of its processes with SIGKILL."""
        assert self.process  # noqa: S101, after `start`
        children = self._children()
        self.process.kill()
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """End the server at once and remove its folder."""
        if self.process:
            self.kill()
        shutil.rmtree(self.folder)


class Link:
    """A TCP proxy that drops all connections, or hangs: it then accepts and passes nothing on."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._passing = threading.Event()
        self._passing.set()
        self._open: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                self._open += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._passing.wait()
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def drop(self) -> None:
        """Close all connections."""
        dropped, self._open = self._open, []
        for end in dropped:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def hang(self, seconds: float) -> None:
        """Pass nothing on for some seconds, then drop what hung."""
        self._passing.clear()
        time.sleep(seconds)
        self.drop()
        self._passing.set()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.drop()
