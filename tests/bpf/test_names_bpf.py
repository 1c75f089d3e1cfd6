"""Names as this kernel prints them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinchpoint.bpf import names as names_module
from pinchpoint.bpf.libbpf import BpfError
from pinchpoint.bpf.names import KernelNames


@pytest.fixture
def names() -> Iterator[KernelNames]:
    try:
        found = KernelNames()
    except BpfError as error:
        pytest.skip(str(error))
    yield found
    found.close()


def test_a_function_is_named_by_what_its_calls_return_to(names: KernelNames) -> None:
    rows = [line.split() for line in Path("/proc/kallsyms").read_bytes().splitlines()]
    shown = [(int(row[0], 16), row[2]) for row in rows if row[1] in (b"t", b"T") and int(row[0], 16)]
    if not shown:
        pytest.skip("this kernel shows no addresses")
    at = Counter(address for address, _ in shown)

    for address, name in shown[:: len(shown) // 100 + 1]:
        if at[address] == 1:
            assert names.called_from(address + 1).startswith(name + b"+0x1/")


def test_an_address_without_a_function_is_printed_as_it_is(names: KernelNames) -> None:
    assert names.called_from(0x10) == b"0x10"


def test_names_are_forgotten_when_they_are_many(names: KernelNames, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names_module, "MAX_KERNEL_NAMES", 4)
    for address in range(32, 64):
        assert names.called_from(address) == b"%#x" % address
        assert len(names._known) <= 4
