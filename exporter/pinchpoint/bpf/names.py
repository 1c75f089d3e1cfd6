"""Names of the kernel's functions by address, from the kernel itself (names.bpf.c)."""

from __future__ import annotations

import struct

from pinchpoint.bpf.libbpf import load

__all__ = ["KernelNames"]

ADDRESS = struct.Struct("=Q")
"""The beginning of ``state``; the name follows."""
MAX_KERNEL_NAMES = 1 << 13
"""Names that are remembered: a stack's functions are asked for again and again."""


class KernelNames:
    """Asks the kernel for names; until `close`. Raises BpfError where that does not work."""

    def __init__(self) -> None:
        self._known: dict[int, bytes] = {}
        self._loaded = load("names")
        try:
            self._state = self._loaded.memory(".bss")
            self.called_from(0)
        except BaseException:
            self.close()
            raise

    def called_from(self, address: int) -> bytes:
        """Return the function to which an address returns as the kernel prints it, with offset, size and module.

        As in ``/proc/PID/stack``: ``vfs_read+0x9c/0x180``, or the address itself where it is in no function. What
        follows a function's last call may be the next function (sprint_backtrace, kernel/kallsyms.c).
        """
        if (known := self._known.get(address)) is not None:
            return known
        if len(self._known) >= MAX_KERNEL_NAMES:
            self._known.clear()
        ADDRESS.pack_into(self._state, 0, address)
        length = self._loaded.run("name")
        found = self._known[address] = self._state[ADDRESS.size : ADDRESS.size + max(0, length - 1)]
        return found

    def close(self) -> None:
        """Remove the program from the kernel."""
        self._loaded.close()
