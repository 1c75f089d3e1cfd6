"""Runbooks and documentation as pages of the judge: they are there also where no network leads outside."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from markdown_it import MarkdownIt

__all__ = ["FOLDERS", "names", "page"]

FOLDERS = ("runbooks", "docs")
NAME = re.compile(r"[A-Za-z0-9]+")
LINK = re.compile(r'href="(?!https?:)([^"#]*)(#[\w-]*)?"')
PLACE = re.compile(r"(?:\.\./)?(?:(runbooks|docs)/)?([A-Za-z0-9]+)\.md")
HEADING = re.compile(r"<(h[1-6])>(.*?)</\1>")
IMAGE = re.compile(r'<img src="[^"]*" alt="([^"]*)" />')


def _folder(name: str) -> Traversable:
    return resources.files("pinchpoint").joinpath(name)


def names(folder: str) -> list[str]:
    """Return the names of all pages of one of `FOLDERS`."""
    return sorted(
        file.name.removesuffix(".md")
        for file in _folder(folder).iterdir()
        if file.name.endswith(".md") and file.name != "README.md"
    )


@cache
def page(folder: str, name: str) -> str | None:
    """Return a page as HTML; None where there is none of that name."""
    if folder not in FOLDERS or not NAME.fullmatch(name) or name not in names(folder):
        return None
    text = _folder(folder).joinpath(f"{name}.md").read_text()
    # Without HTML in the text: the pages are ours, and need none.
    found: str = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    found = IMAGE.sub(r"<em>\1</em>", HEADING.sub(_anchored, found))
    return LINK.sub(lambda match: _link(folder, match), found)


def _anchored(match: re.Match[str]) -> str:
    """Return a heading with the anchor that links in the repository have for it."""
    words = re.sub(r"<[^>]*>|&\w+;", "", match[2]).lower()
    anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
    return f'<{match[1]} id="{anchor}">{match[2]}</{match[1]}>'


def _link(folder: str, match: re.Match[str]) -> str:
    """Return a link to another page as one to where it is here; of what is not here there is only the name."""
    target, anchor = match[1], match[2] or ""
    if not target:
        return f'href="{anchor}"'
    place = PLACE.fullmatch(target)
    if place is not None and place[2] in names(place[1] or folder):
        return f'href="/{place[1] or folder}/{place[2]}{anchor}"'
    return f'href="#" title="{target}"'
