"""Pages of the observatory: the worst verdict comes first, and no record breaks or forges a page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import Mock
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ivhl.asv.publish import publish
from ivhl.observatory.record import Break, Observed, Second
from ivhl.observatory.views import (
    VERDICTS as WORDS,
)
from ivhl.observatory.views import (
    Libraries,
    check_command,
    key_of,
    library_view,
    load_libraries,
    release_views,
    rows_for_programs,
    signature_views,
    table_view,
    verdict_of,
)
from ivhl.pages.build import write_pages
from ivhl.pages.render import render
from ivhl.records.text import visible
from studies.schemas import SCHEMAS
from tests.builders.observatory import (
    BREAK,
    CELLS,
    LOCK,
    VERDICTS,
    every_verdict,
    failed,
    make_observatory,
    make_observed,
    make_row,
    names_of,
)
from tests.builders.project import make_project
from tests.builders.records import UNSEEN, make_record
from tests.builders.site import site_files
from tests.unit.test_pages_render import ELEMENTS, HOSTILE, Structure, pages_of, source_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ivhl.tracker.views.source import Source

ORDER: Final = tuple(WORDS)
BUDGET: Final = 300_000  # bytes of the table with all that it loads
DAY_BEFORE: Final = "2026-11-27T12:00:00+00:00"
CANDIDATE: Final = "2.16.0rc1"


def libraries_of(
    records: Iterable[Observed], names: Iterable[str] = ("timm", "keras")
) -> Libraries:
    rows = [make_row(name, 200 + number) for number, name in enumerate(names)]
    return Libraries(rows, records, {LOCK: b"timm==1.0.31\n"})


def source() -> Source:
    found = source_of(make_record(torch="2.15.0"))
    found.state = replace(found.state, has_libraries=True)
    return found


def site_of(libraries: Libraries) -> dict[str, bytes]:
    return site_files(source(), libraries)


def many(python: str = "3.12", torch: str = "2.15.0", **kinds: str) -> list[Observed]:
    """Return records of a cell by case and ask, such as ``small_step="wrong"``."""
    return [
        make_observed(python=python, torch=torch, case=case, ask=ask, **VERDICTS[kind])
        for name, kind in kinds.items()
        for case, ask in [name.split("_")]
    ]


@given(st.lists(st.sampled_from([*VERDICTS]), min_size=1, max_size=6))
def test_a_cell_has_its_worst_verdict_in_whatever_order_its_cases_are(kinds: list[str]) -> None:
    records = [make_observed(**VERDICTS[kind]) for kind in kinds]
    assert [key_of(record) for record in records] == kinds
    assert verdict_of(records).key == min(kinds, key=ORDER.index)
    assert verdict_of(records[::-1]) == verdict_of(records)


def test_wrong_comes_before_failures_and_failures_before_graph_breaks() -> None:
    assert ORDER.index("wrong") < ORDER.index("failed") < ORDER.index("breaks")
    assert ORDER.index("breaks") < ORDER.index("slow") < ORDER.index("works")
    assert {*VERDICTS} | {"unavailable", "not_run"} == {*WORDS}


@pytest.mark.parametrize(
    ("kinds", "text"),
    [
        ({}, "·"),
        ({"small_forward": "works"}, "1.50x"),
        ({"small_forward": "slow", "large_forward": "works"}, "slower 0.80x"),
        ({"small_forward": "breaks", "large_forward": "works"}, "3 breaks"),
        ({"small_forward": "works", "small_step": "wrong"}, "wrong step"),
        ({"small_forward": "wrong", "small_step": "wrong"}, "wrong"),
        (
            {"small_forward": "works", "small_step": "failed", "large_step": "works"},
            "failed 1 of 3",
        ),
        ({"small_forward": "pinned"}, "pinned out"),
        ({"small_forward": "undecided"}, "undecided"),
    ],
)
def test_a_cell_says_how_many_of_its_cases_or_which_kind(kinds: dict[str, str], text: str) -> None:
    assert verdict_of(many(**kinds)).text == text


def test_a_library_without_a_time_works() -> None:
    untimed = make_observed(eager_s=None, compiled_s=None)
    assert verdict_of([untimed]) == ("works", "works")
    assert verdict_of([untimed, make_observed()]).text == "1.50x"


def test_a_line_says_since_which_release_its_newest_verdict_holds() -> None:
    kinds = {"2.8.0": "works", "2.9.1": "failed", "2.10.0": "wrong", "2.11.0": "wrong"}
    records = [r for torch, kind in kinds.items() for r in many(torch=torch, small_step=kind)]
    # A release that this library was not tried with says nothing.
    records.append(make_observed("keras", torch="2.12.1"))
    records += [make_observed("einops", torch=torch) for torch in ("2.8.0", "2.12.1")]
    names = ("timm", "keras", "einops")
    table = table_view(libraries_of(records, names), source(), "3.12")
    timm, keras, einops = table.lines
    assert [torch for torch, _ in table.releases] == [
        "2.12.1",
        "2.11.0",
        "2.10.0",
        "2.9.1",
        "2.8.0",
    ]
    assert timm.since == "wrong since 2.10.0"
    assert [cell.verdict.key for cell in timm.cells] == [
        "not_run", "wrong", "wrong", "failed", "works",
    ]  # fmt: skip
    assert keras.since == ""  # nothing says since when
    assert einops.since == "works in all 2 tried"
    # Nobody knows what the releases between do.
    kinds = {"2.8.0": "failed", "2.9.1": "works", "2.12.1": "works"}
    records += [make_observed("piq", torch=t, **VERDICTS[kind]) for t, kind in kinds.items()]
    _, piq = table_view(libraries_of(records, ("timm", "piq")), source(), "3.12").lines
    assert piq.since == "works in all 2 tried since 2.9.1"
    records.append(make_observed("roma", torch="2.12.1"))
    records.append(make_observed("roma", torch="2.8.0", **VERDICTS["failed"]))
    _, roma = table_view(libraries_of(records, ("timm", "roma")), source(), "3.12").lines
    assert roma.since == "works in 2.12.1, not in 2.8.0"
    assert table.totals == (
        "2 of 2 work, 1 not run",
        "0 of 1 work, 1 wrong, 2 not run",
        "0 of 1 work, 1 wrong, 2 not run",
        "0 of 1 work, 1 failed, 2 not run",
        "2 of 2 work, 1 not run",
    )


def test_slower_is_no_other_verdict_and_undecided_is_none() -> None:
    kinds = {"2.8.0": "failed", "2.9.1": "works", "2.10.0": "undecided", "2.11.0": "slow"}
    kinds |= {"2.12.1": "works"}
    records = [make_observed(torch=t, **VERDICTS[kind]) for t, kind in kinds.items()]
    (timm,) = table_view(libraries_of(records, ("timm",)), source(), "3.12").lines
    assert timm.since == "works in all 3 tried since 2.9.1"
    early = [one for one in records if one.torch not in ("2.8.0", "2.9.1")]
    (timm,) = table_view(libraries_of(early, ("timm",)), source(), "3.12").lines
    assert timm.since == "works in all 2 tried"


def test_a_cell_says_how_many_of_its_cases_ran() -> None:
    assert verdict_of(many(small_forward="works"), asked=2).text == "1.50x (1 of 2)"
    assert verdict_of(many(small_forward="failed"), asked=2).text == "failed"
    assert verdict_of(many(small_forward="works", small_step="works"), asked=2).text == "1.50x"


def test_a_library_below_the_list_of_downloads_has_no_rank() -> None:
    libraries = Libraries([make_row("timm", 1227), make_row("auraloss")], [make_observed()])
    assert [line.note for line in table_view(libraries, source(), "3.12").lines] == ["1,227", ""]
    views = [library_view(libraries, source(), row) for row in libraries.rows]
    assert [(view.rank, view.newest) for view in views] == [
        ("1,227", "works with PyTorch 2.15.0 on Python 3.12"),
        ("", "not run"),
    ]
    assert "of the most downloaded" not in site_of(libraries)["library/auraloss.html"].decode()


def test_the_projects_own_suite_is_a_line_of_the_table() -> None:
    libraries = libraries_of([make_observed(), make_observed(python="3.13")])
    assert table_view(libraries, source(), "3.13").own is None  # not run there
    found = source_of(make_record(torch="2.15.0"), make_record(torch="2.15.0", size="large"))
    found.state = replace(found.state, has_libraries=True)
    own = table_view(libraries, found, "3.12").own
    assert own is not None
    assert (own.name, own.href) == ("demo: its own suite", "suite.html")
    assert [cell.verdict.text for cell in own.cells] == ["2 of 2"]


@pytest.mark.full
def test_the_table_keeps_its_budget_with_60_libraries_in_30_cells() -> None:
    """Also if all 30 are of one Python, and with every verdict."""
    names = names_of(60)
    one = [("3.12", f"2.{minor}.0") for minor in range(30)]
    for cells in (CELLS, one):
        site = site_of(libraries_of(every_verdict(names, cells), names))
        keys = set(re.findall(r'<td class="s-(\w+)"', site["index.html"].decode()))
        assert keys >= {*VERDICTS}
        for path in ("index.html", "3.12.html"):
            page = Structure(site[path].decode())
            loaded = {value.partition("?")[0] for value in page.values("src")} | {"site.css"}
            assert len(site[path]) + sum(len(site[name]) for name in loaded) <= BUDGET
            assert len(page.tags) <= ELEMENTS
        for path, page in pages_of(site).items():
            assert len(site[path]) <= 2 * BUDGET, path
            assert len(page.tags) <= ELEMENTS, path


DOCUMENTATION = "https://ivhl.github.io/ivhl/docs/"


def test_every_link_has_a_target_and_every_id_is_there_once() -> None:
    names = names_of(12)
    early = (("3.12", "2.13.0rc2"), ("3.14", "2.16.0rc1"), ("3.16", "2.16.0.dev20261101"))
    records = [
        one.model_copy(update={"at": DAY_BEFORE}) if one.torch == "2.13.0rc2" else one
        for one in every_verdict(names, (*CELLS[::3], ("3.12", "2.13.0"), *early))
    ]
    site = site_of(libraries_of(records, names))
    pages = pages_of(site)
    assert {f"{torch}.html" for _, torch in early} <= {*pages}
    assert {"index.html", "suite.html", "3.12.html", "2.15.0.html", "library/timm.html"} <= {
        *pages
    }
    for path, page in pages.items():
        ids = page.values("id")
        assert len(ids) == len(set(ids)), path
        for href in page.values("href"):
            target, _, anchor = href.partition("#")
            target = target.partition("?")[0]
            elsewhere = ("https://github.com/pytorch/", "https://meta-pytorch.", DOCUMENTATION)
            if target.startswith(("data:", *elsewhere)):
                continue
            steps = path.split("/")[:-1]
            for step in target.split("/"):
                steps = steps[:-1] if step == ".." else [*steps, step]
            name = "/".join(filter(None, steps)) if target else path
            assert name in site, (path, href)
            if anchor and "=" not in anchor:
                assert anchor in pages[name].values("id"), (path, href)


def test_every_page_has_a_title_and_a_description_of_its_own() -> None:
    names = names_of(6)
    site = site_of(libraries_of(every_verdict(names, CELLS[::5]), names))
    found: dict[str, str] = {}
    for path in site:
        if path.endswith(".html"):
            page = site[path].decode()
            (said,) = re.findall('property="og:description" content="([^"]+)"', page)
            (title,) = re.findall('property="og:title" content="([^"]+)"', page)
            assert title in page.partition("</title>")[0]
            if path.startswith("library/"):
                found[path] = said
    assert "timm: works with PyTorch" in found["library/timm.html"]
    assert len({*found.values()}) == len(found)


def planted(text: str) -> list[Observed]:
    """Return records with a text in each field that a record can choose."""
    fields = (
        "target",
        "inputs",
        "version",
        "lock",
        "overlay",
        "row",
        "instrument",
        "machine",
        "why",
    )
    said = dict.fromkeys(fields, text)
    names = {"exception": text, "where": text, "frame": text}
    return [
        make_observed(**failed(text, **names) | said),
        make_observed(case="large", **failed(text, "import", phase="import", **names) | said),
        make_observed(ask="step", **VERDICTS["wrong"] | said),
        make_observed(
            case="large", ask="step", graph_breaks=(Break(text=text, count=2),),
            second=Second(inputs=text, recompiles=2, off=None), **said,
        ),
        make_observed("keras", **VERDICTS["pinned"] | said),
        make_observed("keras", torch="2.14.1", **VERDICTS["works"] | said),
        make_observed("keras", torch="2.16.0rc1", **failed(text, **names) | said),
    ]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_foreign_text_is_escaped(text: str) -> None:
    sites = {}
    for name, said in (("harmless", "harmless"), ("hostile", text)):
        sites[name] = site_of(libraries_of(planted(said)))
    pages = {name: pages_of(site) for name, site in sites.items()}
    kinds = {path for path in pages["hostile"] if not path.startswith("signature/")}
    assert kinds == {path for path in pages["harmless"] if not path.startswith("signature/")}
    for path in kinds:
        assert pages["hostile"][path].tags == pages["harmless"][path].tags, path
    for page in pages["hostile"].values():
        assert not [
            name for name, _ in page.attributes if name.startswith("on") or name == "style"
        ]
    assert "<script>alert" not in "".join(
        sites["hostile"][path].decode() for path in pages["hostile"]
    )


def test_invisible_characters_are_written_out() -> None:
    site = site_of(libraries_of(planted(f"safe{UNSEEN}")))
    for path, data in site.items():
        if path.endswith(".html"):
            assert visible(data.decode()) == data.decode(), path
    assert "safe\\u200b" in site["library/timm.html"].decode()


def test_no_text_of_a_record_is_a_link_or_a_command() -> None:
    text = "https://example.org/x; rm -rf ~"
    site = site_of(libraries_of(planted(text)))
    for path, page in pages_of(site).items():
        assert not [href for href in page.values("href") if "example.org" in href], path
    library = site["library/timm.html"].decode()
    for command in re.findall('<div class="command"><code>([^<]*)</code>', library):
        assert "example.org" not in command.replace("timm==https://example.org/x; rm -rf ~", "")
    (command,) = re.findall("<code>(ivhl observe[^<]*)</code>", library)
    assert command == "ivhl observe timm --torch 2.15.0 --python 3.12 --force"
    assert check_command(make_observed("a b; c")).startswith("ivhl observe 'a b; c' --torch")


def test_the_command_that_tries_a_case_quotes_the_version_of_a_record() -> None:
    libraries = libraries_of([make_observed(version="1; rm -rf ~")])
    view = library_view(libraries, source(), libraries.rows[0])
    for _, command in view.tries:
        assert "'--with=timm==1; rm -rf ~'" in command
    assert view.tries[1][1].endswith("--step --torch=2.15.0 --python=3.12")


@pytest.mark.parametrize(
    ("before", "after", "title"),
    [
        ("works", "wrong", "Broke"),
        ("breaks", "failed", "Broke"),
        ("unsupported", "slow", "Fixed"),
        ("works", "breaks", "More graph breaks"),
        ("breaks", "works", "Fewer graph breaks"),
        ("works", "pinned", "No longer installable"),
        ("nowheel", "wrong", "Newly installable"),
        ("works", "slow", None),
        ("wrong", "failed", None),
        ("works", "undecided", None),
        ("pinned", "nowheel", None),
    ],
)
def test_a_release_says_what_it_broke_and_fixed_beside_the_one_before(
    before: str, after: str, title: str | None
) -> None:
    records = [*many(torch="2.14.1", small_step=before), *many(torch="2.15.0", small_step=after)]
    records += many(torch="2.13.0", small_step="works")
    newest, older, oldest = release_views(libraries_of(records))
    assert [*newest.changes] == ([title] if title else [])
    assert (newest.before, newest.after, older.after) == ("2.14.1", "", "2.15.0")
    assert (oldest.before, oldest.changes) == ("", {})
    for moved in newest.changes.values():
        ((library, _, words, where, *_),) = moved
        assert (library, where) == ("timm", "small step on 3.12")
        assert " → " in words


def test_a_case_is_set_beside_the_newest_release_that_says_something_of_it() -> None:
    records = [
        *many(torch="2.12.1", small_step="failed", large_step="works"),
        *many(torch="2.13.0", small_step="undecided"),
        *many(torch="2.14.1", large_step="works"),
        *many(torch="2.15.0", small_step="works", large_step="works"),
    ]
    newest, *_, oldest = release_views(libraries_of(records))
    ((moved,),) = newest.changes.values()
    assert moved.text == "failed in 2.12.1 → works"
    assert (newest.before, newest.beside, oldest.beside) == ("2.14.1", 2, 0)


def at(time: str, records: Iterable[Observed]) -> list[Observed]:
    return [one.model_copy(update={"at": time}) for one in records]


def test_the_page_of_a_candidate_is_a_dated_forecast() -> None:
    records = [
        *many(torch="2.14.1", small_step="failed", large_step="works"),
        *many(small_step="works", large_step="failed"),
        *many("3.13", "2.14.1", small_step="works"),
        *at("2026-11-29T12:00:00+00:00", many(torch=CANDIDATE, small_step="failed")),
        *at(DAY_BEFORE, many(torch=CANDIDATE, large_step="works")),
        # Beside another candidate it is not set.
        *many(torch="2.16.0b1", small_step="works", large_step="works"),
        make_observed("keras"),
    ]
    libraries = libraries_of(records)
    view, other, newest, _ = release_views(libraries)
    assert (view.torch, view.forecast, view.before) == (CANDIDATE, "2026-11-29", "2.15.0")
    assert (view.tried, view.untried, view.beside, view.scores) == (1, ("keras",), 2, ())
    ((broke,), (fixed,)) = view.changes["Broke"], view.changes["Fixed"]
    assert (broke.library, broke.text, broke.rank) == ("timm", "works → failed", "200")
    assert (broke.where, fixed.where) == ("small step on 3.12", "large step on 3.12")
    title, page = broke.cause
    assert "make_fallback(aten._unique2.default)" in title
    assert fixed.cause == broke.cause
    assert (other.torch, other.forecast) == ("2.16.0b1", "2026-11-28")
    assert (newest.torch, newest.after, newest.forecast) == ("2.15.0", "", "")
    site = site_of(libraries)
    said = site[f"{CANDIDATE}.html"].decode()
    assert f"<title>PyTorch {CANDIDATE}: forecast of 2026-11-29" in said
    assert "1 of 2 libraries were tried, not keras." in said
    assert f'<a href="{page}">' in said
    assert page in site


def test_no_candidate_is_taken_for_a_release() -> None:
    later = [(python, CANDIDATE) for python in ("3.13", "3.14", "3.15")]
    stable = [
        *many(torch="2.14.1", small_step="failed"), *many(small_step="works"),
        make_observed("keras"), *many("3.13", small_step="works"),
    ]  # fmt: skip
    records = [*stable, *many(torch=CANDIDATE, small_step="failed")]
    records += at("2026-11-30T12:00:00+00:00", many(torch=CANDIDATE, large_step="breaks"))
    records += [one for cell in later for one in many(*cell, small_step="wrong")]
    libraries, before = libraries_of(records), libraries_of(stable)
    assert libraries.main == before.main == "3.12"
    table, earlier = (table_view(one, source(), "3.12") for one in (libraries, before))
    assert table._replace(forecasts=()) == earlier
    assert table.forecasts == ((f"{CANDIDATE}.html", CANDIDATE),)
    (view, was) = (library_view(one, source(), one.rows[0]) for one in (libraries, before))
    assert (view.newest, view.spans, view.grids) == (was.newest, was.spans, was.grids)
    assert (view.tries, len(view.cells)) == (was.tries, len(was.cells) + 4)
    assert f"on 3.12: 2.14.1, {CANDIDATE}" in "".join(where for _, where in view.causes)
    site, old = site_of(libraries), site_of(before)
    for path in ("feed.xml", "observatory.json", "observatory.csv", "badge/timm.json"):
        assert site[path] == old[path], path
    assert {path for path in site if path.startswith("badge/")} == {
        path for path in old if path.startswith("badge/")
    }
    assert f'Forecast: <a href="{CANDIDATE}.html">' in site["index.html"].decode()
    assert "3.15.html" not in site


SCORED: Final = {  # case: forecast, and verdict with the release; both works before
    "hit_step": ("failed", "wrong"),
    "alarm_step": ("wrong", "works"),
    "miss_step": ("works", "failed"),
    "otherwise_step": ("breaks", "failed"),
    "same_step": ("works", "works"),
    "dropped_step": ("failed", "undecided"),
    "early_forward": ("failed", None),
    "late_forward": (None, "failed"),
}


def scored() -> tuple[Libraries, list[Observed]]:
    """Return libraries with a forecast and its release, and what is known a day later."""
    cases = dict.fromkeys(SCORED, "works")
    said, became = (
        {name: kind for name, kinds in SCORED.items() if (kind := kinds[which])}
        for which in (0, 1)
    )
    records = [
        *at("2026-11-20T12:00:00+00:00", many(**cases)),
        *at(DAY_BEFORE, many(torch=CANDIDATE, **said)),
        *many(torch="2.16.0", **became),
    ]
    later = [
        *many(torch=CANDIDATE, **dict.fromkeys(SCORED, "failed")),
        *many(torch="2.16.0rc2", **dict.fromkeys(SCORED, "works")),
        *many(**dict.fromkeys(SCORED, "wrong")),
    ]
    names = {name.partition("_")[0] for name in SCORED}
    rows = [make_row("timm", 200, sorted(names)), make_row("keras")]
    return Libraries(rows, records), at("2026-11-29T12:00:00+00:00", later)


def test_a_forecast_is_scored_by_the_records_of_its_release() -> None:
    libraries, _ = scored()
    release, forecast, older = release_views(libraries)
    (score,) = release.scores
    assert (forecast.scores, older.scores) == ((score,), ())
    assert (score.torch, score.day, forecast.after) == (CANDIDATE, "2026-11-27", "2.16.0")
    assert (score.cases, score.single) == (5, 3)
    assert score.counts == {"Came true": 1, "False alarms": 2, "Missed": 2}
    found = {
        title: sorted((one.where, one.text) for one in moved)
        for title, moved in score.changes.items()
    }
    assert found == {
        "Came true": [("hit step on 3.12", "works → wrong (forecast: failed)")],
        "False alarms": [
            ("alarm step on 3.12", "works → works (forecast: wrong)"),
            ("otherwise step on 3.12", "works → failed (forecast: 3 breaks)"),
        ],
        "Missed": [
            ("miss step on 3.12", "works → failed (forecast: works)"),
            ("otherwise step on 3.12", "works → failed (forecast: 3 breaks)"),
        ],
    }
    # A false alarm has the signature that was forecast.
    causes = [one.cause[0] for one in score.changes["False alarms"]]
    assert [cause.partition(": gradient")[0] for cause in sorted(causes)] == [
        "Unsupported Tensor.item() call with capture_scalar_outputs=False", "timm: alarm",
    ]  # fmt: skip
    site = site_of(libraries)
    for path in (f"{CANDIDATE}.html", "2.16.0.html"):
        assert "came true <b>1</b>, false alarms <b>2</b>, missed <b>2</b>." in site[path].decode()
    assert f'href="{CANDIDATE}.html"' in site["2.16.0.html"].decode()
    assert "Forecast:" not in site["index.html"].decode()


def test_no_forecast_moves_after_its_release() -> None:
    libraries, later = scored()
    every = [r for some in libraries.history.values() for group in some.values() for r in group]
    after = release_views(Libraries(libraries.rows, [*every, *later]))
    _, before, _ = release_views(libraries)
    (now,) = [view for view in after if view.forecast]  # of rc2 nothing was known in time
    assert (now.torch, now.forecast, now.tallies) == (CANDIDATE, before.forecast, before.tallies)
    shown, was = (
        [[(*one[:5], one.cause[0]) for one in moved] for moved in view.changes.values()]
        for view in (now, before)
    )
    assert shown == was
    (more,) = now.changes["More graph breaks"]
    assert more.cause[1] == ""  # today no record has this signature
    assert now.scores[0].cases == 5


@pytest.mark.parametrize(
    ("prerelease", "release", "belongs"),
    [
        ("2.16.0rc1", "2.16.0", True),
        ("2.16.0.dev20261101", "2.16.0", True),
        ("2.16.0b2", "2.16.0.post1", True),
        ("2.16.0rc1", "2.16.1", False),
        ("2.16.1rc1", "2.16.0", False),
    ],
)
def test_a_forecast_belongs_to_the_release_with_its_base_version(
    prerelease: str,
    release: str,
    belongs: bool,  # noqa: FBT001
) -> None:
    early = at(DAY_BEFORE, many(torch=prerelease, small_step="failed"))
    libraries = libraries_of([*many(small_step="works"), *early, *many(torch=release)])
    assert libraries.prereleases == {prerelease: ""}  # not tried yet
    records = [*many(small_step="works"), *early, *many(torch=release, small_step="works")]
    libraries = libraries_of(records)
    assert libraries.prereleases == {prerelease: release if belongs else ""}
    (view,) = [view for view in release_views(libraries) if view.torch == prerelease]
    assert len(view.scores) == belongs


def test_a_forecast_is_scored_by_the_release_before_its_post_release() -> None:
    releases = ("2.15.0", CANDIDATE, "2.16.0", "2.16.0.post1")
    libraries = libraries_of([*(make_observed(torch=torch) for torch in releases)])
    assert libraries.prereleases == {CANDIDATE: "2.16.0"}


def test_what_most_libraries_share_comes_first() -> None:
    names = ("keras", "timm", "einops")
    kinds = dict(zip(names, ("wrong", "failed", "failed"), strict=True))
    records = [make_observed(name, torch="2.14.1") for name in names]
    records += [make_observed(name, **VERDICTS[kind]) for name, kind in kinds.items()]
    broke = release_views(libraries_of(records, names))[0].changes["Broke"]
    assert [one.library for one in broke] == ["timm", "einops", "keras"]
    assert broke[0].cause == broke[1].cause != broke[2].cause


def test_a_library_names_the_releases_between_that_were_not_tried() -> None:
    records = [*many(torch="2.13.0", small_step="works"), *many(small_step="works")]
    libraries = libraries_of([*records, make_observed(library="keras", torch="2.14.1")])
    view = library_view(libraries, source(), libraries.rows[0])
    assert view.spans == (("3.12", "works 2.13.0 to 2.15.0 (2.14.1 was not run)"),)


def test_no_pair_of_verdicts_is_both_broken_and_fixed() -> None:
    """What a release breaks, the way back fixes, and nothing else."""
    opposite = {
        "Broke": "Fixed", "More graph breaks": "Fewer graph breaks",
        "No longer installable": "Newly installable",
    }  # fmt: skip
    opposite |= {value: key for key, value in opposite.items()}
    for one, other in product(VERDICTS, VERDICTS):
        titles = []
        for old, new in ((one, other), (other, one)):
            records = [*many(torch="2.14.1", small_step=old), *many(small_step=new)]
            titles.append([*release_views(libraries_of(records))[0].changes])
        assert titles[1] == [opposite[title] for title in titles[0]], (one, other)


def test_a_correction_has_its_date_and_a_new_lock_is_none() -> None:
    days = [f"2026-11-{day}T12:00:00+00:00" for day in (26, 27, 28)]
    records = [
        make_observed(at=days[0], **VERDICTS["wrong"]),
        make_observed(at=days[1]),
        make_observed(at=days[2], overlay="f" * 16, **VERDICTS["failed"]),
    ]
    libraries = libraries_of(records[::-1])
    view = library_view(libraries, source(), libraries.rows[0])
    assert view.corrections == (
        (
            "2026-11-27: small forward on Python 3.12 with PyTorch 2.15.0 is works; wrong was said "
            "on 2026-11-26"
        ),
    )
    assert view.newest == "failed with PyTorch 2.15.0 on Python 3.12"
    assert view.disagreements == ()


def test_a_page_says_where_machines_disagree() -> None:
    records = [
        make_observed(machine="old", at="2026-11-20T12:00:00+00:00", **VERDICTS["wrong"]),
        make_observed(machine="new"),
        make_observed(machine="old", torch="2.14.1"),
        make_observed(machine="new", torch="2.14.1"),
        # An older version of a library is another question.
        make_observed(machine="old", torch="2.13.0", version="1.0.30", **VERDICTS["wrong"]),
        make_observed(machine="new", torch="2.13.0", at="2026-11-28T12:00:01+00:00"),
    ]
    libraries = libraries_of(records)
    view = library_view(libraries, source(), libraries.rows[0])
    assert view.disagreements == (
        "small forward in py3.12-torch2.15.0: wrong on old, works on new",
    )
    assert "Machines disagree" in site_of(libraries)["library/timm.html"].decode()
    assert "Machines disagree" not in site_of(libraries)["library/keras.html"].decode()
    assert view.newest.startswith("works")


def test_a_signature_is_shown_with_its_libraries_and_whether_it_is_reported() -> None:
    gate = failed("Dynamo is not supported on Python 3.12+", "support_gate")
    records = [
        make_observed(**VERDICTS["failed"]),
        make_observed("keras", torch="2.14.1", **VERDICTS["failed"]),
        make_observed(torch="2.2.2", **gate),
        make_observed(ask="step", graph_breaks=(Break(text=BREAK, count=1),)),
        make_observed("keras", ask="step", **VERDICTS["undecided"]),
    ]
    libraries = libraries_of(records)
    views = {view.kind: view for view in signature_views(libraries)}
    assert [*views] == ["failed", "unsupported", "undecided", "breaks"]
    assert [name for name, *_ in views["failed"].libraries] == ["timm", "keras"]
    assert views["failed"].reportable
    assert not views["unsupported"].reportable
    assert not views["undecided"].reportable
    site = site_of(libraries)
    page = site[views["failed"].href].decode()
    assert "Not reported that we know of" in page
    assert "torch/_inductor/lowering.py:_unique2" in page
    assert "Text of a report" in page
    assert "pytorch/pytorch#120233" in site[views["unsupported"].href].decode()
    assert "Fault: environment" in site[views["undecided"].href].decode()
    page = site[views["breaks"].href].decode()
    assert 'compile-graph-break-site/gb/gb0124.html" rel="noreferrer">GB0124</a>' in page
    assert "Not reported" not in page
    assert not views["breaks"].reportable
    assert re.search(r'data-s="\d+"', site["index.html"].decode())


def test_calls_until_compiling_pays_are_said() -> None:
    records = [
        make_observed(compile_s=8.0, eager_s=2e-3, compiled_s=1e-3),
        make_observed(ask="step", compile_s=8.0, eager_s=1e-3, compiled_s=1e-3),
    ]
    page = site_of(libraries_of(records))["library/timm.html"].decode()
    assert "compiling pays after 8,000 calls" in page
    assert "compiling never pays" in page


SECONDS = st.one_of(st.none(), st.floats(0, 1e9))


@given(SECONDS, SECONDS, SECONDS, SECONDS, st.integers(0, 2**40))
@example(1e9, 1e-300, 5e-324, 1e9, 2**40)
def test_no_number_of_a_record_keeps_a_page_from_being_made(
    compile_s: float | None, eager_s: float | None, compiled_s: float | None,
    error: float | None, count: int,
) -> None:  # fmt: skip
    record = make_observed(
        compile_s=compile_s, eager_s=eager_s, compiled_s=compiled_s, error=error, graphs=count,
        graph_breaks=(Break(text="x", count=count),), recompiles=count, cpu_s=eager_s or 0.0,
        second=Second(inputs="x", recompiles=count, off=error),
    )  # fmt: skip
    libraries = libraries_of([record])
    found = source()
    table_view(libraries, found, "3.12")
    view = library_view(libraries, found, libraries.rows[0])
    assert render("library.html", found.page, view.href, view=view)


def test_json_follows_its_schema_and_no_cell_of_the_csv_is_a_formula() -> None:
    names = names_of(11)
    records = [*every_verdict(names, CELLS[:18]), make_observed(names[1], why="=cmd()")]
    libraries = libraries_of(records, names)
    site = site_of(libraries)
    SCHEMAS["observatory"].validate_json(site["observatory.json"])
    rows = json.loads(site["observatory.json"])["rows"]
    assert len(rows) == len(libraries.newest)
    assert {row["verdict"] for row in rows} >= {WORDS[key][0] for key in VERDICTS}
    assert {row["rank"] for row in rows} >= {200, 210}
    for row in rows_for_programs(libraries):
        assert row["page"].partition("#")[0] in site
    table = site["observatory.csv"].decode().splitlines()
    assert len(table) == len(rows) + 1
    assert not [line for line in table if re.search(r"(^|,)[=+@-][^,\d]", line)]


def test_a_table_that_cannot_be_read_is_named_on_the_first_page(tmp_path: Path) -> None:
    make_project(tmp_path)
    make_observatory(tmp_path, [make_observed()], ["timm"])
    (tmp_path / "observatory" / "libraries.toml").write_text("[timm\n")
    done = publish(tmp_path, tmp_path / "site", asv=False)
    assert any("libraries.toml" in text for text in done.problems)
    first = (tmp_path / "site" / "index.html").read_text()
    assert "No library with records" in first
    assert "libraries.toml" in first
    assert "Which to take" in (tmp_path / "site" / "suite.html").read_text()


def test_lines_that_are_no_records_are_named_and_all_others_are_shown(tmp_path: Path) -> None:
    make_project(tmp_path)
    make_observatory(tmp_path, [make_observed()], ["timm"])
    path = tmp_path / "observatory" / "records" / "timm.jsonl"
    lines = [path.read_text().replace("2.15.0", text) for text in ("index", "../../x", "2.15.0")]
    path.write_text("".join(lines) + "[" * 100_000 + "\n{}\n")
    done = publish(tmp_path, tmp_path / "site", asv=False)
    assert sum("timm.jsonl" in text for text in done.problems) == 4
    assert "1.50x" in (tmp_path / "site" / "index.html").read_text()
    assert not (tmp_path / "x.html").exists()


def test_only_locks_of_the_observatory_are_published(tmp_path: Path) -> None:
    make_project(tmp_path)
    make_observatory(
        tmp_path, [make_observed(), make_observed(ask="step", overlay="../../../x")], ["timm"]
    )
    folder = tmp_path / "observatory" / "locks"
    (tmp_path / "secret").write_text("secret")
    (folder / f"{'e' * 16}.txt").symlink_to(tmp_path / "secret")
    (folder / "notes.txt").write_text("notes")
    publish(tmp_path, tmp_path / "site", asv=False)
    assert [path.name for path in (tmp_path / "site" / "lock").iterdir()] == [f"{LOCK}.txt"]
    assert (
        f'href="../lock/{LOCK}.txt"' in (tmp_path / "site" / "library" / "timm.html").read_text()
    )


def test_a_page_that_cannot_be_made_is_named_and_all_others_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = libraries_of([make_observed(), make_observed("keras")])
    broken = Mock(side_effect=OverflowError("too large"))
    monkeypatch.setattr("ivhl.observatory.views.library_view", broken)
    problems = write_pages(source(), tmp_path / "site", None, "", libraries)
    assert [text.partition(":")[0] for text in problems] == [
        "library/timm.html",
        "library/keras.html",
    ]
    for name in ("index.html", "3.12.html", "2.15.0.html", "suite.html", "observatory.json"):
        assert (tmp_path / "site" / name).is_file(), name


def test_a_project_without_a_table_has_the_site_that_it_had(tmp_path: Path) -> None:
    make_project(tmp_path)
    assert load_libraries(tmp_path) == (None, ())
    site = publish(tmp_path, tmp_path / "site", asv=False).output
    assert "Which to take" in (site / "index.html").read_text()
    assert not (site / "suite.html").exists()
    assert "Libraries" not in (site / "index.html").read_text()


@pytest.mark.parametrize(
    ("phase", "failure_class", "message", "key"),
    [
        (
            "compile",
            "compile",
            "module 'torch.compiler' has no attribute 'is_exporting'",
            "failed",
        ),
        ("compile", "timeout", "did not end", "undecided"),
        (
            "import",
            "import",
            "module 'torch.compiler' has no attribute 'is_exporting'",
            "undecided",
        ),
        ("eager", "eager_failed", "no", "undecided"),
    ],
)
def test_what_fails_before_compiled_code_runs_says_nothing_of_the_compiler(
    phase: str, failure_class: str, message: str, key: str
) -> None:
    about = failed(message, failure_class, phase=phase, exception="AttributeError", frame="")
    assert key_of(make_observed(**about)) == key


def badges_of(records: Iterable[Observed]) -> tuple[ET.Element, dict[str, Any], bytes]:
    site = site_of(libraries_of(records))
    picture = site["badge/timm.svg"]
    return ET.fromstring(picture), json.loads(site["badge/timm.json"]), picture  # noqa: S314


@pytest.mark.parametrize("kind", VERDICTS)
def test_a_badge_has_the_newest_verdict_and_can_be_read(kind: str) -> None:
    older = many(torch="2.14.1", small_forward="works", small_step="works")
    picture, said, _ = badges_of([*older, *many(small_forward="works", small_step=kind)])
    word = "works" if kind in ("pinned", "nowheel") else WORDS[kind][0]
    assert said["message"] == f"{word}, PyTorch 2.15.0"
    assert (said["schemaVersion"], said["label"]) == (1, "torch.compile")
    texts = [one.text for one in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["torch.compile", said["message"]]
    assert picture.get("aria-label") == ": ".join(texts)  # type: ignore[arg-type]
    red, green, blue = (int(said["color"][at : at + 2], 16) / 255 for at in (1, 3, 5))
    # WCAG 2.2: relative luminance; white letters.
    parts = [
        v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (red, green, blue)
    ]
    assert 1.05 / (0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] + 0.05) >= 4.5


def test_each_cell_has_a_badge_of_its_own() -> None:
    site = site_of(libraries_of([*many(small_forward="works", small_step="wrong")]))
    cells = {path: json.loads(site[path]) for path in site if re.match("badge/timm/.*json", path)}
    assert cells
    for path, said in cells.items():
        python, _, torch = path.removeprefix("badge/timm/").removesuffix(".json").partition("-")
        assert said["message"] == f"wrong, PyTorch {torch}, Python {python}"
        assert path.replace(".json", ".svg") in site


def test_a_badge_changes_with_a_verdict_and_with_nothing_else() -> None:
    before = many(small_forward="works", small_step="works")
    later = {"at": "2026-11-29T12:00:00+00:00"}
    again = [one.model_copy(update={"compiled_s": 1e-3, "version": "2"} | later) for one in before]
    wrong = [one.model_copy(update=later) for one in many(small_step="wrong")]
    elsewhere = many("3.11", small_forward="wrong")
    assert badges_of(before)[2] == badges_of([*before, *again, *elsewhere])[2]
    assert badges_of(before)[1] == badges_of([*before, *again, *elsewhere])[1]
    assert badges_of(before)[2] != badges_of([*before, *wrong])[2]
    assert badges_of([])[1]["message"] == "not run"
