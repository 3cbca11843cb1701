"""The page of limits and its pictures are what the committed results of the soak say."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from arch_source import ROOT
from hypothesis import given
from hypothesis import strategies as st

BENCH = ROOT / "bench"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def page() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCH))
    try:
        yield importlib.import_module("limits_page")
    finally:
        sys.path.remove(str(BENCH))


@pytest.fixture(scope="module")
def curves(page: ModuleType) -> ModuleType:
    return importlib.import_module("curves")


def test_the_page_of_limits_is_what_the_results_say(page: ModuleType) -> None:
    assert not page.stale(page.render(page.results())), "run: make limits"


def test_another_result_makes_another_page(page: ModuleType) -> None:
    (first, *rest) = page.results()
    before = page.render([first, *rest])
    first.sizes[-1]["memory_mb"] += 1000
    assert page.render([first, *rest]) != before


def test_every_scene_has_a_result_that_was_judged(page: ModuleType) -> None:
    found = {one.scene: one for one in page.results()}
    assert set(found) == {*page.SECTIONS, *page.HOURS}
    assert not [scene for scene, one in found.items() if not one.verdicts]


def test_a_result_says_of_the_machine_what_a_reader_can_compare_and_no_name(page: ModuleType) -> None:
    for one in page.results():
        runs = json.loads((page.RESULTS / f"{one.scene}.json").read_text())["runs"].values()
        assert all(set(run["machine"]) == {"cores", "memory_gb", "kernel", "python"} for run in runs)


def test_a_run_of_one_part_keeps_the_other(page: ModuleType) -> None:
    model = importlib.import_module("soak_model")
    (older, *_) = page.results()
    held = model.Recording(scene=older.scene, runs={"hold": older.runs["hold"]}, sizes=[{"size": 1.0}])
    held.keep("sizes", older)
    assert (held.sizes, held.samples, held.runs) == (older.sizes, [], older.runs)
    sized = model.Recording(scene=older.scene, runs={"sizes": older.runs["sizes"]}, sizes=[{"size": 1.0}])
    sized.keep("hold", older)
    assert (sized.sizes, sized.samples, sized.verdicts) == ([{"size": 1.0}], older.samples, older.verdicts)


def test_pictures_are_well_formed_and_have_a_text_for_readers_that_do_not_see_them(page: ModuleType) -> None:
    pictures = {name: text for name, text in page.render(page.results()).items() if name.endswith(".svg")}
    assert pictures
    for text in pictures.values():
        root = ElementTree.fromstring(text)
        assert root.get("role") == "img"
        assert all((root.findtext(f"{SVG}{name}") or "").strip() for name in ("title", "desc"))


@given(st.floats(1e-6, 1e9))
def test_ticks_begin_at_zero_and_reach_the_highest_value(curves: ModuleType, highest: float) -> None:
    found = curves.ticks(highest)
    assert found[0] == 0
    assert found[-1] >= highest * (1 - 1e-6)
    assert 2 <= len(found) <= 7
    assert found == sorted(found)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=30), st.text(max_size=20))
def test_a_curve_stays_within_its_axes(curves: ModuleType, points: list[tuple[float, float]], name: str) -> None:
    name = "".join(each for each in name if each.isprintable())
    line = curves.Line(name, sorted(points))
    chart = curves.Chart(title=name, x_label="pods", y_label="MB", lines=[line])
    (drawn,) = ElementTree.fromstring(curves.svg(chart)).iter(f"{SVG}polyline")
    for pair in str(drawn.get("points")).split():
        x, y = map(float, pair.split(","))
        assert curves.LEFT - 0.1 <= x <= curves.WIDTH - curves.RIGHT + 0.1
        assert curves.TOP - 0.1 <= y <= curves.HEIGHT - curves.BOTTOM + 0.1


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.001234, "0.00123"), (1.5, "1.5"), (12.345, "12.3"), (999.6, "1 000"), (50_000, "50 000"), (2, "2")],
)
def test_numbers_have_three_digits_that_count(curves: ModuleType, value: float, text: str) -> None:
    assert curves.number(value) == text


def test_a_line_without_points_is_refused(curves: ModuleType) -> None:
    with pytest.raises(ValueError, match="cannot be drawn"):
        curves.svg(curves.Chart(title="a", x_label="x", y_label="y", lines=[curves.Line("l", [])]))


def test_labels_of_lines_that_end_at_one_height_do_not_cover_each_other(curves: ModuleType) -> None:
    lines = [curves.Line(name, [(0.0, 1.0), (1.0, 5.0)]) for name in ("first", "second")]
    root = ElementTree.fromstring(curves.svg(curves.Chart(title="a", x_label="x", y_label="y", lines=lines)))
    heights = [float(str(each.get("y"))) for each in root.iter(f"{SVG}text") if each.text in ("first", "second")]
    assert abs(heights[0] - heights[1]) >= 12


def test_a_result_is_read_as_it_was_written(page: ModuleType, tmp_path: Path) -> None:
    model = importlib.import_module("soak_model")
    for one in page.results():
        assert model.read(one.write(tmp_path)) == one
