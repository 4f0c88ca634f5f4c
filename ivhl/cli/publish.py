"""``ivhl publish``: build the static site."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

import typer

from ivhl.asv.publish import publish
from ivhl.cli import app, options
from ivhl.cli.declared import warn, warn_unread
from ivhl.errors import ResultsError, SpecError
from ivhl.matrix.project import find_root
from ivhl.records.text import is_printable
from ivhl.tracker.wording import counted


def address_of(text: str) -> str:
    """Return the address of a site with its last slash; empty if none is given.

    Raises:
        SpecError: If it is none that a browser opens.
    """
    if not text:
        return ""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_printable(text):
        raise SpecError(
            f"--site-url: must be an address of the web (got {text!r})",
            hint="e.g. --site-url https://owner.github.io/project/",
        )
    return urlunsplit((parts.scheme, parts.netloc, f"{parts.path.rstrip('/')}/", "", ""))


@app.command("publish")
def publish_command(
    output: options.Output = None,
    asv: options.Asv = None,
    site_url: options.SiteUrl = "",
) -> None:
    """Build the static site.

    Replaces the old site only after the new one is complete. Results that cannot be read are
    left out with a warning; the exit code is still 0. A page that cannot be made is left out, too,
    and named; the site has all others, and the exit code is 5.
    """
    root = find_root()
    published = publish(root, output or root / "site", asv=asv, site_url=address_of(site_url))
    warn_unread(dict.fromkeys(published.problems), None)
    if published.off_branch:
        commits = ", ".join(published.off_branch)
        warn([f"asv's graphs omit commits that are on no published branch: {commits}"])
    typer.echo(published.output / "index.html")
    if not published.renewed:
        made = f"asv's pages: of {published.asv}" if published.asv else "asv's pages: none"
        typer.echo(f"{made}; ivhl publish --asv makes them again")
    if published.left_out:
        raise ResultsError(
            f"{counted(len(published.left_out), 'file')} of the site could not be made; the site "
            "has all others",
            hint="the warnings name each with its reason: please report it with the records that "
            "it shows",
        )
