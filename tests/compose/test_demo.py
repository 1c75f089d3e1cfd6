from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo import Alert, Watcher, missing_alert
from demo_load import (
    DEEP,
    DELAY,
    ENOUGH_BUSY,
    ENOUGH_QUEUE,
    JOB,
    SHALLOW,
    SIZES,
    Choice,
    Counts,
    FullTime,
    Load,
    LoadError,
    Sample,
    Trial,
    calibrated,
    choose,
    find_disk,
    next_load,
    parse_disks,
    variables,
)
from native import PARTS, TREE, Stack
from patience import patience
from pinchpoint.probes import devices
from pinchpoint.threads.roles import load_roles
from polling import processes_of, until
from ports import stack_ports

MIB = 1 << 20


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Free ports, and separate directories for saved runs."""
    ports = {part.variable: str(port) for part, port in zip(PARTS.values(), stack_ports().values(), strict=True)}
    return os.environ | ports | {"XDG_STATE_HOME": str(tmp_path / "kept")}


@contextmanager
def demo(state: Path, environment: Mapping[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(TREE / "compose" / "demo.py"), "--state", str(state), *arguments]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def workload_of(state: Path, name: str = "") -> list[psutil.Process]:
    """Return the processes of the demo's fio: its output file, in the state directory, is among their arguments."""
    output = re.compile(f"--output={re.escape(str(state))}/.*{name}")
    processes = psutil.process_iter(["cmdline"])
    return [process for process in processes if output.search(" ".join(process.info["cmdline"] or ()))]


@pytest.mark.parametrize(
    ("number", "status", "output"),
    [(signal.SIGINT, 130, "fio.json"), (signal.SIGTERM, 143, "trial.json")],
)
def test_a_signal_ends_the_workload_and_the_stack(
    programs: None,
    fio: str,
    tmp_path: Path,
    environment: dict[str, str],
    number: signal.Signals,
    status: int,
    output: str,
) -> None:
    state = tmp_path / "state"
    with demo(state, environment) as process:
        assert until(60, lambda: workload_of(state, output))
        process.send_signal(number)
        process.communicate(timeout=patience(60))

    assert process.returncode == status
    assert workload_of(state) == []
    assert processes_of(state) == []
    assert not list(state.glob("demo-*"))


def test_it_says_what_still_works_when_a_port_is_in_use(
    programs: None, fio: str, tmp_path: Path, environment: dict[str, str], stack: Stack
) -> None:
    taken = stack.ports["alertmanager"]
    with demo(tmp_path, environment | {"ALERTMANAGER_PORT": str(taken)}) as process:
        said, _ = process.communicate(timeout=patience(60))

    assert process.returncode == 1
    assert f"Port {taken} (Alertmanager) is in use by prometheus-aler" in said
    assert "ALERTMANAGER_PORT=" in said
    assert "pinchpoint watch`" in said
    assert "Traceback" not in said


def test_it_says_what_still_works_without_fio(tmp_path: Path, environment: dict[str, str]) -> None:
    with demo(tmp_path, environment | {"PATH": str(tmp_path)}) as process:
        said, _ = process.communicate(timeout=patience(60))

    assert process.returncode == 1
    assert said.startswith("demo: fio is not installed; `make setup` as root installs it.")
    assert "need no fio" in said


def trial(kib: int, depth: int, mib: float, busy: float = 1.0, queue: float = 0.0, **others: Any) -> Trial:
    """The result of a load on a disk; its queue is the I/O in flight by default."""
    values: dict[str, Any] = {"cpu": 0.2, "host": 0.3, "disk": "sda"} | others
    return Trial(Load(kib, depth), mib * MIB, busy=busy, queue=queue or depth * busy, **values)


def tried(*answers: Trial) -> tuple[list[Load], Choice]:
    """Return the loads that are tried on a disk with these answers, and the choice."""
    trials: list[Trial] = []
    by_load = {answer.load: answer for answer in answers}
    while (load := next_load(trials)) is not None:
        trials.append(by_load[load])
    return [trial.load for trial in trials], choose(trials)


