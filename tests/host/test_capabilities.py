from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.host.capabilities import NAMES, Capability, CapabilitySets, covering, effective, missing, names

HEADER = Path("/usr/include/linux/capability.h")
NUMBERS = st.frozensets(st.integers(0, 63))
DROP = """
import os, sys
from pinchpoint.host.capabilities import Capability, drop_all_but

if sys.argv[1] == "nobody":
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
drop_all_but([Capability[name] for name in sys.argv[2:]])
print(open("/proc/self/status").read(), flush=True)
os.execv("/bin/cat", ["cat", "/proc/self/status"])
"""
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to drop")


def mask(*capabilities: Capability) -> int:
    return sum(1 << capability for capability in capabilities)


def sets_after(user: str, *kept: str, prefix: Sequence[str] = ()) -> tuple[dict[str, int], dict[str, int]]:
    """Return the sets of a process that keeps these capabilities, and those of the program that it executes then."""
    command = [*prefix, sys.executable, "-c", DROP, user, *kept]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    fields = re.findall(r"^(Cap\w+|NoNewPrivs):\s*(\w+)$", done.stdout, re.MULTILINE)
    half = len(fields) // 2
    before, after = ({name: int(value, 16) for name, value in part} for part in (fields[:half], fields[half:]))
    return before, after


@given(st.builds(CapabilitySets, NUMBERS, NUMBERS, NUMBERS))
def test_sets_are_packed_as_the_kernel_reads_them(sets: CapabilitySets) -> None:
    assert CapabilitySets.unpack(sets.pack()) == sets


@given(st.binary(max_size=48))
def test_only_two_whole_structures_are_sets(raw: bytes) -> None:
    if len(raw) == 24:
        assert CapabilitySets.unpack(raw).pack() == raw
    else:
        with pytest.raises(ValueError, match=f"not {len(raw)}"):
            CapabilitySets.unpack(raw)


def test_high_numbers_are_in_the_second_structure() -> None:
    raw = bytes(12) + b"\x80\0\0\0" + bytes(8)

    assert CapabilitySets.unpack(raw).effective == {Capability.BPF}


def test_the_effective_ones_are_those_of_procfs() -> None:
    line = re.search(r"^CapEff:\s*(\w+)$", Path("/proc/thread-self/status").read_text(), re.MULTILINE)

    assert line is not None
    assert sum(1 << number for number in effective()) == int(line[1], 16)


def test_a_capability_that_includes_another_one_stands_for_it() -> None:
    held = {Capability.SYS_ADMIN, Capability.DAC_OVERRIDE}

    assert missing([Capability.BPF, Capability.PERFMON, Capability.DAC_READ_SEARCH, Capability.SYS_NICE], held) == [
        Capability.SYS_NICE
    ]
    assert missing([Capability.DAC_OVERRIDE], {Capability.DAC_READ_SEARCH}) == [Capability.DAC_OVERRIDE]


def test_what_is_kept_covers_what_is_needed_and_no_more() -> None:
    everything = range(41)

    assert covering([Capability.BPF, Capability.PERFMON], everything) == {Capability.BPF, Capability.PERFMON}
    assert covering([Capability.BPF], {Capability.SYS_ADMIN, Capability.SYS_PTRACE}) == {Capability.SYS_ADMIN}
    assert covering([Capability.SYS_NICE], ()) == frozenset()


def test_names_are_those_of_the_kernel() -> None:
    if not HEADER.exists():
        pytest.skip(f"no {HEADER}: Debian's package linux-libc-dev has it")
    numbers = {int(number): name for name, number in re.findall(r"#define CAP_(\w+)\s+(\d+)\n", HEADER.read_text())}

    assert [numbers[number] for number in range(len(numbers))] == list(NAMES[: len(numbers)])
    assert all(NAMES[capability] == capability.name for capability in Capability)
    assert names({Capability.BPF, Capability.SYS_NICE, 63}) == "CAP_SYS_NICE, CAP_BPF, capability 63"
    assert names(()) == "none"


@root
def test_root_keeps_what_is_needed_in_no_more_than_three_sets() -> None:
    kept, executed = sets_after("root", "SYS_NICE", "BPF")
    expected = mask(Capability.SYS_NICE, Capability.BPF)

    assert (kept["CapPrm"], kept["CapEff"], kept["CapBnd"]) == (expected, expected, expected)
    assert (kept["CapInh"], kept["CapAmb"], kept["NoNewPrivs"]) == (0, 0, 1)
    assert executed["CapEff"] & ~expected == 0


@root
def test_a_program_that_is_executed_later_gets_nothing_back() -> None:
    _, executed = sets_after("root")

    assert executed == dict.fromkeys(executed, 0) | {"NoNewPrivs": 1}


@root
def test_inheritable_and_ambient_capabilities_go_as_well() -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed: it is part of util-linux")
    given = ["setpriv", "--inh-caps=+sys_nice,+kill", "--ambient-caps=+sys_nice,+kill"]
    kept, executed = sets_after("root", "SYS_NICE", prefix=given)

    assert (kept["CapEff"], kept["CapInh"], kept["CapAmb"]) == (mask(Capability.SYS_NICE), 0, 0)
    assert executed["CapAmb"] == 0


@root
def test_without_any_capability_there_is_nothing_to_drop_and_that_is_fine() -> None:
    kept, _ = sets_after("nobody", "SYS_NICE", "SYS_PTRACE")

    assert (kept["CapPrm"], kept["CapEff"], kept["NoNewPrivs"]) == (0, 0, 1)
