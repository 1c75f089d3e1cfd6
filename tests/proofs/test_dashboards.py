"""The dashboards' queries on a live cluster: what tests ask of its recording at every change."""

from __future__ import annotations

from pathlib import Path

import pytest

from scene import scene
from seen import ASKED, Seen

GROUP = "Dashboards"


@pytest.mark.long
def test_every_query_gives_something_unless_there_is_a_reason(tmp_path: Path) -> None:
    with scene(tmp_path) as played:
        seen = Seen.by(played.stack.urls["prometheus"], played.end)

        assert [problem for asked in ASKED if (problem := seen.problem(asked))] == []
