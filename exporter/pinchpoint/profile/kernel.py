"""Names of the kernel's functions by address: asked of the kernel by BPF, or from ``/proc/kallsyms``."""

from __future__ import annotations

import os
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from io import BytesIO
from itertools import accumulate, chain
from operator import gt, itemgetter
from pathlib import Path
from typing import BinaryIO

from pinchpoint.bpf.libbpf import BpfError
from pinchpoint.bpf.names import KernelNames
from pinchpoint.expressions import expression
from pinchpoint.host.procfs import decode
from pinchpoint.profile.demangle import short_name
from pinchpoint.profile.symbols import MAX_SHOWN_CHARACTERS

__all__ = ["Kernel", "KernelSymbols"]

ADDRESS_DIGITS = 16
ADDRESS = expression(rb"[0-9a-f]{16}")
"""An address in kallsyms on a machine of 64 bits (%px, lib/vsprintf.c)."""
FUNCTIONS = frozenset({b" t ", b" T ", b" w ", b" W "})
"""How kallsyms marks functions."""
MAX_KALLSYMS_BYTES = 64 << 20
"""Of kallsyms, in bytes: Linux 6.18 with few modules has 5 MiB of it."""
KALLSYMS_PIECE_BYTES = 1 << 18
"""Bytes of kallsyms that are read at a time."""
NAMELESS = "/proc/kallsyms shows no addresses: functions of the kernel have no names"


class Kernel:
    """The functions of the running kernel. Where it can't be asked for their names, they are read when first needed.

    That takes far more time and memory than to ask. `ask` raises BpfError where the kernel can't be asked.
    """

    def __init__(self, kallsyms: Path, ask: Callable[[], KernelNames] = KernelNames) -> None:
        self._ask = ask
        self._names: KernelNames | None = None
        self._symbols: KernelSymbols | None = None
        self._file = -1
        with suppress(OSError):
            # Who opens it decides whether it has addresses (kallsyms_open, kernel/kallsyms.c).
            self._file = os.open(kallsyms, os.O_RDONLY | os.O_CLOEXEC)

    def name(self, address: int) -> str | None:
        """Return the name of the function that has an address, None if none has, or where names are hidden."""
        if self._names is None and self._symbols is None:
            try:
                self._names = self._ask()
            except BpfError:
                self._symbols = self._read()
        if self._names is not None:
            with suppress(BpfError):
                # Of an address to which a function returns, the name is that of the byte before it.
                return _function(self._names.called_from(address + 1))
        return None if self._symbols is None else self._symbols.name(address)

    @property
    def lack(self) -> str:
        """Why functions have no names, "" if they have or none was asked for yet."""
        return NAMELESS if self._symbols is not None and not len(self._symbols) else ""

    def _read(self) -> KernelSymbols:
        try:
            with os.fdopen(os.dup(self._file), "rb") as file:
                file.seek(0)
                return KernelSymbols(file)
        except OSError:
            return KernelSymbols(BytesIO())

    def forget(self) -> None:
        """Release what can be had again."""
        if self._names is not None:
            self._names.close()
        self._names = self._symbols = None

    def close(self) -> None:
        """Release all of it."""
        self.forget()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _function(printed: bytes) -> str | None:
    """Return the name in what the kernel prints: ``vfs_read+0x9c/0x180 [module]``, or an address without a name."""
    name, found, _ = printed.partition(b"+")
    return short_name(decode(name))[:MAX_SHOWN_CHARACTERS] or None if found else None


class _Functions:
    """Functions of the kernel by address."""

    def __init__(self) -> None:
        self.starts = array("Q")
        self._offsets = array("I", [0])
        self._text = bytearray()

    def add(self, starts: array[int], lines: Iterable[bytes]) -> None:
        """Add lines of kallsyms; none begins before those that are here."""
        names = [line[ADDRESS_DIGITS + 3 :] for line in lines]
        self.starts.extend(starts)
        self._offsets.pop()
        self._offsets.extend(accumulate(map(len, names), initial=len(self._text)))
        self._text += b"".join(names)

    def last(self, address: int) -> int:
        """Return the index of the last one that does not begin after an address, -1 if there is none."""
        return bisect_right(self.starts, address) - 1

    def name(self, index: int) -> str | None:
        begin, end = self._offsets[index : index + 2]
        words = bytes(self._text[begin : min(end, begin + MAX_SHOWN_CHARACTERS)]).split(None, 1)
        return short_name(decode(words[0])) if words else None


class KernelSymbols:
    """The functions of the kernel, from ``/proc/kallsyms`` (s_show, kernel/kallsyms.c; man 5 proc).

    Without CAP_SYSLOG and with kernel.kptr_restrict all addresses are 0: then it knows no name. A kernel has more than
    a hundred thousand, so nothing here is done for each of them in Python that is not one expression, and only a piece
    of the file is in memory as lines, which take several times their length. Raises OSError.
    """

    def __init__(self, file: BinaryIO, piece: int = KALLSYMS_PIECE_BYTES) -> None:
        kernel, others = _Functions(), _Functions()
        unsorted: list[bytes] = []
        read = 0
        while read < MAX_KALLSYMS_BYTES and (lines := file.readlines(piece)):
            read += sum(map(len, lines))
            lines, starts = _functions(lines)
            last = kernel.starts[-1:]
            if any(map(gt, chain(last, starts), starts if last else starts[1:])):
                unsorted += lines  # modules, which follow the kernel
            else:
                kernel.add(starts, lines)
        unsorted.sort()  # by address, whose digits are as many in each line
        others.add(_functions(unsorted)[1], unsorted)
        self._tables = (kernel, others)

    def __len__(self) -> int:
        return sum(len(table.starts) - bisect_right(table.starts, 0) for table in self._tables)

    def name(self, address: int) -> str | None:
        """Return the name of the function that has an address, or None."""
        start, index, table = max(
            ((table.starts[index], index, table) for table in self._tables if (index := table.last(address)) >= 0),
            key=itemgetter(0),
            default=(0, 0, None),
        )
        return table.name(index) if start and table is not None else None


def _functions(lines: list[bytes]) -> tuple[list[bytes], array[int]]:
    """Return those lines of kallsyms that show functions, and their addresses."""
    found = [line for line in lines if line[ADDRESS_DIGITS : ADDRESS_DIGITS + 3] in FUNCTIONS]
    if (starts := _addresses(found)) is None:
        found = [line for line in found if ADDRESS.match(line)]
        starts = _addresses(found) or array("Q")
    return found, starts


def _addresses(lines: Sequence[bytes]) -> array[int] | None:
    """Return the addresses that lines begin with; None if one does not begin with `ADDRESS_DIGITS` digits."""
    try:
        raw = bytes.fromhex(b"".join([line[:ADDRESS_DIGITS] for line in lines]).decode("latin-1"))
    except ValueError:
        return None
    found = array("Q")
    if len(raw) != len(lines) * found.itemsize:
        return None  # it skips spaces
    found.frombytes(raw)
    if sys.byteorder == "little":
        found.byteswap()
    return found
