"""Loading BPF objects: the result, and on failure the message and whatever is left behind."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import shutil
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from descriptors import bpf_ids, exist, open_files
from pinchpoint.bpf import libbpf
from pinchpoint.bpf.libbpf import OBJECTS, BpfError, Loaded, load
from polling import until

Compile = Callable[[str, str], None]

HEAD = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
char LICENSE[] SEC("license") = "GPL";
"""
COUNTER = """
struct { __u64 calls; __u32 by; } state;
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 600);
    __type(key, __u32);
    __type(value, char[12]);
} odd SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 4);
    __type(key, __u32);
    __type(value, __u32);
} known SEC(".maps");
SEC("syscall") int add(void *context)
{
    __u32 last = 599;
    char *entry = bpf_map_lookup_elem(&odd, &last);
    if (entry)
        entry[0] = 'x';
    state.calls += state.by;
    return -(int)state.calls;
}
"""
EVENT = """
SEC("tp_btf/no_such_event") int event(void *context) { return 0; }
"""


@pytest.fixture
def fresh_library() -> Iterator[None]:
    """Look for the library again."""
    libbpf._library.cache_clear()
    yield
    libbpf._library.cache_clear()


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compile:
    """Compile the test's own programs, which replace the package's."""
    if shutil.which("clang") is None or not Path("/usr/include/bpf/bpf_helpers.h").exists():
        pytest.skip("needs clang and libbpf-dev")
    shutil.copy(OBJECTS / "Makefile", tmp_path)
    monkeypatch.setattr(libbpf, "OBJECTS", tmp_path)

    def make(name: str, source: str) -> None:
        (tmp_path / f"{name}.bpf.c").write_text(HEAD + source)
        subprocess.run(["make", "-s", "-C", str(tmp_path)], check=True)

    return make


@pytest.fixture
def allowed() -> None:
    """Skip if the kernel does not accept programs from this process."""
    try:
        load("tasks_iter").close()
    except BpfError as error:
        pytest.skip(str(error))


def why(name: str = "tasks", attach: tuple[str, ...] = ()) -> str:
    """Return the message about an object that cannot be loaded."""
    with pytest.raises(BpfError) as raised:
        load(name, attach=attach)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def entries(loaded: Loaded, name: str) -> dict[bytes, bytes]:
    """Return the entries of a map whose keys and values have 4 bytes."""
    library, descriptor = ctypes.CDLL(libbpf.LIBRARY), loaded._maps[name]
    found: dict[bytes, bytes] = {}
    key, value = ctypes.create_string_buffer(4), ctypes.create_string_buffer(4)
    last = None
    while library.bpf_map_get_next_key(descriptor, last, key) == 0:
        last = key.raw
        assert library.bpf_map_lookup_elem(descriptor, key, value) == 0
        found[last] = value.raw
    return found


@pytest.mark.usefixtures("allowed")
def test_a_program_runs_and_shares_its_memory(compiled: Compile) -> None:
    compiled("counter", COUNTER)
    loaded = load("counter")
    memory = loaded.memory(".bss")
    memory[8:12] = (7).to_bytes(4, sys.byteorder)

    assert [loaded.run("add") for _ in range(3)] == [-7, -14, -21]
    assert int.from_bytes(memory[:8], sys.byteorder) == 21
    assert loaded.memory(".bss") is memory
    # Each entry takes a multiple of eight bytes.
    assert loaded.memory("odd")[599 * 16] == ord("x")
    loaded.close()
    loaded.close()


@pytest.mark.usefixtures("allowed")
def test_entries_of_a_map_come_and_go(compiled: Compile) -> None:
    compiled("counter", COUNTER)
    loaded = load("counter", entries={"known": 2})
    loaded.put("known", b"1234", b"abcd")
    loaded.put("known", b"5678", b"efgh")

    assert entries(loaded, "known") == {b"1234": b"abcd", b"5678": b"efgh"}
    with pytest.raises(BpfError, match=r"^map known: Argument list too long$"):
        loaded.put("known", b"more", b"abcd")
    loaded.drop("known", b"5678")
    loaded.drop("known", b"none")
    assert entries(loaded, "known") == {b"1234": b"abcd"}
    with pytest.raises(BpfError, match="no map nothing"):
        loaded.memory("nothing")
    with pytest.raises(BpfError, match="map known can't be mapped"):
        loaded.memory("known")
    loaded.close()


