"""Write our pages as part of ``asv publish``. Importing this module registers the class with asv."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from asv.console import log
from asv.publishing import OutputPublisher

from ivhl.asv.site import join_asv_site
from ivhl.pages.build import write_pages
from ivhl.tracker.project import load_state
from ivhl.tracker.views import without_broken

if TYPE_CHECKING:
    from collections.abc import Mapping


class Pages(OutputPublisher):  # type: ignore[misc]  # asv has no types
    """Writes *Compatibility* and *Speedup* into the site, and links asv's page to them."""

    name: ClassVar[str] = "ivhl"
    button_label: ClassVar[str] = "Compatibility"
    description: ClassVar[str] = "Where torch.compile works, and its speedup"
    order: ClassVar[int] = 10  # after asv's own pages

    @classmethod
    def publish(
        cls,
        conf: Any,  # noqa: ANN401  (asv's classes have no types)
        repo: object,  # noqa: ARG003
        benchmarks: object,  # noqa: ARG003
        graphs: object,  # noqa: ARG003
        revisions: Mapping[str, int],  # noqa: ARG003
    ) -> None:
        """Write the pages into ``conf.html_dir``.

        The project is at ``ivhl_root`` of the configuration, which ``ivhl publish`` writes. Without
        it, it is the current folder, because asv changes into the folder of its configuration.

        Raises:
            ResultsError: If asv's page differs from that of the supported asv.
        """
        root = Path(getattr(conf, "ivhl_root", Path.cwd()))
        html_dir = Path(conf.html_dir)
        state = load_state(root, Path(conf.results_dir))
        problems = (*getattr(conf, "ivhl_problems", ()), *state.problems)
        state = replace(state, problems=problems)
        try:
            write_pages(state, html_dir)
        except Exception as error:
            without = without_broken(state)
            if without.records == state.records:  # no single record is the reason
                raise
            log.warning(f"{type(error).__name__}: {error}: leaving out what cannot be shown")
            write_pages(without, html_dir)
        join_asv_site(html_dir)
