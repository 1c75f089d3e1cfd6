"""No bytes break a reader: whatever comes is read or rejected, in time and memory that follow its length."""

from __future__ import annotations

import ast
import random
import re
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pinchpoint
from linear import END, ENOUGH, costs_more_than_its_length
from readers import READERS, Reader, reader_named

SOURCES = Path(pinchpoint.__file__).parent
FOUND = Path(__file__).parent / "fixtures" / "found"
BYTES = {"bytes", "bytearray", "memoryview"}
NOT_FOREIGN = {
    "benchmarks.detector.Followed._finish": "cuts off lines for a benchmark's reader",
    "benchmarks.shared_directory.replace_file": "a marker that we write",
    "benchmarks.talk.ask_in": "what the exporter asks its own helper",
    "bpf.libbpf._Messages.__init__.keep": "messages of libbpf in this process",
    "bpf.libbpf.Loaded.drop": "a key that we make",
    "bpf.libbpf.Loaded.put": "a key and a value that we make",
    "bpf.tasks.BpfSource._comm": "a name of 16 bytes, which `procfs.decode` makes printable",
    "bpf.tasks.BpfSource._named": "a name of 16 bytes, for `_comm`",
    "bpf.tasks.BpfSource._newcomer": "a name of 16 bytes, for `_comm`",
    "bpf.tasks.BpfSource._stranger": "a name of 16 bytes, for `_comm`",
    "bpf.tasks._BpfTask.__init__": "a name of 16 bytes, which is only compared",
    "experiment.durable.write": "a file that we write",
    "commands.exporter._Command.parse_args": "the administrator's command line",
    "commands.options.parse_duration": "the caller's command line",
    "commands.options.parse_url": "the caller's command line",
    "commands.replay._Replay.press": "keys that the caller presses",
    "host.confine._filter": "a program for the kernel that we make",
    "host.netlink.Netlink._dump": "a request that we make; the answers are for the parser that it is given",
    "host.netlink.Netlink.dump": "a request that we make",
    "judge.targets.parse_targets": "the administrator's list; its tests try any text",
    "profile.kernel._function": "a name that the kernel prints, which `procfs.decode` makes printable",
    "profile.perf_events._perf_event_open": "attributes that we make",
    "report.pprof._message": "a file that we write",
    "session.store._replace": "a record that we write",
    "session.supervise._write": "output that is passed on as it is",
    "terminal.screen._ignore": "keys that the caller presses",
    "waits.kernel_looks.KernelLooks._parked": "names of the kernel's functions, for the reader `stack`",
    "wire.backfill._read": "our own temporary file",
    "wire.backfill._write": "our own temporary file",
    "wire.fetch.Fetcher.send": "a document that we make; the answer is for its caller's reader",
    "wire.http_config._context": "the caller's certificates and key",
    "wire.http_config.parse_http_config": "the caller's file; its tests try any bytes",
    "wire.protection._context": "the administrator's certificates and key",
    "wire.recording.Recorder._append": "a moment that we write",
    "wire.tls.Pair.__init__": "our own certificate and key",
    "wire.tls._in_memory": "our own certificate or key",
    "wire.tls.authorities": "the administrator's certificates",
    "wire.web_config.parse_web_config": "the administrator's file; its tests try any bytes",
    "wire.yamlfile.decode_yaml": "for these two files",
}
"""Functions that take bytes and need no reader, with the reason."""
MAX_INPUT_BYTES = 1 << 16
SHORT, LONG = 1 << 12, 1 << 16
"""Lengths in bytes: inputs that are four times as long take at most eight times as long, up to 256 KiB."""
MAX_HELD_BYTES = 25 << 20
"""Memory that a reader may use at once for an input of twice the longer one."""
SAMPLED_SEEDS = 8
TOKENS = (
    *(b"{", b"}", b"[", b"]", b'"', b"\\", b"${", b"(", b",", b":", b"=", b"%", b"/", b"-", b"\0", b"\n", b"\r", b" "),
    *(b"\xff", b"\xc2", b"\xed\xa0\x80", b"0", b"-1", b"1e999", b"nan", b"9" * 400, b"null", b"\xd9\xa3", b"[" * 3000),
)
"""Bytes that mean something to many formats, or are out of bounds in them."""

