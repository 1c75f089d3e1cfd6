from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manpages import manual_pages, roff_line

from pinchpoint.cli import COMMANDS
from pinchpoint.statuses import STATUSES

PAGES = manual_pages(1_790_000_000)


def shown(page: str) -> str:
    """Return what `man` shows of a page."""
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    command = ["groff", "-man", "-ww", "-Tascii", "-P-c", "-P-b", "-P-u", "-rLL=200n"]
    done = subprocess.run(command, input=page, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return " ".join(done.stdout.split())


def test_each_command_has_a_page() -> None:
    assert set(PAGES) == {"pinchpoint.1", *(f"pinchpoint-{name}.1" for name in COMMANDS)}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_read_without_a_warning_and_has_the_exit_statuses(name: str) -> None:
    text = shown(PAGES[name])
    known = STATUSES.get(name.removeprefix("pinchpoint-").removesuffix(".1"), {})

    assert text.count("EXIT STATUS") == (1 if known else 0)
    for status, meaning in known.items():
        assert f"{status} {' '.join(meaning.split())}." in text


def test_a_page_has_the_options_that_help_shows() -> None:
    text = shown(PAGES["pinchpoint-run.1"])

    assert "NAME pinchpoint-run - " in text
    for option in ("--name", "--tag KEY=VALUE", "--target"):
        assert option in text


def test_a_page_has_the_date_that_it_is_given_and_no_other() -> None:
    assert "2026-09-21" in PAGES["pinchpoint.1"]
    assert manual_pages(1_790_000_000) == PAGES


@given(st.text())
def test_no_text_is_taken_for_a_command_of_roff(text: str) -> None:
    made = roff_line(text)

    assert not made.startswith((".", "'"))
    assert "\n" not in made
    assert not re.search(r"\\(?![e&-])", made)
