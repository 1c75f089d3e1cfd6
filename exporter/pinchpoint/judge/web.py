"""The judge's HTTP side: verdicts for people, for programs and for Prometheus, and the runbooks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from prometheus_client import make_wsgi_app

from pinchpoint import __version__
from pinchpoint.exposition import registry
from pinchpoint.judge import runbooks
from pinchpoint.judge.metrics import METRICS
from pinchpoint.judge.service import Service
from pinchpoint.report.palette import KINDS, WAIT_WORDS, wait_colour
from pinchpoint.report.words import printable
from pinchpoint.web import Application, StartResponse, get_only

__all__ = ["application"]

HTML = "text/html"
RUNBOOKS = "/runbooks/"
NOWHERE = "not here: see /, /metrics, /api/v1/verdicts, /runbooks/\n"


def application(service: Service) -> Application:
    """Return the WSGI application."""
    exposition = make_wsgi_app(registry(service.points, METRICS), disable_compression=True)
    pages = _Pages()

    def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path == "/metrics":
            return exposition(environ, start_response)  # type: ignore[no-any-return]
        status, kind, body = "200 OK", HTML, ""
        said = service.said
        if path == "/":
            body = pages.verdicts(service)
        elif path == "/api/v1/verdicts":
            kind, body = "application/json", json.dumps(said.to_json())
        elif path == "/-/healthy":
            kind = "text/plain"
            if abs(time.time() - said.time) > service.patience:
                status, body = "503 Service Unavailable", f"no round for {service.patience:g} s\n"
            else:
                body = "The judge is healthy.\n"
        elif path.rstrip("/") == RUNBOOKS.rstrip("/"):
            body = pages.runbooks()
        elif path.startswith(RUNBOOKS) and (text := runbooks.page(path.removeprefix(RUNBOOKS).removesuffix(".md"))):
            body = pages.runbook(path.removeprefix(RUNBOOKS), text)
        else:
            status, kind, body = "404 Not Found", "text/plain", NOWHERE
        start_response(status, [("Content-Type", f"{kind}; charset=utf-8"), ("Cache-Control", "no-store")])
        return [body.encode("utf-8", "replace")]

    return get_only(app)


class _Pages:
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
        self._runbook = environment.get_template("runbook.html.j2")

    def verdicts(self, service: Service) -> str:
        said = service.said
        return self._verdicts.render(
            said=said,
            now=time.time(),
            version=__version__,
            kinds=KINDS,
            wait_words=WAIT_WORDS,
            wait_colour=wait_colour,
            runbooks=frozenset(runbooks.names()),
            phases=list(said.phases)[:-21:-1],
        )

    def runbook(self, name: str, text: str) -> str:
        return self._runbook.render(title=name, text=Markup(text), names=())

    def runbooks(self) -> str:
        return self._runbook.render(title="Runbooks", text="", names=runbooks.names())