@pytest.mark.usefixtures("allowed")
def test_nothing_of_a_closed_object_is_left_in_the_kernel() -> None:
    others = bpf_ids()
    loaded = load("tasks_iter", attach=("tell",))
    kept = {kind: numbers - others[kind] for kind, numbers in bpf_ids().items()}
    assert {kind: len(numbers) for kind, numbers in kept.items()} == {"prog": 1, "map": 3, "link": 1}
    loaded.memory(".bss")
    loaded.close()

    assert until(10, lambda: not exist(kept))


@pytest.mark.usefixtures("allowed")
def test_what_libbpf_prints_goes_where_it_went_before_and_keeps_nothing_alive(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    made = []

    class Watched(libbpf._Messages):
        def __init__(self) -> None:
            super().__init__()
            made.append(weakref.ref(self))

    monkeypatch.setattr(libbpf, "_Messages", Watched)
    gc.disable()
    try:
        load("tasks_iter").close()
        assert [messages() for messages in made] == [None]
    finally:
        gc.enable()
    libbpf._library().bpf_object__open_file(b"/dev/null", None)

    assert "libbpf: " in capfd.readouterr().err


@pytest.mark.usefixtures("fresh_library")
def test_a_machine_without_libbpf_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libbpf, "LIBRARY", "libbpf-there-is-none.so.1")

    assert why().startswith("no libbpf-there-is-none.so.1 (")


@pytest.mark.usefixtures("fresh_library")
def test_a_libbpf_of_another_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        libbpf._library()
    except BpfError as error:
        pytest.skip(str(error))
    libbpf._library.cache_clear()
    monkeypatch.setattr(libbpf, "_FUNCTIONS", {**libbpf._FUNCTIONS, "bpf_object__of_2050": (None, ())})

    assert why().startswith("libbpf.so.1 is of another version: ")
    assert "bpf_object__of_2050" in why()


def test_without_the_objects_it_is_said_how_they_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libbpf, "OBJECTS", tmp_path)

    assert why() == f"no tasks.bpf.o in {tmp_path}: it is made by `make bpf`, which needs clang and libbpf-dev"


@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize("damage", [lambda raw: b"", lambda raw: b"x" * len(raw), lambda raw: raw[:3000]])
def test_a_damaged_object_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]
) -> None:
    raw = (OBJECTS / "tasks.bpf.o").read_bytes()
    (tmp_path / "tasks.bpf.o").write_bytes(damage(raw))
    monkeypatch.setattr(libbpf, "OBJECTS", tmp_path)

    assert why().startswith("tasks.bpf.o can't be opened: elf: ")


@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            'int where; SEC("syscall") int walk(void *context) { return *(int *)(long)where; }',
            r"can't be loaded: R\d invalid mem access '.*'",
        ),
        (
            "struct task_struct { int of_2050; } __attribute__((preserve_access_index));"
            'SEC("syscall") int walk(void *context)'
            "{ return ((struct task_struct *)bpf_get_current_task_btf())->of_2050; }",
            r"can't be loaded: failed to resolve CO-RE relocation <byte_off> .* struct task_struct\.of_2050 .*",
        ),
        (
            'extern int bpf_of_2050(void) __ksym; SEC("syscall") int walk(void *context) { return bpf_of_2050(); }',
            r"can't be loaded: extern \(func ksym\) 'bpf_of_2050': not found in kernel.*",
        ),
        (
            "struct { __uint(type, 9999); __uint(max_entries, 1); __type(key, int); __type(value, int); }"
            'last SEC(".maps"); SEC("syscall") int walk(void *context) { return 0; }',
            r"can't be loaded: map 'last': failed to create: Invalid argument.*",
        ),
    ],
    ids=["verifier", "field", "function", "map"],
)
def test_what_the_kernel_has_not_or_refuses_is_said_in_one_line(compiled: Compile, source: str, reason: str) -> None:
    compiled("walk", source)

    with pytest.raises(BpfError, match=f"^{reason}$"):
        load("walk")


