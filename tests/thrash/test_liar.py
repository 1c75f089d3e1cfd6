from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinchpoint.ceph.asok import AdminSocketError, Conversation, Question
from thrash.faults import liar
from thrash.liar import LIES


@pytest.fixture(params=range(len(LIES)), ids=[lie.__name__ for lie in LIES])
def lying(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[int, Path]]:
    path = tmp_path / "ceph-osd.77.asok"
    with subprocess.Popen(liar(path, request.param, "77"), stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        yield request.param, path
        process.terminate()
    assert process.returncode == 0
    assert not path.exists()


def test_it_answers_nothing_that_is_true_and_ends_when_it_is_told_to(lying: tuple[int, Path]) -> None:
    lie, path = lying
    with Conversation(path, Question("perf dump")) as conversation:
        if LIES[lie].__name__ == "deep":
            assert conversation.answer(60.0).startswith(b'{"osd":' * 1000)
            return
        with pytest.raises(AdminSocketError) as caught:
            conversation.answer(0.5 if LIES[lie].__name__ == "trickled" else 60.0)

    assert caught.value.reason == {"torn": "refused", "trickled": "silent", "endless": "too_large"}[LIES[lie].__name__]
