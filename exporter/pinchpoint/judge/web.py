"""The judge's HTTP side: verdicts for people, for programs and for Prometheus, runbooks and documentation."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pinchpoint import __version__, pages
from pinchpoint.judge.pages import page
from pinchpoint.judge.service import Service
from pinchpoint.report.palette import KINDS, WAIT_WORDS, wait_colour
from pinchpoint.report.words import chain_text, waterfall_bars, waterfall_text
from pinchpoint.text import printable
from pinchpoint.wire.guard import Application, StartResponse, exposure
from pinchpoint.wire.http import exposition, get_only

__all__ = ["application"]

HTML = "text/html"
NOWHERE = "not here: see /, /metrics, /api/v1/verdicts, /runbooks/, /docs/\n"


def application(service: Service) -> Application:
    """Return the WSGI application."""
    exposed = exposition(service.points)
    html = _Html()

    def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path == "/metrics":
            return exposed(environ, start_response)
        status, kind, body = "200 OK", HTML, ""
        said = service.said
        if path == "/":
            body = html.verdicts(service, exposure(environ))
        elif path == "/api/v1/verdicts":
            kind, body = "application/json", json.dumps(said.to_json())
        elif path == "/-/healthy":
            kind = "text/plain"
            if not service.healthy:
                status, body = "503 Service Unavailable", f"no round for {service.patience:g} s\n"
            else:
                body = "The judge is healthy.\n"
        elif (found := html.page(path)) is not None:
            body = found
        else:
            status, kind, body = "404 Not Found", "text/plain", NOWHERE
        start_response(status, [("Content-Type", f"{kind}; charset=utf-8"), ("Cache-Control", "no-store")])
        return [body.encode("utf-8", "replace")]

    return get_only(app)


class _Html:
    """The pages, from templates: every text that is not ours is escaped."""

    def __init__(self) -> None:
        environment = Environment(
            loader=PackageLoader("pinchpoint.judge", "."),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters["printable"] = printable
        self._verdicts = environment.get_template("verdicts.html.j2")
        self._page = environment.get_template("page.html.j2")

    def verdicts(self, service: Service, exposure: str) -> str:
        said = service.said
        return self._verdicts.render(
            said=said,
            exposure=exposure,
            now=time.time(),
            version=__version__,
            kinds=KINDS,
            wait_words=WAIT_WORDS,
            wait_colour=wait_colour,
            chain_text=chain_text,
            waterfall_text=waterfall_text,
            waterfall_bars=waterfall_bars,
            runbooks=frozenset(pages.names("runbooks")),
            phases=list(said.phases)[:-21:-1],
        )

    def page(self, path: str) -> str | None:
        """Return the page of a runbook or of the documentation, or a list of them; None if there is none."""
        folder, _, name = path.removeprefix("/").removesuffix(".md").partition("/")
        if folder not in pages.FOLDERS:
            return None
        if not name:
            return self._rendered(folder, pages.FOLDERS[folder], "", pages.names(folder))
        text = page(folder, name)
        if text is None:
            return None
        return self._rendered(folder, name, Markup(text), ())

    def _rendered(self, folder: str, title: str, text: str, names: Sequence[str]) -> str:
        return self._page.render(folder=folder, folders=pages.FOLDERS, title=title, text=text, names=names)
