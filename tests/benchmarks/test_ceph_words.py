from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.benchmarks.ceph_words import words


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        ("rados bench -p rbd 60 write", ["bench", "60", "write"]),
        ("rados -p bench --show-time --no-hints bench -t16 --pool=rbd 60 seq", ["bench", "60", "seq"]),
        ("rbd --id admin bench --io-type write pool/image", ["bench", "pool/image"]),
        ("ceph -f json --verbose tell osd.0 bench", ["tell", "osd.0", "bench"]),
        ("rados - -p", ["-"]),
        ("rados", []),
        ("", []),
    ],
)
def test_options_and_their_values_are_left_out(argv: str, found: list[str]) -> None:
    assert words(argv.split()) == found


@given(st.lists(st.text(max_size=5)))
def test_nothing_raises(argv: list[str]) -> None:
    assert set(words(argv)) <= set(argv)