ELEMENT = re.compile(r'\{[^{}]*\},|\[[^][]*\],|"[^"]*": ?[^][{},]*,|[^\n]*\n')
"""A part of a document that may come again: an element of JSON, or a line."""

EACH = pytest.mark.parametrize("reader", READERS, ids=[reader.name for reader in READERS])


def attempt(reader: Reader, raw: bytes) -> None:
    """Read bytes that may be foreign: to reject them is fine."""
    try:
        reader.read(raw)
    except reader.rejects:
        pass


@cache
def seeds_of(reader: Reader) -> Sequence[bytes]:
    """Return some of the seeds of a reader, short enough to be read often, and what was found for it."""
    seeds = sorted(reader.seeds(), key=len)
    some = seeds if len(seeds) <= SAMPLED_SEEDS else random.Random(reader.name).sample(seeds, SAMPLED_SEEDS)
    found = [path.read_bytes() for path in sorted(FOUND.glob(f"{reader.name}/*"))]
    return [seed[:MAX_INPUT_BYTES] for seed in (*some, *found)]


# Changes of a seed; places are shares of its length.


def cut(first: float, second: float, raw: bytes) -> bytes:
    start, end = sorted((int(first * len(raw)), int(second * len(raw))))
    return raw[:start] + raw[end:]


def repeat(first: float, second: float, times: int, raw: bytes) -> bytes:
    start, end = sorted((int(first * len(raw)), int(second * len(raw))))
    return (raw[:end] + raw[start:end] * times + raw[end:])[:MAX_INPUT_BYTES]


def splice(at: float, other: bytes, first: float, second: float, raw: bytes) -> bytes:
    place = int(at * len(raw))
    start, end = sorted((int(first * len(other)), int(second * len(other))))
    return raw[:place] + other[start:end] + raw[place:]


def flip(at: float, bits: int, raw: bytes) -> bytes:
    place = int(at * len(raw))
    return raw[:place] + bytes(byte ^ bits for byte in raw[place : place + 1]) + raw[place + 1 :]


