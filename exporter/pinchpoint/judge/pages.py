"""Runbooks and documentation as pages of the judge: available even without internet access."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

from pinchpoint.expressions import expression
from pinchpoint.pages import FOLDERS, names, text

__all__ = ["page"]

NAME = expression(r"[A-Za-z0-9]+")
PLACE = expression(r"(?:\.\./)?(?:(runbooks|docs)/)?([A-Za-z0-9]+)\.md")


def page(folder: str, name: str) -> str | None:
    """Return a page as HTML; None if there is none of that name, which anybody may have made up."""
    if folder not in FOLDERS or not NAME.fullmatch(name) or name not in names(folder):
        return None
    return _rendered(folder, name)


@cache
def _rendered(folder: str, name: str) -> str:
    # Without HTML in the text: the pages are ours, and need none.
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text(folder, name))
    for token, inner in pairwise(tokens):
        if token.type == "heading_open":
            token.attrSet("id", _anchor(inner))
    for token in tokens:
        _relink(folder, token.children or ())
    found: str = parser.renderer.render(tokens, parser.options, {})
    return found


def _anchor(heading: Token) -> str:
    """Return the anchor of a heading as used by links in a repository."""
    words = "".join(token.content for token in heading.children or ()).lower()
    return "".join(letter for letter in words if letter.isalnum() or letter in "_- ").replace(" ", "-")


def _relink(folder: str, tokens: Iterable[Token]) -> None:
    """Point links at the judge's pages; reduce pictures and links to anything else to their words."""
    gone = False
    for token in tokens:
        if token.type == "link_open":
            address = _address(folder, str(token.attrGet("href")))
            token.attrSet("href", address)
            gone = not address
        if token.type == "image" or (gone and token.type in ("link_open", "link_close")):
            token.type = "text"


def _address(folder: str, target: str) -> str:
    """Return the judge's address for a link in a page of `folder`; empty if there is none."""
    path, mark, anchor = target.partition("#")
    if not path or "://" in path:
        return target
    place = PLACE.fullmatch(path)
    if place is None or place[2] not in names(place[1] or folder):
        return ""
    return f"/{place[1] or folder}/{place[2]}{mark}{anchor}"
