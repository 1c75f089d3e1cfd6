"""A Grafana as its HTTP API describes it (docs/sources/developers/http_api of 12.3), for as much as installing asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from serving import QuietHandler, handled

__all__ = ["Grafana", "grafana"]


@dataclass
class Grafana:
    """What it has."""

    token: str = "secret"
    version: str = "12.3.0"
    folders: dict[str, dict[str, Any]] = field(default_factory=dict)
    sources: dict[str, dict[str, Any]] = field(default_factory=dict)
    boards: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By UID: the document, its folder and whether a file provisions it."""
    written: list[str] = field(default_factory=list)
    """Method and path of each request that changed something."""
    url: str = ""

    def answer(self, method: str, path: str, token: str, body: Any) -> tuple[int, Any]:
        """Return status and document."""
        if path == "/api/health":
            return 200, {"database": "ok", "version": self.version}
        if token != f"Bearer {self.token}":
            return 401, {"message": "Invalid API key", "statusCode": 401}
        if method != "GET":
            self.written.append(f"{method} {path}")
        match method, path.split("/")[2:]:
            case "GET", ["folders", uid]:
                return self._found(self.folders.get(uid))
            case "POST", ["folders"]:
                if body["uid"] in self.folders:
                    return 409, {"message": "a folder with that UID exists"}
                self.folders[body["uid"]] = body
                return 200, body
            case "GET", ["datasources"]:
                return 200, list(self.sources.values())
            case "GET", ["datasources", "uid", uid]:
                return self._found(self.sources.get(uid))
            case "POST", ["datasources"]:
                self.sources[body["uid"]] = {"id": 1, "orgId": 1, "readOnly": False, "isDefault": False, **body}
                return 200, {"message": "Datasource added"}
            case "PUT", ["datasources", "uid", uid]:
                self.sources[uid] = body
                return 200, {"message": "Datasource updated"}
            case "GET", ["dashboards", "uid", uid]:
                return self._found(self.boards.get(uid))
            case "POST", ["dashboards", "db"]:
                return self._save(body)
        return 404, {"message": "Not found"}

    @staticmethod
    def _found(document: dict[str, Any] | None) -> tuple[int, Any]:
        return (200, document) if document is not None else (404, {"message": "Not found"})

    def _save(self, body: dict[str, Any]) -> tuple[int, Any]:
        document = body["dashboard"]
        if body["folderUid"] not in self.folders:
            return 400, {"message": "folder not found"}
        before = self.boards.get(document["uid"])
        if before and not body.get("overwrite"):
            return 412, {"message": "The dashboard has been changed by someone else", "status": "version-mismatch"}
        version = before["dashboard"]["version"] + 1 if before else 1
        meta = {"folderUid": body["folderUid"], "provisioned": False}
        self.boards[document["uid"]] = {"dashboard": {**document, "id": 7, "version": version}, "meta": meta}
        return 200, {"status": "success", "uid": document["uid"], "version": version}


@contextmanager
def grafana() -> Iterator[Grafana]:
    """Serve an empty Grafana on loopback."""
    found = Grafana()

    class Handler(QuietHandler, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer()

        def do_POST(self) -> None:
            self.answer()

        def do_PUT(self) -> None:
            self.answer()

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            assert body is None or self.headers["Content-Type"] == "application/json"
            status, document = found.answer(self.command, self.path, self.headers.get("Authorization", ""), body)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

    with handled(Handler) as address:
        found.url = f"http://{address}"
        yield found
