"""The committed dashboards equal the generated ones."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from dashboards.boards import BOARDS, generated

NAMES = ["bottleneck", "threads", "power", "mds", "osd", "clients", "runs", "wall"]
"""In a reader's order of questions."""


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return generated()


@pytest.fixture(scope="module")
def boards(texts: dict[str, str]) -> dict[str, dict[str, Any]]:
    return {name: json.loads(text) for name, text in texts.items()}


def test_there_are_eight_dashboards_in_the_order_of_the_questions() -> None:
    assert [module.__name__.rpartition(".")[2] for module in BOARDS] == NAMES


def test_made_twice_they_are_the_same(texts: dict[str, str]) -> None:
    assert generated() == texts


@pytest.mark.parametrize("key", ["uid", "title", "description"])
def test_no_two_dashboards_have_the_same(key: str, boards: dict[str, dict[str, Any]]) -> None:
    assert [value for value, count in Counter(board[key] for board in boards.values()).items() if count > 1] == []


def test_uids_are_those_that_links_and_home_pages_know(boards: dict[str, dict[str, Any]]) -> None:
    assert {name: board["uid"] for name, board in boards.items()} == {
        name: f"pinchpoint-{name.removesuffix('.json')}" for name in boards
    }