class TestTheLoad:
    def test_stays_small_on_a_slow_disk(self) -> None:
        loads, choice = tried(trial(16, 16, 1.8), trial(16, 32, 1.9))

        assert loads == [(16, 16), (16, 32)]
        assert (choice.load, choice.disk, choice.fills) == ((16, 32), "sda", True)
        assert choice.reason == (
            "sda is full at 1.9 MiB/s, busy 100%, by writes of 16 KiB x 32 (no more than x 16); "
            "the second phase has the same"
        )

    def test_grows_on_a_fast_disk_that_small_writes_leave_idle(self) -> None:
        loads, choice = tried(
            trial(16, 16, 700, busy=0.74), trial(64, 16, 1163, busy=0.98), trial(64, 32, 1084, busy=0.99)
        )

        assert loads == [(16, 16), (64, 16), (64, 32)]
        assert choice.fills

    def test_is_enough_for_the_disk_while_fio_waits_for_a_cpu(self) -> None:
        _, choice = tried(trial(64, 16, 1100), trial(64, 32, 1100), trial(16, 16, 700, busy=0.7))

        assert choice.load == (256, 128)
        assert (choice.load.kib << 10) * choice.load.depth >= 1100 * MIB * DELAY
        assert choice.reason.endswith("; the second phase has 256 KiB x 128")

    def test_gets_deeper_as_long_as_that_brings_more(self) -> None:
        loads, choice = tried(trial(16, 16, 100), trial(16, 32, 190), trial(16, 64, 290), trial(16, 128, 300))

        assert loads == [(16, 16), (16, 32), (16, 64), (16, 128)]
        assert choice.load == (64, 128)

    def test_is_the_deepest_of_the_largest_writes_where_more_still_brings_more(self) -> None:
        rising = [trial(kib, depth, kib * depth) for kib in SIZES for depth in (16, 32, 64, 128)]

        loads, choice = tried(*rising)

        assert len(loads) == 16
        assert (choice.load, choice.fills) == ((1024, 128), True)

    def test_needs_a_queue_since_a_busy_disk_without_one_limits_nothing(self) -> None:
        _, choice = tried(*(trial(kib, 16, 100, queue=1.0) for kib in SIZES))

        assert not choice.fills

    def test_grows_where_the_thread_rather_than_the_disk_may_be_the_limit(self) -> None:
        loads, choice = tried(trial(16, 16, 3000, cpu=0.98), trial(64, 16, 7000, cpu=0.5), trial(64, 32, 7100, cpu=0.5))

        assert loads == [(16, 16), (64, 16), (64, 32)]
        assert choice.fills

    def test_that_one_cpu_cannot_make_large_enough_says_so(self) -> None:
        rates = dict(zip(SIZES, (900, 3000, 9000, 14000), strict=True))
        answers = [trial(kib, 16, rate, busy=0.6, cpu=0.97, disk="nvme0n1") for kib, rate in rates.items()]

        loads, choice = tried(*answers)

        assert [load.kib for load in loads] == list(SIZES)
        assert (choice.load, choice.disk, choice.fills) == ((1024, 128), "nvme0n1", False)
        assert choice.reason.startswith("nvme0n1 is not full at 13.7 GiB/s, busy 60%, by writes of 1024 KiB x 16; ")
        assert "the CPU limits first: fio's thread is busy for 97%" in choice.reason

    def test_that_a_full_host_keeps_small_says_so(self) -> None:
        _, choice = tried(*(trial(kib, 16, 100, busy=0.4, cpu=0.1, host=1.0) for kib in SIZES))

        assert not choice.fills
        assert "this host's CPUs are busy for 100%, fio needs 10% of one" in choice.reason

    def test_that_a_quota_keeps_small_says_so(self) -> None:
        _, choice = tried(*(trial(kib, 16, 20, busy=0.1) for kib in SIZES))

        assert not choice.fills
        assert "something in front of the disk limits" in choice.reason

    def test_fills_a_disk_beside_full_cpus_and_says_that_they_are(self) -> None:
        _, choice = tried(trial(16, 16, 2, host=0.97), trial(16, 32, 2, host=0.97))

        assert (choice.fills, choice.crowded) == (True, True)

    def test_is_tried_once_where_no_disk_writes_it(self) -> None:
        loads, choice = tried(trial(16, 16, 2000, disk="", busy=0, queue=0, cpu=1.0))

        assert loads == [(16, 16)]
        assert (choice.disk, choice.fills) == ("", False)

    @given(
        st.lists(
            st.builds(
                Trial,
                st.none(),
                st.floats(1, 1e11),
                st.floats(0, 1),
                st.floats(0, 1),
                st.sampled_from(["sda", "dm-0"]),
                st.floats(0, 1),
                st.floats(0, 200),
            ),
            min_size=16,
            max_size=16,
        )
    )
    def test_is_chosen_after_at_most_sixteen_trials_whatever_the_disk_does(self, answers: list[Trial]) -> None:
        trials: list[Trial] = []
        while (load := next_load(trials)) is not None:
            trials.append(replace(answers[len(trials)], load=load))

        choice = choose(trials)

        assert choice.load.kib in SIZES
        assert SHALLOW <= choice.load.depth <= DEEP
        assert choice.fills == any(trial.fills for trial in trials)
        assert len({trial.load for trial in trials}) == len(trials)

    def test_leaves_a_margin_to_what_the_exporter_calls_full(self) -> None:
        threshold = load_roles().thresholds["disk"]

        assert threshold == FullTime.busy < ENOUGH_BUSY
        assert devices.FULL_QUEUE == FullTime.queue < ENOUGH_QUEUE

    def test_reaches_fio_through_variables_that_its_file_has(self, tmp_path: Path) -> None:
        named = set(re.findall(r"\$\{(\w+)\}", JOB.read_text()))

        assert set(variables(tmp_path, Load(64, 32), 1, 1)) == named
        assert Load(64, 32).variables == {"DEMO_BLOCK": "64k", "DEMO_DEPTH": "32"}


