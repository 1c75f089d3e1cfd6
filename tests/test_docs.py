"""What the documents say is what the code does."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pinchpoint.cli import COMMANDS, main
from pinchpoint.diagnosis.verdict import MIN_LEAD_BLAME
from pinchpoint.metrics import EXPORTER, JUDGE, TREND
from pinchpoint.model import MetricKind
from pinchpoint.project import URL

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    path for path in [*ROOT.glob("*.md"), *ROOT.glob("runbooks/*.md"), *ROOT.glob("docs/*.md")] if path.is_file()
)
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
"""A block of code: its language and its text."""
UNITS = ("_seconds", "_bytes", "_ratio", "_hertz", "_info", "_cpus", "_files")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_and_says_what_it_does(name: str) -> None:
    help_text = subprocess.run(
        [sys.executable, "-m", "pinchpoint", name, "--help"], capture_output=True, text=True, check=True
    ).stdout

    assert f"pinchpoint {name}" in (ROOT / "docs" / "use.md").read_text()
    assert len(help_text.splitlines()) > 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", prose)

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_readme_is_short_and_leads_to_every_page() -> None:
    text = (ROOT / "README.md").read_text()
    pages = [f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")]

    assert [page for page in pages if f"({page})" not in text] == []
    assert len(text.splitlines()) <= 180


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"(?:`|^ *)make ([a-z-]+)", page.read_text(), re.MULTILINE)}

    assert named - targets == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_a_page_shows_has_these_options(page: Path) -> None:
    for words in shown_commands(page):
        context = click.Context(main)
        command = main.get_command(context, words[0])
        assert command is not None, words
        try:
            command.make_context(words[0], words[1:], parent=context)
        except click.UsageError as error:
            pytest.fail(f"{shlex.join(words)}: {error.format_message()}")


def shown_commands(page: Path) -> list[list[str]]:
    """Return the words after `pinchpoint` in the shell blocks of a page, without comments and redirections."""
    blocks = [text for language, text in BLOCK.findall(page.read_text()) if language == "sh"]
    shell = "".join(blocks).replace("$hosts", "host:9748").replace("\\\n", "")
    lines = [shlex.split(line, comments=True) for line in shell.splitlines() if "pinchpoint " in line]
    commands = [line for line in lines if line and Path(line[0]).name == "pinchpoint" and line[1:] != ["--help"]]
    return [list(takewhile(lambda word: word not in (">", "|", "&&", "&"), line[1:])) for line in commands]


def test_the_tutorial_shows_the_way_from_a_clone_to_a_verdict() -> None:
    page = ROOT / "docs" / "tutorial.md"
    shell = "".join(text for language, text in BLOCK.findall(page.read_text()) if language == "sh")

    assert [words[0] for words in shown_commands(page)][:4] == ["check", "run", "watch", "report"]
    assert re.findall(r"^(?:git|make) [a-z-]+", shell, re.MULTILINE) == [
        "make setup", "make lab-up", "make lab-down"
    ]  # fmt: skip


def test_the_worked_example_of_the_verdict_is_what_the_code_says() -> None:
    example = (ROOT / "docs" / "verdict.md").read_text().partition("## A worked example\n")[2].partition("\n## ")[0]
    (_, program), (_, output) = BLOCK.findall(example)
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    prose = BLOCK.sub("", example)
    quota, border = "20", f"{MIN_LEAD_BLAME * 100:.0f}"

    assert ran.stdout == output
    assert set(re.findall(r"(\d+) %", prose)) - set(re.findall(r"(\d+)%", output)) == {quota, border}
    sums = re.findall(r"(\d+) % x \(?(\d+) %(?: - (\d+) %\))? = (\d+) %", prose)
    assert [round(int(a) * (int(b) - int(c or 0)) / 100) for a, b, c, _ in sums] == [int(made) for *_, made in sums]
    assert len(sums) == 2


def test_every_file_that_contributing_names_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`((?:exporter|tests|alerts|runbooks|compose)/[\w/.]+)`", text)

    assert len(paths) > 5
    assert [path for path in paths if "NAME" not in path and not (ROOT / path).exists()] == []


def test_metrics_have_help_a_unit_and_the_suffix_of_their_kind() -> None:
    for metric in (*EXPORTER, *JUDGE, *TREND):
        assert metric.name.startswith("pinchpoint_")
        assert metric.help.endswith(".")
        assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
        counted = metric.name.removesuffix("_total")
        assert metric.kind is MetricKind.COUNTER or counted.endswith(UNITS) != metric.unitless, metric.name


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs git to list the project's files")
def test_the_address_of_the_project_stands_in_one_place() -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    address = re.compile(r"(?:github|gitlab)\.com/pinchpoint")
    files = [ROOT / name for name in tracked.split("\0") if name and not name.startswith("tests/")]
    found = [path for path in files if path.is_file() and address.search(path.read_text(errors="replace"))]

    assert URL == "" or URL.startswith("https://")
    assert [path for path in found if path.name != "project.py"] == []


def test_the_example_of_a_result_folder_is_what_import_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    result = CliRunner().invoke(main, ["import", str(ROOT / "tests" / "fixtures" / "io500" / "cephfs-2025")])

    blocks = [text for _, text in BLOCK.findall((ROOT / "docs" / "io500.md").read_text())]
    assert result.stdout in blocks
