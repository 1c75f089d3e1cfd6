from __future__ import annotations

import gzip
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.session.stacks import (
    MAX_FUNCTIONS_PER_STACK,
    MAX_PHASE_STACKS,
    MAX_SAVED_BYTES,
    STACKS_FILE,
    SavedStack,
    StackKeeper,
    parse_stacks,
    saved_stacks,
    stacks_of,
)
from pinchpoint.wire.sources import SourceError

KV_SYNC = "kv_sync of osd.0;main;rocksdb::DBImpl::Write(rocksdb::WriteOptions const&);memcpy 30\n"


class Said:
    """Who has stacks."""

    def __init__(self, name: str, text: str | None) -> None:
        self.name, self._text = name, text

    def stacks(self, seconds: float) -> str:
        if self._text is None:
            raise SourceError(self.name, "down")
        return f"{self._text};{seconds:.0f} 1\n"


def keeper(directory: Path) -> tuple[StackKeeper, list[str]]:
    warnings: list[str] = []
    return StackKeeper(directory, warnings.append), warnings


def test_stacks_come_back_with_their_phase_and_host(tmp_path: Path) -> None:
    kept, warnings = keeper(tmp_path)
    kept.add("ior_easy_write", {"osd1:9748": KV_SYNC})
    kept.add("find;all\n", {"osd2": "mds_lock of mds.a;main 7\n"})

    assert saved_stacks(tmp_path) == [
        SavedStack(
            "ior_easy_write", "osd1:9748", "kv_sync of osd.0",
            ("main", "rocksdb::DBImpl::Write(rocksdb::WriteOptions const&)", "memcpy"), 30,
        ),
        SavedStack("find:all ", "osd2", "mds_lock of mds.a", ("main",), 7),
    ]  # fmt: skip
    assert (
        "".join(f"{stack.line}\n" for stack in saved_stacks(tmp_path))
        == gzip.decompress((tmp_path / STACKS_FILE).read_bytes()).decode()
    )
    assert not warnings


def test_a_run_without_full_threads_has_no_file(tmp_path: Path) -> None:
    kept, _ = keeper(tmp_path)
    kept.add("write", {})
    kept.add("write", {"a": "not a stack\nkv_sync 3\nx;y -1\nx;\x1b[31m 3\n"})

    assert not (tmp_path / STACKS_FILE).exists()
    assert saved_stacks(tmp_path) == []


def test_only_the_most_frequent_stacks_of_a_phase_are_kept(tmp_path: Path) -> None:
    kept, _ = keeper(tmp_path)
    kept.add("write", {"a": "".join(f"r of o;f{number} {number}\n" for number in range(1, MAX_PHASE_STACKS + 10))})

    found = saved_stacks(tmp_path)
    assert len(found) == MAX_PHASE_STACKS
    assert min(stack.samples for stack in found) == 10


def test_more_than_a_run_may_have_is_left_out_and_said(tmp_path: Path) -> None:
    kept, warnings = keeper(tmp_path)
    text = "".join(f"r of o;{number:03}{'f' * 3900} 1\n" for number in range(900))
    for number in range(MAX_SAVED_BYTES // len(text) + 1):
        kept.add(f"phase{number}", {"a": text})

    (warning,) = warnings
    assert "more than 32 MiB of stacks" in warning


def test_a_directory_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    kept, warnings = keeper(tmp_path / "gone")
    kept.add("write", {"a": KV_SYNC})

    assert len(warnings) == 1
    assert "No such file or directory: stacks of full threads are not saved" in warnings[0]


def test_a_damaged_file_has_what_comes_before_the_damage(tmp_path: Path) -> None:
    kept, _ = keeper(tmp_path)
    kept.add("one", {"a": KV_SYNC})
    whole = (tmp_path / STACKS_FILE).read_bytes()
    kept.add("two", {"a": KV_SYNC})
    both = (tmp_path / STACKS_FILE).read_bytes()

    (tmp_path / STACKS_FILE).write_bytes(both[: len(whole)] + b"\xff" * 20)
    assert [stack.phase for stack in saved_stacks(tmp_path)] == ["one"]
    (tmp_path / STACKS_FILE).write_bytes(gzip.compress(bytes(200 << 20), mtime=0))
    assert saved_stacks(tmp_path) == []


def test_hosts_that_do_not_answer_have_no_stacks() -> None:
    found = stacks_of([Said("a", "x of y;f"), Said("b", None), Said("c", "x of z;g")], 60.0)

    assert found == {"a": "x of y;f;60 1\n", "c": "x of z;g;60 1\n"}
    assert stacks_of([], 60.0) == {}


@given(st.text() | st.text(alphabet="a;0 \n"))
def test_any_text_is_read_or_left_out(text: str) -> None:
    for stack in parse_stacks(text):
        assert 1 <= len(stack.functions) <= MAX_FUNCTIONS_PER_STACK
        assert stack.samples >= 0
