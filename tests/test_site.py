"""The documentation as a site: complete, without a broken link, and without a request to another host."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

import website

ROOT = website.ROOT
HOOK = str(ROOT / "scripts" / "website.py")
PLACES = [path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("docs/*.md"), *ROOT.glob("runbooks/*.md")]]
OUTSIDE = re.compile(
    r"""(?:\bsrc|\bsrcset|\bposter|\bdata)=["']?(?:https?:)?//|<link\b[^>]*\bhref=["']?(?:https?:)?//"""
)
"""What makes a browser request a script, style, font or picture from another host; a clickable link does not."""
SHEET = re.compile(r"""url\(["']?(?:https?:)?//|@import\s+["'](?:https?:)?//""")
"""The same in a style sheet."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    website.make(str(directory))
    return directory


def html(site: Path, place: str) -> str:
    """Return the text of the page for a file of the repository, without the frame that every page has."""
    path = site / re.sub(r"README\.md$", "index.html", place).replace(".md", ".html")
    return path.read_text().partition("<article")[2].partition("</article>")[0]


def listed(nav: Any) -> Iterator[str]:
    """Yield the paths in a navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from listed(entry)


def test_every_page_and_every_runbook_is_in_the_navigation_once() -> None:
    config = website.on_config(load_config(str(website.CONFIG)))

    assert Counter(listed(config.nav)) == Counter([*PLACES, *website.OUTSIDE])


def test_every_page_of_the_navigation_is_built(site: Path) -> None:
    assert [place for place in [*PLACES, *website.OUTSIDE] if "<h1" not in html(site, place)] == []


@pytest.mark.parametrize("place", [*PLACES, *website.OUTSIDE])
def test_a_page_has_the_parts_that_it_has_in_the_repository(site: Path, place: str) -> None:
    """Python-Markdown and CommonMark differ: a list may need an empty line before it, or four spaces of indent."""
    plain = MarkdownIt("commonmark").enable("table").render((ROOT / place).read_text())
    built = html(site, place)

    for part in ("h1", "h2", "h3", "p", "ol", "ul", "li", "pre", "code", "tr", "img"):
        assert len(re.findall(f"<{part}[ >]", built)) == len(re.findall(f"<{part}[ >]", plain)), part


def test_nothing_is_asked_of_another_host(site: Path) -> None:
    pages = [path for path in site.rglob("*.html") if OUTSIDE.search(path.read_text())]
    sheets = [path for kind in ("css", "svg") for path in site.rglob(f"*.{kind}") if SHEET.search(path.read_text())]

    assert pages + sheets == []
    assert OUTSIDE.search('<link rel="stylesheet" href="https://fonts.example/x.css">')


BROKEN = {
    "none.md": "'docs/none.md' is not found",
    "verdict.md#none": "does not contain an anchor '#none'",
    "../runbooks/DiskSaturated.md#none": "does not contain an anchor '#none'",
    "../CONTRIBUTING.md#none": "does not contain an anchor '#none'",
    "../exporter/none.py": "'exporter/none.py' is not found",
    "/docs/verdict.md": "absolute link",
}


def test_a_broken_link_fails_the_build(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    links = "".join(f"\n\n[link]({link})" for link in BROKEN)

    with pytest.raises(Abort, match=f"{len(BROKEN)} warnings"):
        website.make(str(tmp_path / "site"), hooks=[adding(tmp_path, links), HOOK])

    assert [
        link for link, problem in BROKEN.items() if f"'{link}'" not in caplog.text or problem not in caplog.text
    ] == []


def test_a_link_to_a_source_file_leads_to_the_repository_where_that_is_known(site: Path, tmp_path: Path) -> None:
    made = tmp_path / "site"
    website.make(str(made), repo_url="https://git.example/pinchpoint/")
    link = '<a href="https://git.example/pinchpoint/blob/HEAD/exporter/pinchpoint/waits/waits.toml">'

    assert f"{link}<code>waits.toml</code></a>" in html(made, "docs/verdict.md")
    assert "<code>waits.toml</code>" in html(site, "docs/verdict.md")
    assert "waits.toml</code></a>" not in html(site, "docs/verdict.md")


def adding(directory: Path, text: str) -> str:
    """Return the path of a hook that adds text to a page."""
    path = directory / "adding.py"
    path.write_text(
        "def on_page_markdown(markdown, *, page, config, files):\n"
        f"    return markdown + {text!r} if page.file.src_uri == 'docs/judge.md' else markdown\n"
    )
    return str(path)
