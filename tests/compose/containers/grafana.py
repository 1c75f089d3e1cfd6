"""Stands in for Grafana, which Debian lacks: answers its health check, and writes where Grafana writes."""

from __future__ import annotations

import os
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Health(BaseHTTPRequestHandler):
    """Answers /api/health alone."""

    def do_GET(self) -> None:
        """Answer 200, or 404 elsewhere."""
        self.send_response(200 if self.path == "/api/health" else 404)
        self.end_headers()


if __name__ == "__main__":
    for directory in ("/var/lib/grafana", "/tmp"):
        Path(directory, "written").write_text("")
    HTTPServer(("127.0.0.1", int(os.environ["GRAFANA_PORT"])), Health).serve_forever()
