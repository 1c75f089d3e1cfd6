"""Grafana's HTTP API, as far as dashboards need it: a folder, a data source, the dashboards themselves.

Requests and answers are those of docs/sources/developers/http_api of Grafana 12: dashboard.md, folder.md and
data_source.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from pinchpoint.grafana import FOLDER_TITLE, Board
from pinchpoint.typedjson import decoder
from pinchpoint.wire.fetch import Fetcher, FetchError

__all__ = ["MIN_VERSION", "Change", "GrafanaApi", "GrafanaError", "install"]

MIN_VERSION = 12
"""The oldest release that shows the dashboards as they are meant."""
UNSEEN = (401, 403, 404)
"""Statuses of a list that the token may not see, or that this release does not have."""

T = TypeVar("T")


class GrafanaError(Exception):
    """Grafana did not do what was asked; the message says what and why."""


class Change(NamedTuple):
    """What became of one object."""

    what: str
    done: str
    """"created", "updated", "as before", or what would become of it."""


class _Health(msgspec.Struct):
    version: str = ""


class _Folder(msgspec.Struct):
    title: str = ""


class _Meta(msgspec.Struct, rename="camel"):
    folder_uid: str = ""
    provisioned: bool = False


class _Dashboard(msgspec.Struct):
    revision: Any = None


class _Found(msgspec.Struct):
    dashboard: _Dashboard
    meta: _Meta


class _Problem(msgspec.Struct):
    message: str = ""


class _Listed(msgspec.Struct):
    type: str = ""


HEALTH, FOLDER, FOUND, PROBLEM = decoder(_Health), decoder(_Folder), decoder(_Found), decoder(_Problem)
SOURCE, SOURCES = decoder(dict[str, Any]), decoder(list[_Listed])


class GrafanaApi:
    """A Grafana at an address."""

    def __init__(self, fetcher: Fetcher, url: str) -> None:
        self._fetcher = fetcher
        self._url = url.rstrip("/")

    def release(self) -> int | None:
        """Return the number of its release, 12 for 12.3.1; None if it does not say. Raises GrafanaError."""
        found = self._get("/api/health", HEALTH)
        number = "" if found is None else found.version.partition(".")[0]
        return int(number) if number.isascii() and number.isdigit() and len(number) < 4 else None

    def folder_exists(self, uid: str) -> bool:
        """Return whether there is a folder. Raises GrafanaError."""
        return self._get(f"/api/folders/{uid}", FOLDER) is not None

    def make_folder(self, uid: str, title: str) -> None:
        """Make a folder. Raises GrafanaError."""
        self._send("POST", "/api/folders", {"uid": uid, "title": title})

    def source(self, uid: str) -> dict[str, Any] | None:
        """Return a data source. Raises GrafanaError."""
        return self._get(f"/api/datasources/uid/{uid}", SOURCE)

    def has_prometheus(self) -> bool | None:
        """Return whether it has a data source for Prometheus; None if that may not be seen. Raises GrafanaError."""
        found = self._get("/api/datasources", SOURCES, UNSEEN)
        return None if found is None else any("prometheus" in source.type for source in found)

    def write_source(self, source: Mapping[str, Any], *, exists: bool) -> None:
        """Make or change a data source. Raises GrafanaError."""
        if exists:
            self._send("PUT", f"/api/datasources/uid/{source['uid']}", source)
        else:
            self._send("POST", "/api/datasources", source)

    def board(self, uid: str) -> _Found | None:
        """Return what it has of a dashboard. Raises GrafanaError."""
        return self._get(f"/api/dashboards/uid/{uid}", FOUND)

    def write_board(self, board: Board, folder_uid: str, message: str) -> None:
        """Make or replace a dashboard; `message` is for its list of versions. Raises GrafanaError."""
        document = {"dashboard": {**board.document, "id": None}, "folderUid": folder_uid}
        self._send("POST", "/api/dashboards/db", {**document, "overwrite": True, "message": message})

    def _get(self, path: str, decode: msgspec.json.Decoder[T], absent: Collection[int] = (404,)) -> T | None:
        """Return an answer; None if its status is one of `absent`. Raises GrafanaError."""
        try:
            return decode.decode(self._fetcher.get(self._url + path))
        except FetchError as error:
            if error.status in absent:
                return None
            raise GrafanaError(_said(error)) from error
        except (ValueError, RecursionError) as error:
            raise GrafanaError(f"not an answer of Grafana: {error}") from error

    def _send(self, method: str, path: str, document: Mapping[str, Any]) -> None:
        try:
            self._fetcher.send(method, self._url + path, msgspec.json.encode(document))
        except FetchError as error:
            raise GrafanaError(_said(error)) from error


def _said(error: FetchError) -> str:
    """Return an error with what Grafana says about it."""
    try:
        message = PROBLEM.decode(error.body).message
    except (ValueError, RecursionError):
        message = ""
    return f"{error}: {message}" if message else str(error)


def install(
    api: GrafanaApi,
    boards: Iterable[Board],
    *,
    folder_uid: str,
    source: Mapping[str, Any] | None,
    message: str,
    dry_run: bool,
) -> Iterator[Change]:
    """Bring a folder, a data source (None: none) and dashboards into a Grafana; yield what becomes of each.

    What is already there stays as it is, so that a second time changes nothing; with `dry_run` nothing is changed at
    all. Raises GrafanaError.
    """
    create, update = ("would be created", "would be updated") if dry_run else ("created", "updated")
    what = f"folder {folder_uid}"
    exists = api.folder_exists(folder_uid)
    if not exists and not dry_run:
        api.make_folder(folder_uid, FOLDER_TITLE)
    yield Change(what, "as before" if exists else create)
    if source is not None:
        yield _install_source(api, source, create, update, dry_run=dry_run)
    for board in boards:
        what = f"dashboard {board.title}"
        found = api.board(board.uid)
        if found is not None and found.meta.provisioned:
            raise GrafanaError(f"{what} is provisioned from a file on Grafana's host: change or remove that file")
        if found and (found.dashboard.revision, found.meta.folder_uid) == (board.revision, folder_uid):
            yield Change(what, "as before")
            continue
        if not dry_run:
            api.write_board(board, folder_uid, message)
        yield Change(what, update if found else create)


def _install_source(api: GrafanaApi, source: Mapping[str, Any], create: str, update: str, *, dry_run: bool) -> Change:
    what = f"data source {source['name']}"
    found = api.source(source["uid"])
    if found is None:
        if not dry_run:
            api.write_source(source, exists=False)
        return Change(what, create)
    # What an administrator has added, such as a password or an Alertmanager, stays.
    kept = found.get("jsonData")
    settings = {**(kept if isinstance(kept, dict) else {}), **source["jsonData"]}
    wanted = {**found, **{name: source[name] for name in ("uid", "type", "access", "url")}, "jsonData": settings}
    if wanted == found:
        return Change(what, "as before")
    if found.get("readOnly") is True:
        raise GrafanaError(f"{what} is provisioned from a file on Grafana's host: change that file")
    if not dry_run:
        api.write_source(wanted, exists=True)
    return Change(what, update)
