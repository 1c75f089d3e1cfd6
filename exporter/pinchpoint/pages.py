"""The runbooks and the documentation, as the package has them."""

from __future__ import annotations

from pinchpoint.expressions import expression
from pinchpoint.shipped import shipped

__all__ = ["COMMANDS", "FOLDERS", "command_for", "names", "summary", "text"]

FOLDERS = {"runbooks": "Runbooks", "docs": "Documentation"}
"""Folders of pages in the package, and their titles."""
COMMANDS = {"runbooks": "runbook", "docs": "docs"}
"""The command of `pinchpoint` that shows the pages of a folder."""
NOT_PROSE = ("#", "<!--", "```", "|")
"""How a heading, a comment, a block of code and a table begin."""
LINK = expression(r"\[([^\[\]]*)\]\([^()]*\)")


def names(folder: str) -> list[str]:
    """Return the names of all pages of one of `FOLDERS`."""
    return sorted(
        file.name.removesuffix(".md")
        for file in shipped(folder).iterdir()
        if file.name.endswith(".md") and file.name != "README.md"
    )


def text(folder: str, name: str) -> str:
    """Return a page, one of `names`, as Markdown."""
    return shipped(folder).joinpath(f"{name}.md").read_text(encoding="utf-8")


def command_for(path: str) -> str:
    """Return the command that shows a page, by its path in the project, such as ``docs/check.md#mtu``."""
    folder, _, page = path.partition("/")
    return f"pinchpoint {COMMANDS[folder]} {page.partition('.md')[0]}"


def summary(page: str) -> str:
    """Return the first paragraph of a page in one line, without the addresses of its links."""
    paragraphs = (" ".join(paragraph.split()) for paragraph in page.split("\n\n"))
    found = next((words for words in paragraphs if words and not words.startswith(NOT_PROSE)), "")
    return LINK.sub(r"\1", found)
