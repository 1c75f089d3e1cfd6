from __future__ import annotations

import gzip
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinchpoint.report.pprof import pprof
from pinchpoint.session.stacks import SavedStack

STACKS = [
    SavedStack("write", "osd1", "kv_sync of osd.0", ("main", "write", "memcpy"), 300),
    SavedStack("write", "osd1", "kv_sync of osd.0", ("main", "write"), 7),
]


def fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of the fields of a message."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(raw):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            length = varint()
            yield key >> 3, raw[at : at + length]
            at += length


def test_each_stack_is_a_sample_with_its_functions_innermost_first_and_its_labels() -> None:
    found = list(fields(gzip.decompress(pprof(STACKS))))
    texts = [value.decode() for number, value in found if number == 6 and isinstance(value, bytes)]
    names = {}
    for number, value in found:
        if number == 5 and isinstance(value, bytes):
            function = dict(fields(value))
            names[function[1]] = texts[int(function[2])]
    samples = [list(fields(value)) for number, value in found if number == 2 and isinstance(value, bytes)]

    assert texts[0] == ""
    first = samples[0]
    places = next(value for number, value in first if number == 1)
    assert isinstance(places, bytes)
    assert [names[place] for place in places] == ["memcpy", "write", "main"]
    assert next(value for number, value in first if number == 2) == b"\xac\x02"  # 300
    labels = [dict(fields(value)) for number, value in first if number == 3 and isinstance(value, bytes)]
    assert {texts[int(label[1])]: texts[int(label[2])] for label in labels} == {
        "phase": "write", "host": "osd1", "resource": "kv_sync of osd.0",
    }  # fmt: skip
    assert len(samples) == 2


def test_the_same_stacks_make_the_same_bytes() -> None:
    assert pprof(STACKS) == pprof(STACKS)


@pytest.mark.skipif(shutil.which("go") is None, reason="go, which has pprof, is not installed")
def test_pprof_reads_it(tmp_path: Path) -> None:
    (tmp_path / "profile.pb.gz").write_bytes(pprof(STACKS))
    done = subprocess.run(
        ["go", "tool", "pprof", "-top", "profile.pb.gz"], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    rows = {line.split()[-1]: line.split()[0] for line in done.stdout.splitlines() if line.strip()[:1].isdigit()}
    assert rows == {"memcpy": "300", "write": "7", "main": "0"}