def seconds_of(name: str, *entries: tuple[float, float, float, float]) -> list[Sample]:
    """Return samples of a disk: time, MiB written, busy seconds, queued seconds."""
    return [Sample(time, {name: Counts(int(mib * MIB), busy, queued, 0)}) for time, mib, busy, queued in entries]


def together(*disks: list[Sample]) -> list[Sample]:
    return [
        Sample(samples[0].time, {name: counts for sample in samples for name, counts in sample.disks.items()})
        for samples in zip(*disks, strict=True)
    ]


class TestTheDiskOfATrial:
    def test_is_the_one_that_got_the_bytes_from_their_begin_to_their_end(self) -> None:
        # fio needs a second to start and another to end.
        mine = seconds_of(
            "sda", (0, 0, 0, 0), (1, 0, 0, 0), (2, 500, 0.98, 10), (3, 1000, 1.96, 20), (4, 1000, 1.96, 20)
        )
        others = seconds_of("sdb", *((float(second), second * 10, second * 0.9, second * 9) for second in range(5)))

        assert find_disk(together(mine, others), 1000 * MIB) == ("sda", 0.98, 10)

    def test_is_the_fullest_of_a_stack(self) -> None:
        upper = seconds_of("dm-0", (0, 0, 0, 0), (1, 1000, 0.9, 20))
        lower = seconds_of("sda", (0, 0, 0, 0), (1, 1010, 1.0, 12))

        assert find_disk(together(upper, lower), 1000 * MIB) == ("sda", 1.0, 12)

    def test_is_none_where_no_disk_got_the_bytes(self) -> None:
        idle = seconds_of("sda", (0, 7, 1, 1), (1, 8, 1.1, 1))

        assert find_disk(idle, 1000 * MIB) is None
        assert find_disk([], 1000 * MIB) is None
        assert find_disk(idle[:1], 0) is None

    def test_is_read_from_the_kernels_table(self) -> None:
        line = " 254 0 vda 11 0 88 5 4000 2 2048 700 3 1500 9000 0 0 0 0 1 1"

        assert parse_disks(f"{line}\nhalf a li\n 1 2 x y\n") == {"vda": Counts(1 << 20, 1.5, 9.0, 3)}

    @given(st.text())
    def test_may_be_described_by_any_text(self, text: str) -> None:
        parse_disks(text)


class TestFullTime:
    def test_is_the_time_in_which_the_disk_is_busy_and_has_a_queue(self) -> None:
        full = FullTime("sda")
        for sample in seconds_of(
            "sda", (0, 0, 0, 0), (1, 0, 0.9, 5), (2, 0, 1.8, 6), (3, 0, 2.0, 16), (4.5, 0, 3.5, 26)
        ):
            full.add(sample)

        assert full.seconds == 2.5

    def test_ignores_a_disk_that_is_not_there(self) -> None:
        full = FullTime("")
        for sample in seconds_of("sda", (0, 0, 0, 0), (1, 0, 1, 5)):
            full.add(sample)

        assert full.seconds == 0


class TestWhatIsMissing:
    @staticmethod
    def watcher(*received: tuple[str, str]) -> Watcher:
        watcher = Watcher({}, 0.0)
        watcher.received += [Alert(name, owner, "", 1.0) for name, owner in received]
        return watcher

    def test_is_the_first_alert_on_any_host(self) -> None:
        assert missing_alert(self.watcher(("BenchmarkThreadSaturated", "dd")), "", 0) == "BenchmarkThreadSaturated"
        assert missing_alert(self.watcher(("BenchmarkThreadSaturated", "fio")), "", 0) == ""

    def test_is_that_of_the_disk_only_where_it_was_full_for_long_enough(self) -> None:
        first = ("BenchmarkThreadSaturated", "fio")

        assert missing_alert(self.watcher(first), "sda", 19) == ""
        assert missing_alert(self.watcher(first), "sda", 21) == "DiskSaturated of sda"
        assert missing_alert(self.watcher(first, ("DiskSaturated", "sdb")), "sda", 21) == "DiskSaturated of sda"
        assert missing_alert(self.watcher(first, ("DiskSaturated", "sda")), "sda", 21) == ""

    def test_is_no_alert_that_an_exporter_without_a_cpu_could_not_see(self) -> None:
        received = self.watcher(("BenchmarkThreadSaturated", "fio"), ("SamplerLate", ""))

        assert missing_alert(received, "sda", 25) == ""


def test_it_says_why_nothing_can_be_tried(fio: str) -> None:
    with pytest.raises(LoadError, match=r"^cannot write in /proc: "), calibrated([Path("/proc")]):
        pass


def test_it_passes_on_why_fio_cannot_write(fio: str, tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", tmp_path], check=False).returncode:
        pytest.skip("cannot mount a small file system")
    try:
        with pytest.raises(LoadError, match="No space left on device"), calibrated([tmp_path]):
            pass
    finally:
        subprocess.run(["umount", tmp_path], check=True)
