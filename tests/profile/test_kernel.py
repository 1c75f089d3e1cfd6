from __future__ import annotations

from collections import Counter
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.bpf.libbpf import BpfError
from pinchpoint.bpf.names import KernelNames
from pinchpoint.profile.demangle import short_name
from pinchpoint.profile.kernel import Kernel, KernelSymbols

KALLSYMS = (
    b"ffffffff81000000 T _stext\nffffffff81000010 t do_work.isra.0\nffffffff81000020 D data\n"
    b"ffffffffc0000000 t ceph_con_workfn\t[libceph]\nzz T bad\nffffffff81000030\n"
)


class Answers(KernelNames):
    """A kernel that prints this for any address."""

    def __init__(self, printed: bytes) -> None:
        self.printed = printed
        self.asked: list[int] = []
        self.closed = False

    def called_from(self, address: int) -> bytes:
        self.asked.append(address)
        return self.printed

    def close(self) -> None:
        self.closed = True


def refused() -> KernelNames:
    raise BpfError("not permitted")


@pytest.fixture
def kallsyms(tmp_path: Path) -> Path:
    (path := tmp_path / "kallsyms").write_bytes(KALLSYMS)
    return path


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        (b"vfs_read+0x9c/0x180", "vfs_read"),
        (b"do_work.isra.0+0x1/0x10 [libceph]", "do_work"),
        (b"0xffffffff81000000", None),
        (b"", None),
        (b"x" * 1000 + b"+0x1/0x2", "x" * 160),
    ],
)
def test_the_kernel_is_asked_for_a_name(tmp_path: Path, printed: bytes, name: str | None) -> None:
    answers = Answers(printed)
    kernel = Kernel(tmp_path / "missing", lambda: answers)

    assert kernel.name(0x1000) == name
    assert answers.asked == [0x1001]
    assert kernel.lack == ""
    kernel.close()
    assert answers.closed


def test_where_the_kernel_cannot_be_asked_its_table_is_read(kallsyms: Path) -> None:
    kernel = Kernel(kallsyms, refused)

    assert kernel.name(0xFFFFFFFF81000025) == "do_work"
    assert kernel.lack == ""
    kernel.forget()
    assert kernel.name(0xFFFFFFFFC0000001) == "ceph_con_workfn"
    kernel.close()


@pytest.mark.parametrize("table", [b"0000000000000000 T _stext\n", None])
def test_hidden_names_are_told(tmp_path: Path, table: bytes | None) -> None:
    if table is not None:
        (tmp_path / "kallsyms").write_bytes(table)
    kernel = Kernel(tmp_path / "kallsyms", refused)

    assert kernel.name(0xFFFFFFFF81000025) is None
    assert kernel.lack == "/proc/kallsyms shows no addresses: functions of the kernel have no names"
    kernel.close()


def test_kernel_functions_are_named_without_suffixes_and_modules() -> None:
    found = KernelSymbols(BytesIO(KALLSYMS))

    assert found.name(0xFFFFFFFF81000005) == "_stext"
    assert found.name(0xFFFFFFFF81000025) == "do_work"
    assert found.name(0xFFFFFFFFC0000001) == "ceph_con_workfn"
    assert found.name(0x1000) is None


def test_without_the_right_to_see_addresses_no_kernel_function_has_a_name() -> None:
    assert len(KernelSymbols(BytesIO(b"0000000000000000 T _stext\n"))) == 0


@given(st.binary(max_size=400), st.integers(0, 2**64 - 1))
def test_any_bytes_are_kernel_symbols_or_none(raw: bytes, address: int) -> None:
    KernelSymbols(BytesIO(raw)).name(address)


@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.sampled_from("tTwWdD"), st.text("abc_", min_size=1)), max_size=9),
    st.booleans(),
    st.integers(1, 200),
)
def test_an_address_belongs_to_the_last_function_that_does_not_begin_after_it(
    symbols: list[tuple[int, str, str]], sort: bool, piece: int
) -> None:
    symbols = sorted(symbols) if sort else symbols
    raw = "".join(f"{address:016x} {kind} {name}\n" for address, kind, name in symbols).encode()
    functions = [(address, name) for address, kind, name in symbols if kind in "tTwW" and address]
    found = KernelSymbols(BytesIO(b"not an address! t x\n" + raw), piece)

    for asked, _, _ in symbols:
        before = [address for address, _ in functions if address <= asked]
        names: list[str | None] = [name for address, name in functions if before and address == max(before)]
        assert found.name(asked) in (names or [None])


def test_the_functions_of_this_kernel_are_named() -> None:
    raw = Path("/proc/kallsyms").read_bytes()
    functions = [words for words in map(bytes.split, raw.splitlines()) if len(words) == 3 and words[1] in (b"t", b"T")]
    shown = [(int(words[0], 16), words[2].decode()) for words in functions if int(words[0], 16)]
    if not shown:
        pytest.skip("this kernel shows no addresses")
    at = Counter(address for address, _ in shown)
    found = KernelSymbols(BytesIO(raw))

    for address, name in shown[:: len(shown) // 50 + 1]:
        if at[address] == 1:
            assert found.name(address) == short_name(name)
