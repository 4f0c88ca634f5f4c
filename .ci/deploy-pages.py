#!/usr/bin/env python3
"""Deploy an artifact of this run as the site of GitHub Pages, by its id.

    ARTIFACT=ID DIGEST=SHA256 GITHUB_TOKEN=... .ci/deploy-pages.py

What ran in this run can have uploaded an artifact called ``github-pages``: a name says nothing. The
id and the digest are outputs of the hosted job that made the site. The calls are those of
actions/deploy-pages: https://docs.github.com/rest/pages/pages#create-a-github-pages-deployment.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from typing import Any

_LONGEST_S = 600
_MOST_ERRORS = 10  # of questions how far the deployment is
# The final states of a deployment, as actions/deploy-pages has them.
_FAILED = frozenset(
    f"deployment_{how}" for how in ("failed", "content_failed", "cancelled", "lost", "perms_error")
)


class Refused(Exception):  # noqa: N818  (an answer of GitHub)
    """GitHub answered with an error, or not at all."""


def call(address: str, token: str, data: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the JSON that an address answers; data is posted there.

    Raises:
        Refused: If there is no such answer.
    """
    body = None if data is None else json.dumps(data).encode()
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"}
    request = urllib.request.Request(address, body, headers)  # noqa: S310  (GitHub's own variables)
    place = address.partition("?")[0]
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        said = error.read(2000).decode(errors="replace")
        raise Refused(f"{place}: HTTP {error.code}: {said}") from error
    except (OSError, ValueError) as error:
        raise Refused(f"{place}: {error}") from error


def check(about: dict[str, Any], run: str, digest: str) -> None:
    """Raise if what GitHub says of an artifact is not what the hosted job said.

    Raises:
        Refused: If it is of another run, or has another digest.
    """
    found = str(about["workflow_run"]["id"]), about["digest"]
    if found != (run, digest):
        raise Refused(
            f"artifact {about['id']} must be of run {run} with {digest} "
            f"(got run {found[0]} with {found[1]}): nothing is deployed"
        )


def wait(address: str, token: str) -> None:
    """Wait until a deployment has ended.

    Raises:
        Refused: If it failed, or did not end.
    """
    errors, end = 0, time.monotonic() + _LONGEST_S
    while time.monotonic() < end:
        try:
            status = call(address, token)["status"]
        except Refused:
            errors += 1
            if errors == _MOST_ERRORS:
                raise
            status = "no answer"
        sys.stdout.write(f"{status}\n")
        if status == "succeed":
            return
        if status in _FAILED:
            raise Refused(f"GitHub Pages: {status}")
        time.sleep(float(os.environ.get("INTERVAL_S", "5")))
    raise Refused(f"GitHub Pages did not end within {_LONGEST_S} s")


def main() -> None:
    """Deploy, and wait for the end of it."""
    known = os.environ
    here = f"{known['GITHUB_API_URL']}/repos/{known['GITHUB_REPOSITORY']}"
    token, artifact = known["GITHUB_TOKEN"], known["ARTIFACT"]
    if not artifact.isdecimal():
        raise Refused(f"ARTIFACT must be the id of an artifact (got {artifact!r})")
    about = call(f"{here}/actions/artifacts/{artifact}", token)
    check(about, known["GITHUB_RUN_ID"], f"sha256:{known['DIGEST']}")
    identity = call(known["ACTIONS_ID_TOKEN_REQUEST_URL"], known["ACTIONS_ID_TOKEN_REQUEST_TOKEN"])
    asked = {
        "artifact_id": int(artifact),
        "pages_build_version": known["GITHUB_SHA"],
        "oidc_token": identity["value"],
    }
    made = call(f"{here}/pages/deployments", token, asked)
    with open(known["GITHUB_OUTPUT"], "a", encoding="utf-8") as output:  # noqa: PTH123
        output.write(f"page_url={made['page_url']}\n")
    wait(f"{here}/pages/deployments/{made.get('id') or known['GITHUB_SHA']}", token)


if __name__ == "__main__":
    try:
        main()
    except Refused as error:
        sys.exit(str(error))