def changed(seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    place = st.floats(0, 1)
    seed = st.sampled_from(seeds)
    change: st.SearchStrategy[Callable[[bytes], bytes]] = st.one_of(
        st.builds(partial, st.just(cut), place, place),
        st.builds(partial, st.just(repeat), place, place, st.integers(1, 8)),
        st.builds(partial, st.just(splice), place, seed | st.sampled_from(TOKENS), place, place),
        st.builds(partial, st.just(splice), place, st.sampled_from(TOKENS), st.just(0.0), st.just(1.0)),
        st.builds(partial, st.just(flip), place, st.integers(1, 255)),
    )

    def apply(raw: bytes, changes: Sequence[Callable[[bytes], bytes]]) -> bytes:
        for one in changes:
            raw = one(raw)
        return raw

    return st.binary(max_size=300) | st.builds(apply, seed, st.lists(change, max_size=6))


def grown(reader: Reader) -> Iterator[tuple[str, str, str]]:
    """Yield long inputs: a beginning, the part of a seed that comes again and again, and an end."""
    for seed in [raw.decode("latin-1") for raw in seeds_of(reader)[:2]]:
        line = seed.partition("\n")[0] + "\n"
        yield from (("", part, END) for part in (seed[:200], line, seed[:3]) if part)
        elements = random.Random(seed).sample(found, 3) if len(found := [*ELEMENT.finditer(seed)]) > 3 else found
        yield from ((seed[: element.start()], element[0], seed[element.start() :]) for element in elements)


def longest(reader: Reader) -> tuple[str, str, str]:
    """Return the one for lengths that take long: a whole seed, or an element in the middle of a document."""
    return [*grown(reader)][-1]


def nested(reader: Reader) -> Iterator[tuple[str, str, str]]:
    """Yield long inputs of what formats nest, quote or fill up with, also within a seed."""
    for seed in ["", *(raw.decode("latin-1")[: SHORT // 2] for raw in seeds_of(reader)[:2])]:
        half = len(seed) // 2
        yield from ((seed[:half], token.decode("latin-1"), seed[half:]) for token in TOKENS if len(token) < 10)


@EACH
def test_its_seeds_are_of_its_format(reader: Reader) -> None:
    seeds = reader.seeds()
    accepted = 0
    for seed in seeds:
        try:
            reader.read(seed)
        except reader.rejects:
            continue
        accepted += 1

    assert seeds
    assert accepted or reader.name == "prometheus-error"


@EACH
def test_whatever_comes_is_read_or_rejected(reader: Reader) -> None:
    @given(changed(seeds_of(reader)))
    def check(raw: bytes) -> None:
        attempt(reader, raw)

    check()


@EACH
def test_time_follows_the_length(reader: Reader) -> None:
    def work(text: str) -> None:
        attempt(reader, text.encode("latin-1"))

    short = partial(costs_more_than_its_length, work, length=SHORT, enough=10 * ENOUGH)
    long = partial(costs_more_than_its_length, work, length=LONG, enough=100 * ENOUGH)

    assert next((text for text in (*grown(reader), *nested(reader)) if short(*text)), None) is None
    assert not long(*longest(reader))


@EACH
def test_memory_is_bounded(reader: Reader) -> None:
    start, part, end = longest(reader)
    raw = (start + part * (2 * LONG // len(part)) + end).encode("latin-1")
    attempt(reader, b"")  # what it imports and remembers once does not count
    tracemalloc.start()
    try:
        attempt(reader, raw)
        assert tracemalloc.get_traced_memory()[1] < MAX_HELD_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("path", sorted(FOUND.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_once_broke_a_reader_does_so_no_more(path: Path) -> None:
    attempt(reader_named(path.parent.name), path.read_bytes())


# Which functions have a reader.


def names_in(annotation: ast.expr) -> Iterator[str]:
    """Yield the names in an annotation, except what functions in it take."""
    match annotation:
        case ast.Name(id=name):
            yield name
        case ast.Subscript(value=ast.Name(id="Callable")):
            return
        case _:
            for part in ast.iter_child_nodes(annotation):
                if isinstance(part, ast.expr):
                    yield from names_in(part)


def functions(node: ast.AST, inside: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for child in ast.iter_child_nodes(node):
        name = f"{inside}.{child.name}" if isinstance(child, ast.FunctionDef | ast.ClassDef) else inside
        if isinstance(child, ast.FunctionDef):
            yield name, child
        yield from functions(child, name)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCES).with_suffix("").parts)


def taking_bytes() -> Iterator[str]:
    """Yield the functions of the package that parse something, by their names or because they take bytes."""
    for path in sorted(SOURCES.rglob("*.py")):
        for name, function in functions(ast.parse(path.read_text()), module_of(path)):
            given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            takes = {word for one in given if one.annotation is not None for word in names_in(one.annotation)}
            abstract = any(isinstance(one, ast.Name) and one.id == "abstractmethod" for one in function.decorator_list)
            if (takes & BYTES or function.name.startswith("parse_")) and not abstract:
                yield name


def called() -> set[str]:
    """Return the functions of the package that the readers call for their seeds."""
    found: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            found.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    for reader in READERS:
        for seed in seeds_of(reader):
            sys.setprofile(note)
            try:
                attempt(reader, seed)
            finally:
                sys.setprofile(None)
    return {
        f"{module_of(Path(file))}.{name.replace('.<locals>', '')}"
        for file, name in found
        if Path(file).is_relative_to(SOURCES)
    }


def test_every_function_that_takes_bytes_is_reached_by_a_reader_or_reads_nothing_foreign() -> None:
    taking, reached = set(taking_bytes()), called()

    assert taking - reached - set(NOT_FOREIGN) == set()
    assert set(NOT_FOREIGN) - taking == set(), "these are gone"
    assert set(NOT_FOREIGN) & reached == set(), "these have a reader"
    assert len(taking) > 80
