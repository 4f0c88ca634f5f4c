"""Link asv's pages to ours as part of ``asv publish``. Importing this module registers the class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from asv.publishing import OutputPublisher

from ivhl.asv.site import join_asv_site

if TYPE_CHECKING:
    from collections.abc import Mapping


class Pages(OutputPublisher):  # type: ignore[misc]  # asv has no types
    """Links asv's page to ours, and makes it safe; ``ivhl publish`` writes ours."""

    name: ClassVar[str] = "ivhl"
    button_label: ClassVar[str] = "Overview"
    description: ClassVar[str] = "Where torch.compile works, and what it is worth"
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
        """Change asv's pages in ``conf.html_dir``, the folder ``asv`` of the site.

        Raises:
            ResultsError: If asv's page differs from that of the supported asv.
        """
        join_asv_site(Path(conf.html_dir))
