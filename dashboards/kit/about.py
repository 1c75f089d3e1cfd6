"""What a panel says about itself, and links to pages and dashboards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pinchpoint.rules import PAGES

__all__ = ["TAG", "About", "board_link", "describe", "page"]


TAG = "pinchpoint"


@dataclass(frozen=True)
class About:
    """What a panel shows, what good and bad look like, and which pages to read next.

    `pages` are names of runbooks, or paths of other pages from the root of this repository.
    """

    shows: str
    good: str
    bad: str
    pages: Sequence[str]


def page(name: str) -> str:
    """Return the URL of a page, given the name of a runbook or the path of any other page."""
    return PAGES + (name if "/" in name else f"runbooks/{name}.md")


def describe(about: About) -> str:
    """Return the description of a panel, in Markdown."""
    links = ", ".join(f"[{name.rpartition('/')[2].removesuffix('.md')}]({page(name)})" for name in about.pages)
    return f"{about.shows}\n\n**Good:** {about.good}\n\n**Bad:** {about.bad}\n\n**Read on:** {links}"


def board_link(name: str, host: str = "${host:queryparam}", time: str = "${__url_time_range}") -> str:
    """Return a link to a dashboard that keeps data source and run, and hosts and time unless others are given."""
    return f"/d/{TAG}-{name}?" + "&".join(filter(None, ("${datasource:queryparam}", host, "${run:queryparam}", time)))
