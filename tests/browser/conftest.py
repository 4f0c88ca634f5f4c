"""A browser, and a site built by ``ivhl publish`` from a stored history."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import sync_playwright

from ivhl.asv.publish import publish
from tests.builders.project import make_project

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

_CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Yield a headless browser; without one, skip the tests, or fail them if it is required."""
    path = next((found for found in map(shutil.which, _CHROMIUMS) if found), None)
    if path is None:
        reason = "no chromium on PATH (Debian: apt-get install chromium)"
        if os.environ.get("IVHL_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path,
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--no-first-run",
            ],
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a project with records."""
    root = tmp_path_factory.mktemp("project")
    make_project(root)
    return root


@pytest.fixture(scope="session")
def site(project: Path) -> Path:
    """Return a folder with a published site."""
    return publish(project, project / "site").output


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its own name)
        pass


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Yield the address of a server for the site: asv's pages load data, which file URLs forbid."""
    handler = functools.partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
