"""A package registry of planted wheels on this machine, for the real uv."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import zipfile
from base64 import urlsafe_b64encode
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_JSON: Final = "application/vnd.pypi.simple.v1+json"


def make_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    *,
    files: Mapping[str, str] | None = None,
    requires: Sequence[str] = (),
    python: str = "",
    tag: str = "py3-none-any",
) -> Path:
    """Write a wheel; by default it holds a module of its name."""
    module = name.replace("-", "_")
    about = f"{module}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Requires-Python: {python}"] if python else []
    metadata += [f"Requires-Dist: {one}" for one in requires]
    inside = dict(files if files is not None else {f"{module}.py": f"V = {version!r}\n"})
    inside[f"{about}/METADATA"] = "\n".join(metadata) + "\n"
    inside[f"{about}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n"
    rows = [
        f"{path},sha256={urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},"
        for path, text in inside.items()
    ]
    inside[f"{about}/RECORD"] = "\n".join([*rows, f"{about}/RECORD,,"]) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{module}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inner, text in inside.items():
            archive.writestr(inner, text)
    return path


def sha256(path: Path) -> str:
    """Return the hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def served(
    folder: Path, *, dated: bool = False
) -> Iterator[tuple[str, list[str], threading.Event]]:
    """Serve the wheels of a folder; ``dated`` with their times as those of their upload.

    Yields the address of the index, the files that were asked for, and an event: wheels whose name
    begins with ``slow`` wait for it.
    """
    asked: list[str] = []
    go = threading.Event()

    class Server(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:  # noqa: ANN401
            super().__init__(*arguments, directory=str(folder))

        def do_GET(self) -> None:
            parts = self.path.strip("/").split("/")
            last = parts[-1]
            if parts[0] == "simple":
                wheels = [one for one in folder.glob("*.whl") if _name(one) == last]
                if dated and wheels:
                    self.answer(200, _listed(last, wheels), _JSON)
                    return
                page = "".join(
                    f'<a href="/{one.name}#sha256={sha256(one)}" data-core-metadata="true">'
                    f"{one.name}</a>\n"
                    for one in wheels
                )
                self.answer(200 if wheels else 404, page.encode())
            elif last.endswith(".metadata"):
                with zipfile.ZipFile(folder / last.removesuffix(".metadata")) as archive:
                    (name,) = (x for x in archive.namelist() if x.endswith("METADATA"))
                    self.answer(200, archive.read(name))
            else:
                asked.append(last)
                if last.startswith("slow"):
                    go.wait(60)
                with suppress(BrokenPipeError):
                    super().do_GET()

        def answer(self, status: int, body: bytes, kind: str = "text/html") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:  # noqa: ANN401
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple", asked, go
        finally:
            go.set()
            server.shutdown()


def _listed(name: str, wheels: Sequence[Path]) -> bytes:
    """Return the page of a package; only the form in JSON has times, which uv compares."""
    files = [
        {
            "filename": wheel.name,
            "url": f"/{wheel.name}",
            "hashes": {"sha256": sha256(wheel)},
            "upload-time": datetime.fromtimestamp(wheel.stat().st_mtime, UTC).isoformat(),
            "core-metadata": True,
        }
        for wheel in wheels
    ]
    page = {"meta": {"api-version": "1.1"}, "name": name, "files": files}
    return json.dumps(page).encode()


def _name(wheel: Path) -> str:
    return re.sub(r"[-_.]+", "-", wheel.name.split("-")[0]).lower()
