"""The prose of pages, comments, docstrings and messages has no phrases that read like a translation."""

from __future__ import annotations

import re
import subprocess
import tokenize
import tomllib
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ("*.md",)
RULES = (":(glob)alerts/*.yml",)
CODE = ("exporter/*.py", "dashboards/*.py", "compose/*.py", "bench/*.py", "scripts/*.py", "tests/*.py")
LEFT_OUT = ("CHANGELOG.md", "tests/fixtures/", "tests/test_prose.py")

STRINGS = {tokenize.STRING} | {getattr(tokenize, name) for name in ("FSTRING_MIDDLE",) if hasattr(tokenize, name)}
BETWEEN = {tokenize.NL} | {
    getattr(tokenize, name) for name in ("FSTRING_START", "FSTRING_END") if hasattr(tokenize, name)
}
"""Tokens that may come between the parts of a string that spans several lines."""


class Phrase(NamedTuple):
    """An unwanted phrase."""

    pattern: re.Pattern[str]
    instead: str
    left_out: tuple[str, ...]


class Text(NamedTuple):
    """A piece of prose, with single blanks between words."""

    words: str
    starts: list[int]
    """Where each line begins in it."""
    lines: list[int]
    """The number of each of these lines in the file."""


def phrases() -> list[Phrase]:
    table = tomllib.loads((ROOT / "tests" / "banned_phrases.toml").read_text())["phrase"]
    return [
        Phrase(
            re.compile(rf"\b(?:{entry['pattern']})\b", re.IGNORECASE),
            entry["instead"],
            tuple(entry.get("except", ())),
        )
        for entry in table
    ]


def joined(lines: list[tuple[int, str]]) -> Text:
    """Return numbered lines as one text: a phrase may continue on the next line."""
    words, starts, numbers = "", [], []
    for number, line in lines:
        starts.append(len(words))
        numbers.append(number)
        words += " ".join(line.split()) + " "
    return Text(words, starts, numbers)


def unmarked(line: str) -> str:
    """Return a line without the markers of a comment or a string."""
    return re.sub(r"""^\s*#+:?\s?|^\s*[rbfRBF]{0,2}(?:\"{3}|["'])|(?:\"{3}|["'])\s*$""", "", line)


def prose_of_code(path: Path) -> Iterator[Text]:
    """Yield each string and each block of comments of a file."""
    kept: list[tuple[int, str]] = []
    kind = tokenize.NL
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type in BETWEEN:
                continue
            now = tokenize.STRING if token.type in STRINGS else token.type
            if kept and now != kind:
                yield joined(kept)
                kept = []
            kind = now
            if now in (tokenize.STRING, tokenize.COMMENT):
                lines = token.string.splitlines()
                kept += [(token.start[0] + index, unmarked(line)) for index, line in enumerate(lines)]


def prose_of_file(path: Path) -> Iterator[Text]:
    yield joined([(number, unmarked(line)) for number, line in enumerate(path.read_text().splitlines(), 1)])


def files(patterns: tuple[str, ...]) -> list[str]:
    found = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in found.stdout.splitlines() if not name.startswith(LEFT_OUT) and (ROOT / name).exists()]


def findings(name: str, texts: Iterator[Text], banned: list[Phrase]) -> Iterator[str]:
    for text in texts:
        for phrase in banned:
            if name.startswith(phrase.left_out):
                continue
            for hit in phrase.pattern.finditer(text.words):
                line = text.lines[bisect_right(text.starts, hit.start()) - 1]
                yield f'{name}:{line}: "{hit[0]}"; better: {phrase.instead}'


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs git to list the project's files")
def test_no_page_rule_comment_or_message_has_a_phrase_that_reads_like_a_translation() -> None:
    banned = phrases()
    found = [line for name in files((*PAGES, *RULES)) for line in findings(name, prose_of_file(ROOT / name), banned)]
    found += [line for name in files(CODE) for line in findings(name, prose_of_code(ROOT / name), banned)]

    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('"""A reader that\ntells\nof it."""\n', 2),
        ("x = 1  # a path that is none\n", 1),
        ("# this is\n# no directory\n", 1),
        ('x = f"{1} is no "  \\\n    "directory"\n', 1),
    ],
)
def test_a_phrase_is_found_in_strings_and_comments_over_line_ends(tmp_path: Path, text: str, line: int) -> None:
    path = tmp_path / "code.py"
    path.write_text(text)

    assert [found.split(":")[1] for found in findings("code.py", prose_of_code(path), phrases())] == [str(line)]


def test_what_a_sentence_may_say_is_not_found(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("There is no directory. Where there\nis no file, it is no longer read. A toll office.\n")

    assert list(findings("page.md", prose_of_file(path), phrases())) == []
