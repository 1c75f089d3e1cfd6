"""Builds the documentation as a site; as mkdocs' hook it adds the pages outside of docs/.

``python scripts/website.py DIR`` builds it into a directory; without one it is built only to check it. Places in the
site are those of the repository, so that one link is right in both. `mkdocs.yml` has the rest.
"""

from __future__ import annotations

import logging
import posixpath
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from pinchpoint.project import URL

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "mkdocs.yml"
OUTSIDE = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
"""Pages at the top of the repository."""
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


def runbooks() -> list[str]:
    """Return the paths of all runbooks, without their overview."""
    return sorted(f"runbooks/{path.name}" for path in (ROOT / "runbooks").glob("*.md") if path.name != "README.md")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put every runbook below the overview of runbooks in the navigation."""
    for section in config.nav or []:
        if "Runbooks" in section:
            section["Runbooks"] = ["runbooks/README.md", *runbooks()]
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Give each page its path in the repository: docs/ below `docs/`, and the pages outside of it."""
    documents = [file for file in files if file.src_dir == config.docs_dir]
    for file in documents:
        files.remove(file)
    places = [f"docs/{file.src_uri}" for file in documents]
    for place in [*places, *OUTSIDE, "runbooks/README.md", *runbooks()]:
        files.append(File.generated(config, place, abs_src_path=str(ROOT / place)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to source files to the repository if its address is known; else leave only their words."""

    def linked(found: re.Match[str]) -> str:
        text, target = found.groups()
        place = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), target))
        if "://" in target or files.get_file_from_path(place) or not (ROOT / place).exists():
            return found[0]
        return f"[{text}]({config.repo_url.rstrip('/')}/blob/HEAD/{place})" if config.repo_url else text

    return LINK.sub(linked, markdown)


def make(directory: str, **settings: Any) -> None:
    """Build the site; settings are mkdocs' own, and win over mkdocs.yml.

    Logs what is wrong with pages, links and anchors, and then raises mkdocs' Abort, which is a SystemExit.
    """
    config = load_config(str(CONFIG), site_dir=directory, **{"repo_url": URL or None, **settings})
    config.plugins.on_startup(command="build", dirty=False)
    build(config)


if __name__ == "__main__":
    logging.basicConfig(format="%(levelname)s: %(message)s")
    if len(sys.argv) > 1:
        make(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as scratch:
            make(scratch)
