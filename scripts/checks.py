"""Writes the table of docs/check.md from what `pinchpoint check` looks at.

`make docs` runs it; a test compares, so that the table does not get stale.
"""

from __future__ import annotations

from pathlib import Path

from pinchpoint.diagnosis.findings import all_checks

PAGE = Path(__file__).parent.parent / "docs" / "check.md"
BEGIN, END = "<!-- checks: made by `make docs` -->\n", "<!-- end of checks -->"


def table() -> str:
    """Return the table in Markdown, in the order in which findings are shown."""
    lines = ["| check | what | level | finds | from | harmless | read |", "|---|---|---|---|---|---|---|"]
    for name, check in all_checks().items():
        source = ", ".join(f"`{metric}`" for metric in check.source)
        page = f"[{check.runbook}](../runbooks/{check.runbook}.md)" if check.runbook else f"[below](#{name})"
        when = check.when.format_map(check.fields())
        harmless = (check.harmless or "never").format_map(check.fields())
        lines.append(
            f"| {name} | {check.what} | {check.level} | {_cell(when)} | {source} | {_cell(harmless)} | {page} |"
        )
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def updated(text: str) -> str:
    """Return the page's text with its table made anew."""
    head, found, rest = text.partition(BEGIN)
    if not found or END not in rest:
        raise SystemExit(f"{PAGE}: no section between {BEGIN.strip()} and {END}")
    return head + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
