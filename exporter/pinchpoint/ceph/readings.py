"""What readers of daemons have in common: the options in force, and the messages that came and went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from pinchpoint.ceph.asok import Question
from pinchpoint.ceph.perf import PerfDump, parse_option
from pinchpoint.metrics import CEPH_MESSAGES, CEPH_MESSENGER_SECONDS, CEPH_OPTION_DAEMONS
from pinchpoint.model import Point

__all__ = ["PERF", "Messages", "Options", "asked", "option_points"]


PERF = Question("perf dump")
OPTION_INTERVAL_SECONDS = 60.0
"""Seconds between two reads of an option that does not change during a run."""
MAX_OPTION = float(1 << 64)
"""No option is larger (src/common/options.h: TYPE_SIZE is 64 bits)."""
MAX_VALUE_CHARACTERS = 128
"""Characters of an option's value that are shown."""


def asked(names: tuple[str, ...], every: float = OPTION_INTERVAL_SECONDS) -> tuple[Question, ...]:
    """Return the questions for options."""
    return tuple(Question("config get", name, every) for name in names)


class Options:
    """The options in a daemon's last answers, without those that its release does not know."""

    def __init__(self, questions: tuple[Question, ...]) -> None:
        self._questions = tuple(question for question in questions if question.prefix == "config get")
        self._values: dict[str, str] = {}

    def take(self, answers: Mapping[str, bytes]) -> None:
        """Take what came of this round's answers. Raises FormatError."""
        for question in self._questions:
            if (raw := answers.get(question.key)) is not None and (value := parse_option(raw)) is not None:
                self._values[question.var] = value

    def limit(self, name: str) -> float | None:
        """Return an option that limits something; None if it is unknown, not a number, or not above 0: no limit."""
        try:
            number = float(self._values.get(name, ""))
        except ValueError:
            return None
        return number if 0 < number <= MAX_OPTION else None

    def items(self) -> Iterator[tuple[str, str]]:
        """Yield every option and its value, defaults and empty ones too: a comparison needs to know them."""
        for name, value in self._values.items():
            yield name, value[:MAX_VALUE_CHARACTERS]


def option_points(type_: str, daemons: Iterable[Options]) -> Iterator[Point]:
    """Yield how many daemons have each option at each value: a host's daemons mostly agree, so series are few."""
    for (option, value), number in Counter(item for options in daemons for item in options.items()).items():
        yield CEPH_OPTION_DAEMONS.point(number, type_, option, value)


class Messages:
    """The messages of all network threads of one daemon, and their time (class Worker, src/msg/async/Stack.h)."""

    DIRECTIONS = (("received", "msgr_recv_messages"), ("sent", "msgr_send_messages"))
    WORK = (
        ("receive", "msgr_running_recv_time"),
        ("dispatch", "msgr_running_fast_dispatch_time"),
        ("send", "msgr_running_send_time"),
    )
    QUEUE = "msgr_send_messages_queue_lat"
    """From the moment a message is given to the messenger until it is written to its socket; since Ceph 16."""

    def __init__(self) -> None:
        self._totals: dict[str, float] = {}
        self._seconds: dict[str, float] = {}

    def take(self, dump: PerfDump) -> None:
        """Sum the workers."""
        workers = dump.loggers("AsyncMessenger::Worker-")
        for totals, names in ((self._totals, self.DIRECTIONS), (self._seconds, self.WORK)):
            for name, counter in names:
                counts = [count for worker in workers if (count := dump.value(worker, counter)) is not None]
                if counts:
                    totals[name] = sum(counts)
        queues = [queue.total for worker in workers if (queue := dump.average(worker, self.QUEUE)) is not None]
        if queues:
            self._seconds["queue"] = sum(queues)

    def points(self, daemon: str) -> Iterator[Point]:
        """Yield one series for each direction, and one for each part of the time."""
        for direction, total in self._totals.items():
            yield CEPH_MESSAGES.point(total, daemon, direction)
        for step, seconds in self._seconds.items():
            yield CEPH_MESSENGER_SECONDS.point(seconds, daemon, step)
