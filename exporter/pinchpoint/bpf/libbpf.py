"""Loads BPF objects through libbpf.so.1, by ctypes: no compiler and no headers are needed where the exporter runs.

libbpf adapts an object to the running kernel (CO-RE) and loads it. Only descriptors remain, all with close-on-exec:
once they are closed, by us or by the end of the process, whatever ends it, the kernel removes the programs and maps.
Nothing is pinned.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from threading import Lock

from pinchpoint.expressions import expression
from pinchpoint.host.capabilities import Capability, effective, missing
from pinchpoint.host.heap import give_back, map_large_blocks

__all__ = ["OBJECTS", "BpfError", "Loaded", "library_version", "load"]

OBJECTS = Path(__file__).parent
"""Where `make bpf` puts the objects."""
LIBRARY = "libbpf.so.1"
"""The ABI of libbpf 1.0 and later; functions of 0.x report errors differently."""
MAX_MESSAGE_BYTES = 1 << 20
"""Bytes of a message of libbpf. The verifier's log is one: it lists each instruction, then the error; a longer one is
cut and loses the reason."""
MAX_PASSED_ON_CHARACTERS = 160
"""Characters of libbpf's own message that are passed on."""
VALUE_ALIGNMENT_BYTES = 8
"""Bytes to which each value of an array that can be mapped is rounded up (array_map_alloc, kernel/bpf/arraymap.c)."""
LIBBPF_WARN = 0
"""LIBBPF_WARN of enum libbpf_print_level (libbpf.h)."""


class BpfError(Exception):
    """BPF can't be used here; the message is one line that says what is missing."""


class _TestRun(ctypes.Structure):
    """``struct bpf_test_run_opts`` of libbpf 1.0 (bpf.h)."""

    _fields_ = (
        ("sz", c_size_t),
        ("data_in", c_void_p),
        ("data_out", c_void_p),
        ("data_size_in", c_uint32),
        ("data_size_out", c_uint32),
        ("ctx_in", c_void_p),
        ("ctx_out", c_void_p),
        ("ctx_size_in", c_uint32),
        ("ctx_size_out", c_uint32),
        ("retval", c_uint32),
        ("repeat", c_int),
        ("duration", c_uint32),
        ("flags", c_uint32),
        ("cpu", c_uint32),
        ("batch_size", c_uint32),
    )


NOT_PERMITTED = (
    "not permitted: needs CAP_BPF and CAP_PERFMON, or root, and no seccomp filter against it; "
    "before Linux 5.11 also a higher limit of locked memory"
)
LOG = expression("-- (BEGIN|END) PROG LOAD LOG --")
"""What libbpf puts around the verifier's log (bpf_object_load_prog, libbpf.c)."""
STATISTICS = ("processed ", "verification time ", "stack depth ", "max_states_per_insn ")
"""How the lines begin that end every log (print_verification_stats, kernel/bpf/verifier.c)."""
NO_REASON = expression(r"Retrying without BTF\.$|^Failed to bump RLIMIT_MEMLOCK")
"""Complaints after which libbpf goes on (bpf_object__create_map, libbpf.c; bump_rlimit_memlock, bpf.c)."""

_Printer = ctypes.CFUNCTYPE(c_int, c_int, c_char_p, c_void_p)
_FUNCTIONS: Mapping[str, tuple[object, tuple[object, ...]]] = {
    "libbpf_major_version": (c_uint32, ()),
    "libbpf_minor_version": (c_uint32, ()),
    "libbpf_set_print": (c_void_p, (_Printer,)),
    "bpf_object__open_file": (c_void_p, (c_char_p, c_void_p)),
    "bpf_object__load": (c_int, (c_void_p,)),
    "bpf_object__close": (None, (c_void_p,)),
    "bpf_object__next_program": (c_void_p, (c_void_p, c_void_p)),
    "bpf_object__next_map": (c_void_p, (c_void_p, c_void_p)),
    "bpf_program__name": (c_char_p, (c_void_p,)),
    "bpf_program__fd": (c_int, (c_void_p,)),
    "bpf_program__attach": (c_void_p, (c_void_p,)),
    "bpf_link__fd": (c_int, (c_void_p,)),
    "bpf_link__destroy": (c_int, (c_void_p,)),
    "bpf_map__name": (c_char_p, (c_void_p,)),
    "bpf_map__fd": (c_int, (c_void_p,)),
    "bpf_map__max_entries": (c_uint32, (c_void_p,)),
    "bpf_map__set_max_entries": (c_int, (c_void_p, c_uint32)),
    "bpf_map__value_size": (c_uint32, (c_void_p,)),
    "bpf_map_update_elem": (c_int, (c_int, c_void_p, c_void_p, c_uint64)),
    "bpf_map_delete_elem": (c_int, (c_int, c_void_p)),
    "bpf_prog_test_run_opts": (c_int, (c_int, POINTER(_TestRun))),
    "bpf_iter_create": (c_int, (c_int,)),
    "bpf_raw_tracepoint_open": (c_int, (c_char_p, c_int)),
}


