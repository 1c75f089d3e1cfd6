"""The committed files equal what the code and its data generate."""

from __future__ import annotations

from pathlib import Path

import pytest

import generate
from generate import ROOT, made, stale
from pinchpoint.benchmarks.ping import Ping


@pytest.fixture(scope="module")
def found() -> dict[Path, str]:
    return made()


def test_every_file_that_is_made_from_the_code_is_up_to_date(found: dict[Path, str]) -> None:
    lines = [f"{path.relative_to(ROOT)}: not up to date: run `make generated`" for path in stale(found)]

    assert lines == []


def test_files_of_all_kinds_are_made(found: dict[Path, str]) -> None:
    folders = {str(path.parent.relative_to(ROOT)) for path in found}

    assert folders == {".", "dashboards/json", "deploy/kubernetes", "docs", "runbooks", "tests/golden"}


def test_a_file_that_differs_or_that_nothing_makes_is_named(found: dict[Path, str]) -> None:
    page = ROOT / "docs" / "metrics.md"
    rest = {path: text for path, text in found.items() if path.suffix != ".prom"}
    goldens = sorted((ROOT / "tests" / "golden").glob("*.prom"))

    assert stale({**found, page: "other"}) == [page]
    assert stale(rest) == goldens


def test_a_benchmark_without_a_row_in_the_documentation_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ping, "documented", ())

    with pytest.raises(SystemExit, match=r"pinchpoint.benchmarks.ping: Ping needs `documented`"):
        generate.benchmarks_table()


def test_an_alert_whose_page_does_not_say_what_it_says_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "RUNBOOKS", ROOT / "docs")

    with pytest.raises(SystemExit, match=r"docs/\w+\.md: needs a sentence under its title"):
        generate.alerts_table()
