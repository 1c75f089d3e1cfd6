"""A page of the documentation as text for a terminal: headings, lists, tables and code."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO, TextIOWrapper
from typing import ClassVar

from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.text import Text

from pinchpoint.text import printable

__all__ = ["rendered"]

CODE_INDENT = "    "
UNDERLINES = {"h1": "═", "h2": "─"}
"""Characters below the two uppermost levels of headings, so that plain text has them too."""


class _Heading(Heading):
    """A heading at the left."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.text.plain, style="bold")
        if self.tag in UNDERLINES:
            line = UNDERLINES[self.tag] if console.encoding.startswith("utf") else "-"
            yield Text(line * min(self.text.cell_len, options.max_width), style="bold")


class _Code(CodeBlock):
    """A block of code that can be copied: its lines are indented, and neither wrapped nor cut."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in str(self.text).rstrip("\n").split("\n"):
            yield Text(f"{CODE_INDENT}{line}" if line else "", style="cyan", no_wrap=True, overflow="ignore")


class _Page(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
    }


def rendered(page: str, columns: int, *, colour: bool, encoding: str = "utf-8") -> str:
    """Return a page that is `columns` wide, as text for a terminal; with escape sequences only if `colour` is set.

    A link to another page is reduced to its words, and a picture to its description.
    """
    clean = "\n".join(printable(line.expandtabs(8)) for line in page.split("\n"))
    markdown = _Page(clean, hyperlinks=False)
    for token in markdown.parsed:
        if token.children:
            token.children = list(_outward(token.children))
    console = Console(
        width=columns, force_terminal=colour, color_system="standard" if colour else None, highlight=False,
        legacy_windows=False, file=TextIOWrapper(BytesIO(), encoding),
    )  # fmt: skip
    with console.capture() as captured:
        console.print(markdown, crop=False)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().strip("\n").split("\n"))


def _outward(tokens: list[Token]) -> Iterator[Token]:
    """Yield the tokens of a line without the links that lead to other files, and without comments."""
    kept = True
    for token in tokens:
        if token.type == "link_open":
            kept = "://" in str(token.attrGet("href"))
        if token.type == "html_inline" or (token.type in ("link_open", "link_close") and not kept):
            continue
        if token.type == "image":
            token = Token("text", "", 0, content=token.content)
        yield token
