"""The alert rules for a scrape interval, a job and a runbook location: the files of ``alerts/``, rewritten.

These files are for a scrape every 2 s. Only a few parts depend on that: windows, which need several samples; a ``for``
that has to last as long as its window; the groups' intervals, as nothing is new between two scrapes; sentences that
name the window; and the number of scrapes that ScrapeTooSlow expects.
"""

from __future__ import annotations

import math
import re

from pinchpoint.expressions import expression
from pinchpoint.shipped import shipped

__all__ = [
    "DEFAULT_SCRAPE_INTERVAL_SECONDS",
    "JOB",
    "MAX_SCRAPE_INTERVAL_SECONDS",
    "MIN_SCRAPE_INTERVAL_SECONDS",
    "PAGES",
    "RUNBOOKS",
    "ScrapePace",
    "files",
    "rules",
]

MIN_SCRAPE_INTERVAL_SECONDS, MAX_SCRAPE_INTERVAL_SECONDS = 1, 60
"""Longest scrape interval in seconds: beyond it, a window of four scrapes is longer than most phases."""
DEFAULT_SCRAPE_INTERVAL_SECONDS = 2
"""Scrape interval in seconds that the files are written for."""
JOB = "pinchpoint"
"""The exporters' label ``job`` in them."""
PAGES = "http://127.0.0.1:9749/"
"""Base address of runbooks and documentation: the judge of the local stack serves them."""
RUNBOOKS = f"{PAGES}runbooks/"
"""Prefix of a runbook's address; the page is named after its alert, plus .md."""
WINDOW_SECONDS = 15
"""Window of most rules in seconds."""
MIN_WINDOW_SCRAPES = 4
"""Minimum number of scrapes in a window: `rate` needs two, and one may be lost."""
MIN_BRIDGE_SCRAPES = 2
"""Number of scrapes in a shorter window, which only bridges the gap between two phases."""
MIN_SCRAPED_SHARE = 0.4
"""Share of the scrapes due in a minute (or ten intervals) below which ScrapeTooSlow fires."""

ENDING = ".yml"
RANGE = expression(r"\[(\d+)(s|m)\]")
INTERVAL = expression(r"^(    interval: )(\d+)s$", re.MULTILINE)
AS_LONG = expression(r"\bfor: (\d+)s  # as long as the window$", re.MULTILINE)
LAST = expression(r"\blast(\s+)(\d+) s\b")
SLOW = expression(r'count_over_time\(up\{job="pinchpoint"\}\[1m\]\) < 12')
SLOW_WORDS = expression(r"in the last minute\. The rules look at windows\n( +)of 15 s .{0,200}?made for\.", re.DOTALL)


class ScrapePace:
    """What follows from the scrape interval."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def window(self, seconds: int) -> int:
        """Return the length in seconds of a window that has the given length at the default pace."""
        if self.seconds <= DEFAULT_SCRAPE_INTERVAL_SECONDS:
            return seconds
        return max(seconds, (MIN_WINDOW_SCRAPES if seconds >= WINDOW_SECONDS else MIN_BRIDGE_SCRAPES) * self.seconds)

    def evaluated(self, seconds: int) -> int:
        """Return the seconds between two evaluations of a group that has the given interval at the default pace."""
        return self.seconds if seconds == DEFAULT_SCRAPE_INTERVAL_SECONDS else max(seconds, self.seconds)

    @property
    def counted(self) -> int:
        """Seconds in which scrapes are counted."""
        return max(60, 10 * self.seconds)

    @property
    def least(self) -> int:
        """Scrapes that are enough in that time."""
        return math.ceil(MIN_SCRAPED_SHARE * self.counted / self.seconds)


def files() -> dict[str, str]:
    """Return the text of each file of rules, by its name without ending."""
    folder = shipped("alerts")
    found = {file.name.removesuffix(ENDING): file for file in folder.iterdir() if file.name.endswith(ENDING)}
    return {name: found[name].read_text() for name in sorted(found)}


def _own_anchors(name: str, text: str) -> str:
    """Return a file's text with anchors unique among the files: YAML 1.1 allows a name once per document."""
    return re.sub(r"(?m)^( *\w+: [&*])(\w+)\b", rf"\g<1>{name}_\g<2>", text)


def rules(seconds: int = DEFAULT_SCRAPE_INTERVAL_SECONDS, job: str = JOB, runbooks: str = RUNBOOKS) -> str:
    """Return all rules as one file, for a scrape every so many seconds.

    `job` is the exporters' job in Prometheus. `runbooks` is the base address of runbooks: a judge's
    (``http://judge:9749/runbooks/``) or a folder's, with or without the trailing slash.
    """
    head = f"# Alert rules of Pinchpoint, for a scrape every {seconds} s: made by `pinchpoint rules`.\ngroups:\n"
    made = (_own_anchors(name, _made(text, ScrapePace(seconds), job, runbooks)) for name, text in files().items())
    return head + "".join(text.replace("groups:\n", "", 1) for text in made)


def _made(text: str, pace: ScrapePace, job: str, runbooks: str) -> str:
    if pace.seconds != DEFAULT_SCRAPE_INTERVAL_SECONDS:
        text = SLOW.sub(f'count_over_time(up{{job="{JOB}"}}[{pace.counted}s]) < {pace.least}', text)
        text = SLOW_WORDS.sub(lambda found: _slow_words(pace, found[1]), text)
    text = RANGE.sub(lambda found: _range(pace, int(found[1]) * (60 if found[2] == "m" else 1), found[0]), text)
    text = INTERVAL.sub(lambda found: f"{found[1]}{pace.evaluated(int(found[2]))}s", text)
    text = AS_LONG.sub(lambda found: f"for: {pace.window(int(found[1]))}s", text)
    text = LAST.sub(lambda found: f"last{found[1]}{pace.window(int(found[2]))} s", text)
    text = text.replace(f'job="{JOB}"', f'job="{job}"').replace(f"the job {JOB}:", f"the job {job}:")
    base = runbooks if runbooks.endswith("/") else f"{runbooks}/"
    return text.replace(RUNBOOKS, base)


def _range(pace: ScrapePace, seconds: int, found: str) -> str:
    needed = pace.window(seconds)
    return found if needed == seconds else f"[{needed}s]"


def _slow_words(pace: ScrapePace, indent: str) -> str:
    return (
        f"in the last {pace.counted} s. The rules look at windows\n"
        f"{indent}of {pace.window(WINDOW_SECONDS)} s and are made for a scrape every {pace.seconds} s."
    )