@cache
def _library() -> ctypes.CDLL:
    """Return libbpf with the prototypes that we use. Raises BpfError."""
    try:
        library = ctypes.CDLL(LIBRARY, use_errno=True)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except OSError as error:
        raise BpfError(f"no {LIBRARY} ({error})"[:MAX_PASSED_ON_CHARACTERS]) from error
    except AttributeError as error:
        raise BpfError(f"{LIBRARY} is of another version: {error}"[:MAX_PASSED_ON_CHARACTERS]) from error
    return library


def library_version() -> str:
    """Return the version of libbpf; empty if there is none that can be used."""
    try:
        library = _library()
    except BpfError:
        return ""
    return f"{library.libbpf_major_version()}.{library.libbpf_minor_version()}"


class _Messages:
    """Collects what libbpf would print."""

    def __init__(self) -> None:
        lines: list[str] = []
        vsnprintf = ctypes.CDLL(None).vsnprintf
        vsnprintf.argtypes = (c_char_p, c_size_t, c_char_p, c_void_p)

        def keep(level: int, form: bytes, arguments: int) -> int:
            if level == LIBBPF_WARN:
                buffer = ctypes.create_string_buffer(MAX_MESSAGE_BYTES)
                # A va_list arrives and is passed on as a pointer (x86-64, AArch64 and POWER ABIs).
                if vsnprintf(buffer, MAX_MESSAGE_BYTES, form, arguments) >= 0:
                    lines.extend(buffer.value.decode("utf-8", "replace").splitlines())
            return 0

        self.lines = lines
        self.printer = _Printer(keep)
        """libbpf's callback; it has to live while libbpf may call it."""

    def reason(self) -> str:
        """Return libbpf's complaint in one line: the verifier's last line, or else the first message."""
        lines = [re.sub(r"\s+", " ", line.removeprefix("libbpf: ")).strip() for line in self.lines]
        log = [number for number, line in enumerate(lines) if LOG.search(line)]
        if len(log) >= 2:
            said = [line for line in lines[log[0] + 1 : log[1]] if line and not line.startswith(STATISTICS)]
            lines = said[-1:] or lines
        return next((line for line in lines if line and not NO_REASON.search(line)), "")[:MAX_PASSED_ON_CHARACTERS]


_loading = Lock()
"""libbpf has one print function for all."""


class Loaded:
    """The programs, maps and links of a loaded object: descriptors, until `close`."""

    def __init__(self) -> None:
        self._library = _library()
        self._programs: dict[str, int] = {}
        self._maps: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._links: list[int] = []
        self._attached: list[int] = []
        self._memory: dict[str, mmap.mmap] = {}
        self._run = _TestRun(sz=ctypes.sizeof(_TestRun))

    def run(self, program: str) -> int:
        """Run a SYSCALL program once and return its result. Raises BpfError."""
        self._run.retval = 0
        if self._library.bpf_prog_test_run_opts(self._programs[program], byref(self._run)) < 0:
            raise BpfError(f"{program}: {_strerror()}")
        return int(ctypes.c_int32(self._run.retval).value)

    def statistics(self, program: str) -> tuple[int, int]:
        """Return the nanoseconds that a program ran and how often, while the kernel counts it (bpf_stats_enabled)."""
        lines = Path(f"/proc/self/fdinfo/{self._programs[program]}").read_text().splitlines()
        values = {name: value for name, _, value in (line.partition(":") for line in lines)}
        return int(values.get("run_time_ns", 0)), int(values.get("run_cnt", 0))

    def attach(self, *programs: str) -> None:
        """Attach programs of typed raw tracepoints (``tp_btf``) until `detach`.

        Raises BpfError; none is attached then.
        """
        for program in programs:
            # The name of the tracepoint is in the program (bpf_raw_tracepoint_open, kernel/bpf/syscall.c).
            if (link := self._library.bpf_raw_tracepoint_open(None, self._programs[program])) < 0:
                reason = f"{program} can't be attached: {_reason(ctypes.get_errno(), '')}"
                self.detach()
                raise BpfError(reason)
            self._attached.append(link)

    def detach(self) -> None:
        """Detach what `attach` attached."""
        while self._attached:
            os.close(self._attached.pop())

    def iterator(self, link: int = 0) -> int:
        """Return a new descriptor to read an iterator program's output from, once. Raises BpfError."""
        if (descriptor := self._library.bpf_iter_create(self._links[link])) < 0:
            raise BpfError(f"bpf_iter_create: {_strerror()}")
        return int(descriptor)

    def memory(self, name: str) -> mmap.mmap:
        """Return a map's memory, shared with the kernel: of an array with BPF_F_MMAPABLE, or of global variables.

        `name` is the map's name or its end: that of global variables begins with the object's (``tasks.bss``). Each map
        is mapped once. Raises BpfError.
        """
        if name in self._memory:
            return self._memory[name]
        found = next((known for known in self._maps if known == name or known.endswith(name)), None)
        if found is None:
            raise BpfError(f"no map {name}")
        try:
            memory = mmap.mmap(self._maps[found], self._sizes[found], mmap.MAP_SHARED)
        except (OSError, ValueError) as error:
            raise BpfError(f"map {name} can't be mapped: {error}") from error
        self._memory[name] = memory
        return memory

    def put(self, name: str, key: bytes, value: bytes) -> None:
        """Put an entry into a map. Raises BpfError."""
        if self._library.bpf_map_update_elem(self._maps[name], key, value, 0) < 0:
            raise BpfError(f"map {name}: {_strerror()}")

    def drop(self, name: str, key: bytes) -> None:
        """Remove an entry of a map, if it is there."""
        self._library.bpf_map_delete_elem(self._maps[name], key)

    def close(self) -> None:
        """Close everything, which detaches attached programs."""
        for memory in self._memory.values():
            # Remaining views keep it until they go.
            with suppress(BufferError):
                memory.close()
        self.detach()
        for descriptor in (*self._links, *self._programs.values(), *self._maps.values()):
            os.close(descriptor)
        self._memory, self._links, self._programs, self._maps = {}, [], {}, {}