@pytest.mark.usefixtures("allowed")
def test_an_object_of_the_other_byte_order_is_refused(compiled: Compile, tmp_path: Path) -> None:
    makefile = (tmp_path / "Makefile").read_text()
    (tmp_path / "Makefile").write_text(makefile.replace("bpfel", "bpfeb" if sys.byteorder == "little" else "bpfel"))
    compiled("walk", 'SEC("syscall") int walk(void *context) { return 0; }')

    assert "endianness mismatch" in why("walk")


@pytest.mark.usefixtures("allowed")
def test_an_event_that_is_not_there_can_not_be_attached_to(compiled: Compile) -> None:
    compiled("event", EVENT)

    assert "no_such_event" in why("event", attach=("event",))


@pytest.mark.usefixtures("allowed")
def test_a_failure_at_any_step_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    duplicate = os.dup
    left = 0

    def scarce(descriptor: int) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return duplicate(descriptor)

    monkeypatch.setattr("pinchpoint.bpf.libbpf.os.dup", scarce)
    before = open_files()
    # Three maps, a program and a link.
    for step in range(5):
        left = step
        assert why("tasks_iter", attach=("tell",)) == "tasks_iter.bpf.o: Too many open files"
        assert open_files() == before
    left = 5
    load("tasks_iter", attach=("tell",)).close()


@pytest.mark.usefixtures("allowed")
def test_a_link_that_is_refused_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(program: int) -> None:
        ctypes.set_errno(errno.EPERM)

    monkeypatch.setattr(libbpf._library(), "bpf_program__attach", refuse)

    assert why("tasks_iter", attach=("tell",)).startswith("tell can't be attached: not permitted: needs CAP_BPF")


@pytest.mark.parametrize(
    ("number", "message", "traces", "said"),
    [
        (errno.EPERM, "prog 'walk': load failed", True, "not permitted: needs CAP_BPF"),
        (errno.EACCES, "R6 pointer comparison prohibited", False, "not permitted: needs CAP_BPF"),
        (errno.EACCES, "R6 pointer comparison prohibited", True, "R6 pointer comparison prohibited"),
        (errno.EINVAL, "unknown func bpf_probe_read_kernel#113", True, "the kernel is locked down"),
        (errno.ENOSYS, "", True, "the kernel is built without it"),
    ],
)
def test_a_refusal_is_told_by_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, number: int, message: str, traces: bool, said: str
) -> None:
    monkeypatch.setattr(libbpf, "_may_trace", lambda: traces)

    assert libbpf._reason(number, message).startswith(said)


def test_a_long_log_of_the_verifier_is_told_by_its_end() -> None:
    messages = libbpf._Messages()
    messages.lines += [
        "libbpf: prog 'walk': BPF program load failed: Permission denied",
        "libbpf: prog 'walk': -- BEGIN PROG LOAD LOG --",
        *("0: R1=ctx() R10=fp0" for _ in range(10_000)),
        "R1  invalid\tmem access",
        "processed 5 insns (limit 1000000)",
        "-- END PROG LOAD LOG --",
        "libbpf: failed to load object",
    ]

    assert messages.reason() == "R1 invalid mem access"
    messages.lines[1:] = []
    assert messages.reason() == "prog 'walk': BPF program load failed: Permission denied"
    messages.lines.clear()
    assert messages.reason() == ""


def test_objects_are_compiled_again_when_a_header_changes(compiled: Compile, tmp_path: Path) -> None:
    (tmp_path / "number.h").write_text("#define NUMBER 1\n")
    compiled("walk", '#include "number.h"\nSEC("syscall") int walk(void *context) { return NUMBER; }')
    made = tmp_path / "walk.bpf.o"
    first = made.read_bytes()
    subprocess.run(["make", "-s", "-C", str(tmp_path)], check=True)
    assert made.read_bytes() == first
    (tmp_path / "number.h").write_text("#define NUMBER 2\n")
    later = made.stat().st_mtime + 2
    os.utime(tmp_path / "number.h", (later, later))
    subprocess.run(["make", "-s", "-C", str(tmp_path)], check=True)

    assert made.read_bytes() != first
    assert not list(tmp_path.glob("*.new"))


def test_a_compiler_that_fails_leaves_no_object(compiled: Compile, tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        compiled("walk", "this is not C")

    assert not (tmp_path / "walk.bpf.o").exists()
