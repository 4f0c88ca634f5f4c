"""What makes asv use our cells, and read our records.

Named in ``asv.conf.json`` as ``".ivhl.asv"``: asv imports only names with a leading dot as
ordinary modules, and then calls their ``setup``. Importing this package imports nothing of asv,
which takes a third of a second: `ivhl publish` needs asv for asv's own pages only.
"""

from importlib.metadata import version

from ivhl.errors import SpecError

# What we wrap was read in this release; tests/contract/test_asv.py holds it.
SUPPORTED_ASV = "0.6.6"

if version("asv") != SUPPORTED_ASV:
    raise SpecError(
        f"asv {version('asv')} is installed, and ivhl wraps internals of asv {SUPPORTED_ASV}",
        hint=f"python -m pip install asv=={SUPPORTED_ASV}",
    )


def setup() -> None:
    """Register our classes, since asv looks for subclasses of its own, and wrap its methods."""
    from ivhl.asv import commands, environment  # noqa: F401, PLC0415  (see above)

    commands.install()
