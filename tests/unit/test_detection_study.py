"""The study that scores the detector: its series and its metrics."""

from pathlib import Path

import pytest

from studies.detection import generate
from studies.detection.__main__ import main
from studies.detection.metrics import LATE, Counts, annotated, matched, online, planted, unchanged
from studies.detection.series import LabelledSeries, read_folder


def series(n: int, *truth: int, name: str = "a") -> LabelledSeries:
    return LabelledSeries(name, "synth", "-", (1.0,) * n, {"truth": truth}, (0.1,) * len(truth))


def test_each_true_index_takes_the_nearest_report_and_none_twice() -> None:
    assert matched([10, 12], [11], 2) == {10}
    assert matched([10, 12], [13, 11], 2) == {10, 12}
    assert matched([10], [13], 2) == set()


def test_counts_give_precision_recall_and_their_mean() -> None:
    counts = planted([(series(50, 10, 30), [11, 40]), (series(50), [])])
    assert counts == Counts(right=1, reported=2, true=2)
    assert (counts.precision, counts.recall, counts.f1) == (0.5, 0.5, 0.5)


def test_silence_about_nothing_is_perfect() -> None:
    assert annotated([(series(50), [])]) == (1.0, 0.0)
    assert unchanged([(series(50), []), (series(60), [3, 9]), (series(70, 5), [])]) == (
        2,
        110,
        1,
        2,
    )


def test_delay_counts_points_of_the_new_regime_until_the_report_stays() -> None:
    one = series(70, 40)
    assert online(one, lambda values, _: [40] if len(values) >= 43 else []) == (3, 0, 51)
    assert online(
        one, lambda values, _: [40] if len(values) < 60 and len(values) > 41 else []
    ) == (LATE, 0, 51)
    assert online(one, lambda values, _: [7] if len(values) > 50 else [])[1] == 1


@pytest.mark.parametrize("make", [generate.synth, generate.mixed, generate.delay, generate.ratio])
def test_a_seed_gives_the_same_series(make: type) -> None:
    assert make(3) == make(3)
    assert make(3) != make(4)


def test_generated_series_say_where_their_steps_are() -> None:
    for one in generate.synth(1, each=4):
        assert len(one.truth) == len(one.steps)
        assert all(
            generate.EDGE <= place <= len(one.values) - generate.EDGE for place in one.truth
        )


def test_a_folder_without_series_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no \\*\\.json"):
        read_folder(tmp_path)


def test_the_command_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "data" / "dev"
    folder.mkdir(parents=True)
    values = ",".join(["100"] * 30 + ["120"] * 30)
    (folder / "synth.json").write_text(
        f'[{{"name": "a", "values": [{values}], "annotations": {{"truth": [30]}}, "steps": [0.2]}}]'
    )
    assert main([str(tmp_path)]) == 0
    assert "| synth F1 | 1.000 | >= 0.89 |" in capsys.readouterr().out
