from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import causal
from causal import Found, Holder
from polling import until

SPIN = [sys.executable, "-c", "while True: pass"]


@pytest.fixture
def spinning() -> Iterator[int]:
    with subprocess.Popen(SPIN) as process:
        yield process.pid
        process.kill()


def traced(pid: int) -> bool:
    return "TracerPid:\t0\n" not in Path(f"/proc/{pid}/status").read_text()


def test_a_thread_is_held_again_and_again_and_let_go(spinning: int) -> None:
    holder = Holder()
    try:
        holder.begin([spinning], 0.3)
        held, longest = holder.end()
    except OSError as error:
        pytest.skip(f"threads cannot be traced here: {error.strerror}")
    finally:
        holder.close()

    assert held >= longest >= causal.HOLD_SECONDS
    assert not traced(spinning)


def test_a_thread_whose_holder_is_killed_goes_on(spinning: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causal, "HOLD_SECONDS", 600.0)
    holder = Holder()
    holder.begin([spinning], 600.0)
    assert until(30, lambda: traced(spinning))

    os.kill(holder.pid, signal.SIGKILL)

    holder.close()
    assert until(30, lambda: not traced(spinning))
    used = causal.cpu_seconds([spinning])
    assert until(30, lambda: causal.cpu_seconds([spinning]) > used)


def test_a_thread_that_has_ended_is_no_trouble() -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    began = time.monotonic()

    assert causal._hold([process.pid], 0.05)[0] >= 0
    assert time.monotonic() >= began + 0.05


@pytest.mark.parametrize(
    ("mean", "half", "word"),
    [(1.0, 0.4, "limit"), (1.0, 0.6, "undecided"), (0.0, 0.3, "innocent"), (0.2, 0.2, "undecided")],
)
def test_an_interval_shows_a_limit_an_innocent_or_nothing(mean: float, half: float, word: str) -> None:
    assert Found(mean, half, 0.1, 0.001, 100.0).word == word


def test_pairs_that_something_else_disturbed_do_not_move_the_mean_far() -> None:
    mean, half = causal._mean([1.0, 1.1, 0.9, 1.0, 1.05, 0.95, 30.0])

    assert 0.95 < mean < 1.1
    assert half < 0.2


def test_every_suspect_and_the_null_control_have_a_cost(spinning: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causal, "PAIRS", 2)
    monkeypatch.setattr(causal, "BLOCK_SECONDS", 0.1)
    case = causal.Case("spin", "it", {"it": [spinning]}, lambda: causal.cpu_seconds([spinning]))

    found = causal.measured(case)

    assert {*found} == {"it", causal.NULL}
    assert found["it"].held > 0
    assert found[causal.NULL].longest == 0
