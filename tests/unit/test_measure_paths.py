"""No folder of the machine that measured is in what it publishes."""

from __future__ import annotations

import re
import sys
import sysconfig
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ivhl.measure.paths import folders_here, without_folders
from ivhl.records.record import Counted
from ivhl.records.text import tidy
from tests.builders.records import make_failure

HERE = {"/srv/lib/site-packages": "", "/srv": "<cell>", "/tmp": "<tmp>"}  # noqa: S108


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('File "/srv/lib/site-packages/torch/a.py", line 3', 'File "torch/a.py", line 3'),
        ("/srv/bin/python and /tmp/x", "<cell>/bin/python and <tmp>/x"),
        ("cannot write '/tmp': full", "cannot write '<tmp>/': full"),
        ("a /srv-2/b, /tmpfile, x/tmp/y and 1/srv", "a /srv-2/b, /tmpfile, x/tmp/y and 1/srv"),
        ("file:///tmp/a", "file://<tmp>/a"),
        ("g++ -I/srv/include -L/tmp x-I/srv", "g++ -I<cell>/include -L<tmp>/ x-I/srv"),
    ],
)
def test_the_innermost_folder_goes(text: str, left: str) -> None:
    assert without_folders(text, HERE) == left


def test_every_text_of_a_failure_is_looked_through() -> None:
    failure = make_failure().failure
    assert failure is not None
    told = replace(failure, message="in /srv/a.py", output_tail="/srv/b\n/srv/c")
    assert without_folders(told, HERE) == replace(
        failure, message="in <cell>/a.py", output_tail="<cell>/b\n<cell>/c"
    )
    assert without_folders((Counted(text="/srv/w", count=2),), HERE) == (
        Counted(text="<cell>/w", count=2),
    )
    assert without_folders(None, HERE) is None


@given(st.text())
def test_what_names_no_folder_stays(text: str) -> None:
    clean = text.replace("/", ":")
    assert without_folders(clean, folders_here("/srv/.asv/scratch")) == clean


def test_the_folders_of_this_machine_are_known(tmp_path: Path) -> None:
    scratch = tmp_path / "project" / ".asv" / "scratch"
    found = folders_here(str(scratch))
    paths = (
        scratch / "a",
        scratch.parents[1] / "planted" / "work.py",
        Path(sysconfig.get_path("purelib")) / "torch" / "a.py",
        Path(sys.prefix) / "bin",
        Path(tempfile.gettempdir()) / "x",
        Path.home() / "x",
    )
    texts = [without_folders(f"in {path}", found) for path in paths]
    assert texts[:3] == ["in <scratch>/a", "in planted/work.py", "in torch/a.py"]
    assert not any(text.startswith("in /") for text in texts)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("raised in /home/me/model.py:3", "raised in model.py:3"),
        ("g++ -I/home/me/include/python3.12 -O3", "g++ -Ipython3.12 -O3"),
        ("a/b/c.py and https://docs.example/a/b", "a/b/c.py and https://docs.example/a/b"),
    ],
)
def test_equal_texts_of_two_machines_are_equal(text: str, left: str) -> None:
    assert tidy(text) == left


def test_no_committed_record_names_a_folder_of_its_machine() -> None:
    root = Path(__file__).parents[2]
    files = [*root.glob("results/*/records/*.jsonl"), *root.glob("observatory/records/*.jsonl")]
    assert files
    # A folder may stand behind a letter, as in a compiler's option -I.
    named = re.compile(r"(?<![.<>])/(?:work|root|home|tmp|check|Users)/")
    found = {path.name: one[0] for path in files if (one := named.search(path.read_text()))}
    assert found == {}
