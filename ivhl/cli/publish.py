"""``ivhl publish``: build the static site."""

from __future__ import annotations

import typer

from ivhl.asv.publish import publish
from ivhl.cli import app, options
from ivhl.cli.declared import warn, warn_unread
from ivhl.errors import ResultsError
from ivhl.matrix.project import find_root
from ivhl.tracker.wording import counted


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
    published = publish(root, output or root / "site", asv=asv, site_url=site_url)
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
            hint="please report the warnings above, with the records that the missing pages show",
        )
