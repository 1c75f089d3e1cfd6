from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pinchpoint.commands.stacks import MAX_LISTED_STACKS, listing
from pinchpoint.waits.stack_rules import Stacks, load_waits


def seen(*stacks: tuple[str, int, bool]) -> Stacks:
    """Return stacks with the number of times each was seen, and whether a thread slept in it."""
    found = Stacks(load_waits())
    for frames, times, slept in stacks:
        raw = "".join(f"[<0>] {frame}+0x1/0x9\n" for frame in frames.split(" < ")).encode()
        for _ in range(times):
            found.look(raw, 1.0).slept = slept
    return found


def listed(stacks: Stacks, before: dict[tuple[str, ...], int] | None = None) -> str:
    return "\n".join(listing(stacks, before or {}, "stack", "6.18.44"))


def test_each_stack_has_its_share_and_its_class() -> None:
    text = listed(seen(("submit_bio_wait < ext4_sync_file", 3, False), ("hrtimer_nanosleep", 1, False)))

    assert "4 looks (stack)" in text
    assert "  75%  disk                       submit_bio_wait < ext4_sync_file" in text
    assert "  25%  parked (no class)" in text
    assert "is known to a rule" in text


def test_a_stack_that_no_rule_knows_is_listed_with_the_rule_that_lacks() -> None:
    text = listed(seen(("submit_bio_wait", 1, False), ("zyx_wait < zyx_read", 3, True)))

    assert "No rule knows" in text
    assert "  75%  other                      zyx_wait < zyx_read" in text
    assert '  frames = "zyx_wait"' in text
    assert '  seen = "6.18.44"' in text


def test_the_rule_that_is_offered_can_be_used(tmp_path: Path) -> None:
    text = listed(seen(("zyx_wait < zyx_read", 1, True)))
    own = tmp_path / "own.toml"
    own.write_text("\n".join(line.strip() for line in text.partition("package):\n")[2].splitlines()))

    assert load_waits(own).decide(("zyx_wait", "zyx_read")) == "disk"


def test_a_stack_of_a_thread_that_ran_is_no_unknown_one() -> None:
    assert "No rule knows" not in listed(seen(("submit_bio_wait", 1, False), ("do_unlinkat_work", 3, False)))


def test_only_what_was_seen_since_the_last_listing_counts() -> None:
    stacks = seen(("submit_bio_wait", 3, False), ("hrtimer_nanosleep", 2, False))

    assert listed(stacks, {("submit_bio_wait",): 3, ("hrtimer_nanosleep",): 1}).count("%") == 1


def test_a_listing_is_bounded() -> None:
    stacks = seen(*((f"futex_{number}", 1, False) for number in range(3 * MAX_LISTED_STACKS)))

    assert listed(stacks).count("%") == MAX_LISTED_STACKS


def test_without_a_benchmark_that_is_what_is_said() -> None:
    assert listed(seen()) == "No thread of a benchmark was seen to wait on this host."


def test_another_hosts_stacks_cannot_be_read() -> None:
    command = [sys.executable, "-m", "pinchpoint", "watch", "--stacks", "--target", "x:1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "run it there, without --target" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_listing_of_this_host_works_once() -> None:
    command = [sys.executable, "-m", "pinchpoint", "watch", "--stacks", "--once"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("No thread of a benchmark", "What threads of benchmarks"))
