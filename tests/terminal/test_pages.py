from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from patience import patience
from pinchpoint import pages
from pinchpoint.cli import main
from pinchpoint.terminal.page import rendered
from pinchpoint.terminal.pager import pager_of
from pinchpoint.terminal.pages import nearest, page_name

ROOT = Path(__file__).parents[2]
EVERY = [(folder, name) for folder in pages.FOLDERS for name in pages.names(folder)]
ESCAPE = "\x1b"


def shown(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, arguments, env={"COLUMNS": "100"})
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("place", EVERY, ids="/".join)
def test_every_page_is_shown_with_its_headings_and_its_code_as_it_stands(place: tuple[str, str]) -> None:
    source = pages.text(*place)
    prose = re.sub(r"^ *(```+).*?^ *\1$", "", source, flags=re.MULTILINE | re.DOTALL)
    lines = rendered(source, 80, colour=False).split("\n")
    words = re.sub(r"\W", "", "".join(line for line in lines if not line.startswith("    ")))

    assert ESCAPE not in "".join(lines)
    assert [line for line in lines if ("<!--" in line or "](" in line) and not line.startswith("    ")] == []
    for block in re.findall(r"^```\w*\n(.*?)^```$", source, re.MULTILINE | re.DOTALL):
        assert [line for line in block.split("\n") if line and f"    {line}".rstrip() not in lines] == []
    for title in re.findall(r"^#+ (.*)$", prose, re.MULTILINE):
        assert re.sub(r"\W", "", re.sub(r"\]\([^)]*\)", "", title)) in words


@given(st.text("a|-#`\x1b\x07\x9b\u202e[]()<>*_~\n \t", max_size=60))
def test_no_text_brings_control_characters_to_the_terminal(text: str) -> None:
    shown = rendered(text, 40, colour=False)

    assert shown.replace("\n", "").isprintable()


def test_with_colours_only_our_own_sequences_are_in_it() -> None:
    text = rendered("# a \x1b]0;title\x07\n\n```\n\x1b[31m\n```\n", 40, colour=True)

    assert ESCAPE in text
    assert re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\n", "").isprintable()


def test_a_table_has_its_columns() -> None:
    text = rendered("| name | what |\n|---|---|\n| one | two words |\n", 40, colour=False)

    rows = [line.split() for line in text.split("\n")]
    assert ["name", "what"] in rows
    assert ["one", "two", "words"] in rows


def test_a_link_to_another_page_keeps_its_words_and_one_to_the_network_its_address() -> None:
    text = rendered(
        "[Ours](DiskSaturated.md#a) and [theirs](https://example.org/x) ![picture](a.webp)", 100, colour=False
    )

    assert text == "Ours and theirs (https://example.org/x) picture\n"


@pytest.mark.parametrize(
    "asked", ["MdsLockSaturated", "mdslocksaturated", "MdsLockSaturated.md", "runbooks/MdsLockSaturated.md"]
)
def test_a_page_is_found_in_any_case_and_by_its_path(asked: str) -> None:
    assert page_name("runbooks", asked) == "MdsLockSaturated"


def test_without_a_name_every_page_is_listed_with_its_first_sentence() -> None:
    for command, folder in (("runbook", "runbooks"), ("docs", "docs")):
        status, text, _ = shown(command)
        lines = text.splitlines()

        assert status == 0
        assert [line.split()[0] for line in lines] == pages.names(folder)
        assert all(len(line.split()) > 3 and "](" not in line and "```" not in line for line in lines)


def test_an_unknown_name_gets_the_nearest_ones() -> None:
    status, text, said = shown("runbook", "MdsLokSaturated")

    assert (status, text) == (1, "")
    assert said.startswith(
        "pinchpoint: no runbook is called 'MdsLokSaturated'; nearest: `pinchpoint runbook MdsLockSaturated`, "
    )
    assert said.endswith("; `pinchpoint runbook` lists all\n")
    assert shown("docs", "DiskSaturated")[2] == (
        "pinchpoint: no page is called 'DiskSaturated'; nearest: `pinchpoint runbook DiskSaturated`; "
        "`pinchpoint docs` lists all\n"
    )
    assert "nearest" not in shown("docs", "\x1b[31m")[2]
    assert ESCAPE not in shown("docs", "\x1b[31m")[2]


def test_what_contains_the_name_is_nearer_than_what_is_spelled_alike() -> None:
    assert nearest("lock", ["MdsLockSaturated", "block", "clock", "look"]) == ["MdsLockSaturated", "block", "clock"]
    assert nearest("", ["a"]) == nearest("xyz", ["abc"]) == []


@pytest.mark.parametrize(
    ("environment", "pager"),
    [
        ({}, "less"),
        ({"PAGER": "more -x"}, "more -x"),
        ({"PAGER": "more", "PINCHPOINT_PAGER": "most"}, "most"),
        ({"PAGER": "cat"}, ""),
        ({"PAGER": ""}, ""),
    ],
    ids=str,
)
def test_the_pager_is_that_of_the_user(environment: dict[str, str], pager: str) -> None:
    assert pager_of(environment) == pager


def on_terminal(*arguments: str, **environment: str) -> str:
    """Run the command on a terminal of its own; return what it wrote there."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "pinchpoint", *arguments],
        stdin=slave, stdout=slave, stderr=slave,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "exporter"), "TERM": "xterm", **environment},
    )  # fmt: skip
    os.close(slave)
    found = b""
    try:
        while piece := os.read(master, 65536):
            found += piece
    except OSError:  # EIO: the other end is closed
        pass
    os.close(master)
    assert process.wait(patience(60)) == 0
    return found.decode()


def test_on_a_terminal_the_page_goes_through_the_pager_in_colours() -> None:
    text = on_terminal("runbook", "DiskSaturated", PAGER="sed s/^/PAGED:/")

    assert text.startswith(f"PAGED:{ESCAPE}[1mDiskSaturated")
    assert all(line.startswith("PAGED:") for line in text.splitlines())


def test_a_pager_that_is_not_there_or_ends_early_does_no_harm() -> None:
    assert "DiskSaturated" in on_terminal("runbook", "DiskSaturated", PAGER="there-is-no-such-pager")
    assert on_terminal("docs", "metrics", PAGER="head -n 1; exit 3").count("\n") == 1


def test_a_user_without_colours_gets_none() -> None:
    assert ESCAPE not in on_terminal("runbook", "DiskSaturated", PAGER="cat", NO_COLOR="1")


@pytest.mark.parametrize(
    ("path", "command"),
    [("runbooks/DiskSaturated.md", "pinchpoint runbook DiskSaturated"), ("docs/check.md#mtu", "pinchpoint docs check")],
)
def test_a_path_of_a_page_becomes_a_command_that_shows_it(path: str, command: str) -> None:
    assert pages.command_for(path) == command
    assert shown(*command.split()[1:])[0] == 0
