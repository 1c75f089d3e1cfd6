"""A page in headless Chromium, asked over the browser's debugging pipe."""

from __future__ import annotations

import itertools
import json
import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.cluster import LabError
from patience import patience

__all__ = ["Page", "page"]

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe")
CHUNK = 1 << 16


class Page:
    """A tab. Raises LabError if the browser does not answer.

    Requests and answers are JSON that ends with NUL: Chromium, content/browser/devtools/devtools_pipe_handler.cc.
    """

    def __init__(self, requests: int, answers: int) -> None:
        self._requests = requests
        self._answers = answers
        self._numbers = itertools.count(1)
        self._unread = b""
        self._session: dict[str, str] = {}
        target = self._call("Target.createTarget", url="about:blank")
        attached = self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = {"sessionId": attached["sessionId"]}

    def open(self, url: str) -> None:
        """Go to a page."""
        self._call("Page.navigate", url=url)

    def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression."""
        return self._call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def _call(self, method: str, **parameters: object) -> dict[str, Any]:
        number = next(self._numbers)
        request = {"id": number, "method": method, "params": parameters, **self._session}
        os.write(self._requests, json.dumps(request).encode() + b"\0")
        while (answer := json.loads(self._next())).get("id") != number:
            pass
        if "error" in answer:
            raise LabError(f"{method}: {answer['error']['message']}")
        return dict(answer["result"])

    def _next(self) -> bytes:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._answers], [], [], patience(30))
            if not ready or not (chunk := os.read(self._answers, CHUNK)):
                raise LabError("The browser does not answer.")
            self._unread += chunk
        message, _, self._unread = self._unread.partition(b"\0")
        return message


@contextmanager
def page(chromium: str, profile: Path, width: int, height: int) -> Iterator[Page]:
    """Start a browser of this size, and end it with the block; `profile` is a directory of its own."""
    to_browser, from_browser = os.pipe(), os.pipe()
    command = [chromium, *FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"]
    pipes = f"3<&{to_browser[0]} 4>&{from_browser[1]}"
    with subprocess.Popen(
        ["bash", "-c", f'exec "$@" {pipes}', "bash", *command],
        pass_fds=(to_browser[0], from_browser[1]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as browser:
        for end in (to_browser[0], from_browser[1]):
            os.close(end)
        try:
            yield Page(to_browser[1], from_browser[0])
        finally:
            browser.kill()
            for end in (to_browser[1], from_browser[0]):
                os.close(end)
