"""Does what mdtest does with one rank, limited to 1,000 operations a second so that its phases can be seen.

It takes `-F -n N -d DIRECTORY` and prints what mdtest 4.1.0+dev does (src/mdtest.c).
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable

from imitation import become, say

RATE = 1000
HELD = 0.8
"""Share of an operation's time for which its file is open: looks twice a second have to meet it."""


def rate_of(items: int, operation: Callable[[int], None]) -> float:
    """Do an operation for each item; return the operations per second."""
    began = time.monotonic()
    for item in range(items):
        operation(item)
        time.sleep(max(0.0, began + (item + 1) / RATE - time.monotonic()))
    return items / (time.monotonic() - began)


def main() -> None:
    """Run."""
    arguments = become("mdtest")
    options = dict(itertools.pairwise(arguments))
    items, root = int(options["-n"]), options["-d"]
    tree = f"{root}/test-dir.0-0/mdtest_tree.0"
    now = time.strftime("%m/%d/%Y %H:%M:%S")
    say(f"-- started at {now} --\n\nmdtest-4.1.0+dev was launched with 1 total task(s) on 1 node(s)")
    words = " ".join(f"'{word}'" for word in arguments)
    say(f"Command line used: mdtest {words}\nPath                : {root}\n1 tasks, {items} files\n")

    def named(item: int) -> str:
        return f"{tree}/file.mdtest.0.{item}"

    def create(item: int) -> None:
        descriptor = os.open(named(item), os.O_CREAT | os.O_RDWR, 0o664)
        os.write(descriptor, b"x" * 3901)
        time.sleep(HELD / RATE)
        os.close(descriptor)

    def read(item: int) -> None:
        descriptor = os.open(named(item), os.O_RDONLY)
        os.read(descriptor, 3901)
        time.sleep(HELD / RATE)
        os.close(descriptor)

    os.makedirs(tree)
    operations: list[tuple[str, Callable[[int], object]]] = [
        ("creation", create),
        ("stat", lambda item: os.stat(named(item))),
        ("read", read),
        ("removal", lambda item: os.unlink(named(item))),
    ]
    rates = [(name, rate_of(items, lambda item, act=act: act(item))) for name, act in operations]  # type: ignore[misc]
    say("SUMMARY rate (in ops/sec): (of 1 iterations)")
    say("   Operation                     Max            Min           Mean        Std Dev")
    say("   ---------                     ---            ---           ----        -------")
    for name, rate in rates:
        say(f"   File {name:<18}{rate:>14.3f} {rate:>14.3f} {rate:>14.3f} {0:>14.3f}")
    os.removedirs(tree)
    say(f"-- finished at {now} --")


if __name__ == "__main__":
    main()
