"""The runbooks as pages of the judge: they are there also where no network leads outside."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from markdown_it import MarkdownIt

__all__ = ["names", "page"]

NAME = re.compile(r"[A-Za-z0-9]+")
LINK = re.compile(r'href="(?:\.\./)?([A-Za-z0-9/_.-]+)\.md(#[\w-]*)?"')


def _folder() -> Traversable:
    return resources.files("pinchpoint").joinpath("runbooks")


def names() -> list[str]:
    """Return the names of all runbooks."""
    return sorted(
        file.name.removesuffix(".md")
        for file in _folder().iterdir()
        if file.name.endswith(".md") and file.name != "README.md"
    )


@cache
def page(name: str) -> str | None:
    """Return a runbook as HTML; None where there is none of that name."""
    if not NAME.fullmatch(name) or name not in names():
        return None
    text = _folder().joinpath(f"{name}.md").read_text()
    # Without HTML in the text: the pages are ours, and need none.
    found: str = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    return LINK.sub(_link, found)


def _link(match: re.Match[str]) -> str:
    """Return a link to another runbook as one to its page; documentation has none here, and stays as it is called."""
    name = match[1]
    return f'href="/runbooks/{name}{match[2] or ""}"' if NAME.fullmatch(name) else f'href="#" title="{name}.md"'
