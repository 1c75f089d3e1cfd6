from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

import experiments
import page
from page import FRACTION, Goal, goal_rows, goal_table, publish, readme_table, replaced, table

ROOT = Path(page.__file__).parent.parent
SCRIPTS = [path for path in (ROOT / "bench").glob("*.py") if path.name != "page.py"]
TEXT = "prose\n\n<!-- one: made by `make bench` -->\nold\n<!-- end of one -->\n\nmore prose\n"


def options(file: Path, *, check: bool = False) -> argparse.Namespace:
    return argparse.Namespace(page=file, check=check)


def test_a_section_is_replaced_and_the_prose_around_it_stays() -> None:
    text = replaced(TEXT, "one", "new\n")

    assert text == TEXT.replace("old\n", "\nnew\n\n")
    assert replaced(text, "one", "new") == text


def test_a_section_that_another_command_makes_is_found_by_that() -> None:
    text = TEXT.replace("make bench", "make prove")

    assert "old" not in replaced(text, "one", "new", by="make prove")
    with pytest.raises(ValueError, match="no section"):
        replaced(text, "one", "new")


@pytest.mark.parametrize("text", ["", "<!-- end of one -->", "<!-- one: made by `make bench` -->\n"])
def test_a_page_without_the_section_is_refused_and_not_written(tmp_path: Path, text: str) -> None:
    file = tmp_path / "page.md"
    file.write_text(text)

    with pytest.raises(ValueError, match="no section"):
        publish("one", "new", options(file))
    assert file.read_text() == text


def test_a_table_has_a_line_for_its_head_and_one_for_each_row() -> None:
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"


def test_what_a_program_said_can_not_break_a_table() -> None:
    assert table(["a"], [["one of a|b"]]).count("|") == 6


@pytest.mark.parametrize(
    ("measured", "inside", "row"),
    [
        (2.0, False, ("CPU", "2.5 %", "2 %", "met")),
        (2.5, False, ("CPU", "2.5 %", "2.5 %", "met")),
        (2.6, False, ("CPU", "2.5 %", "2.6 %", "**missed**")),
        (2.6, True, ("CPU", "2.5 %", "2.6 %", "inside the spread")),
        (2.0, True, ("CPU", "2.5 %", "2 %", "met")),
        ("no BPF", False, ("CPU", "2.5 %", "not measured: no BPF", "")),
    ],
)
def test_a_goal_says_what_was_measured_and_whether_that_is_enough(
    measured: float | str, inside: bool, row: tuple[str, ...]
) -> None:
    goal = Goal("CPU", 2.5, "%", measured, inside)

    assert goal.row() == row
    assert goal.broken == (row[3] == "**missed**")


def test_a_small_part_is_shown_as_one() -> None:
    assert Goal("a", 1 / 50, FRACTION, 1 / 93).row() == ("a", "1/50", "1/93", "met")


def test_a_goal_that_is_missed_fails_only_where_that_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text(TEXT)
    goals = [Goal("memory", 40, "MB", 41.0)]

    publish("one", "body", options(file), goals)
    with pytest.raises(SystemExit, match="missed: memory"):
        publish("one", "body", options(file, check=True), goals)
    assert "| memory | 40 MB | 41 MB | **missed** |" in file.read_text()


def test_goals_are_found_in_every_section_of_a_page_and_no_other_table_is() -> None:
    first, second = Goal("a", 1, "%", 0.5), Goal("b", 2, "", "no peer")
    other = table(["x", "y"], [["1", "2"]])

    text = f"{other}\n{goal_table([first])}\n{other}\n{goal_table([second])}"

    assert goal_rows(text) == [list(first.row()), list(second.row())]


def test_the_pages_have_a_section_for_each_script_that_writes_one() -> None:
    written = {name for path in SCRIPTS for name in re.findall(r'publish\(\s*"(\w+)"', path.read_text())}
    made: set[str] = set()
    for text in (file.read_text() for file in (page.PAGE, experiments.PAGE)):
        for name, by in re.findall(r"<!-- (\w+): made by `(make \w+)` -->", text):
            made.add(name)
            replaced(text, name, "", by)

    assert written == made


def test_make_runs_every_script_that_writes_a_section() -> None:
    scripts = {
        path.name for path in (ROOT / "bench").glob("*.py") if re.search(r"^ +publish\(", path.read_text(), re.M)
    }
    text = (ROOT / "Makefile").read_text()
    targets = [text.partition(f"\n{name}: setup")[2].partition("\n\n")[0] for name in ("bench", "soak")]

    assert {script for target in targets for script in re.findall(r"bench/(\w+\.py)", target)} == scripts


def test_the_readme_table_repeats_goals_of_the_page() -> None:
    rows = readme_table(page.PAGE.read_text()).splitlines()[2:]

    assert rows
    assert all(row in page.PAGE.read_text() for row in rows)