def load(
    name: str,
    *,
    attach: Collection[str] = (),
    entries: Mapping[str, int] | None = None,
    folder: Path | None = None,
) -> Loaded:
    """Load the object ``NAME.bpf.o`` from `folder` or `OBJECTS`, and attach the programs `attach`.

    `entries` sets the number of entries of maps. Raises BpfError.
    """
    path = (folder or OBJECTS) / f"{name}.bpf.o"
    if not os.path.isfile(path):
        raise BpfError(f"no {path.name} in {path.parent}: it is made by `make bpf`, which needs clang and libbpf-dev")
    library = _library()
    map_large_blocks()  # the kernel's types, 5 MB and more, are in memory for a moment
    with _loading:
        messages = _Messages()
        before = library.libbpf_set_print(messages.printer)
        try:
            return _load(library, path, messages, attach, entries or {})
        finally:
            library.libbpf_set_print(ctypes.cast(before, _Printer) if before else _Printer(0))
            give_back()


def _load(
    library: ctypes.CDLL,
    path: Path,
    messages: _Messages,
    attach: Collection[str],
    entries: Mapping[str, int],
) -> Loaded:
    def fail(what: str) -> BpfError:
        return BpfError(f"{what}: {_reason(ctypes.get_errno(), messages.reason())}")

    if not (opened := library.bpf_object__open_file(os.fsencode(path), None)):
        raise fail(f"{path.name} can't be opened")
    loaded = Loaded()
    try:
        programs = _each(library.bpf_object__next_program, library.bpf_program__name, opened)
        maps = _each(library.bpf_object__next_map, library.bpf_map__name, opened)
        for name, number in entries.items():
            library.bpf_map__set_max_entries(maps[name], number)
        if library.bpf_object__load(opened) < 0:
            raise fail("can't be loaded")
        for name, found in maps.items():
            loaded._maps[name] = _keep(library.bpf_map__fd(found))
            value = library.bpf_map__value_size(found)
            loaded._sizes[name] = (value + -value % VALUE_ALIGNMENT_BYTES) * library.bpf_map__max_entries(found)
        for name, found in programs.items():
            loaded._programs[name] = _keep(library.bpf_program__fd(found))
        for name in attach:
            if not (link := library.bpf_program__attach(programs[name])):
                raise fail(f"{name} can't be attached")
            try:
                loaded._links.append(_keep(library.bpf_link__fd(link)))
            finally:
                # It only closes libbpf's own descriptor: ours keeps the program attached.
                library.bpf_link__destroy(link)
    except OSError as error:
        loaded.close()
        raise BpfError(f"{path.name}: {error.strerror}") from error
    except BaseException:
        loaded.close()
        raise
    finally:
        # This frees all that libbpf keeps of the object.
        library.bpf_object__close(opened)
    return loaded


def _keep(descriptor: int) -> int:
    """Return our own descriptor for what libbpf will close. Raises OSError."""
    return os.dup(descriptor)


def _each(following: Callable[..., int | None], name: Callable[[int], bytes], opened: int) -> dict[str, int]:
    """Return the programs or the maps of an object by name."""
    found: dict[str, int] = {}
    entry = following(opened, None)
    while entry:
        found[name(entry).decode()] = entry
        entry = following(opened, entry)
    return found


def _strerror() -> str:
    return os.strerror(ctypes.get_errno())


def _reason(number: int, message: str) -> str:
    """Return why the kernel or libbpf refused, in one line."""
    # With CAP_BPF alone the verifier refuses what a program does with the kernel's pointers (EACCES).
    if number == errno.EPERM or (number == errno.EACCES and not _may_trace()):
        return NOT_PERMITTED
    if number == errno.ENOSYS:
        return "the kernel is built without it (CONFIG_BPF_SYSCALL)"
    if "bpf_probe_read" in message:
        # The one helper that LOCKDOWN_BPF_READ_KERNEL disables (bpf_base_func_proto, kernel/bpf/helpers.c).
        return f"the kernel is locked down (confidentiality): {message}"
    return message or os.strerror(number)


def _may_trace() -> bool:
    """Return whether this process has CAP_PERFMON, or CAP_SYS_ADMIN, which included it before Linux 5.8."""
    return not missing([Capability.PERFMON], effective())
