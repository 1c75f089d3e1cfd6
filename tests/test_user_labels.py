from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.user_labels import MAX_LABEL_BYTES, marked, split_user, user_mark, user_of

UIDS = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize(
    ("label", "user"),
    [
        ("fio@uid1000", 1000),
        ("fio@uid0@uid1000", 1000),
        ("@uid1000", 1000),
        ("fio", None),
        ("fio@uid", None),
        ("fio@uid1000x", None),
        ("fio@uid1000\n", None),
        ("fio@uid-1", None),
        ("fio@uid12345678901", None),
        ("fio@uid\u0661", None),
    ],
)
def test_the_last_mark_of_a_label_says_whose_it_is(label: str, user: int | None) -> None:
    assert user_of(label) == user


def test_a_mark_is_added_once() -> None:
    assert marked("fio", "@uid1000") == marked("fio@uid1000", "@uid1000") == "fio@uid1000"
    assert marked("fio@uid1000", "@uid1001") == "fio@uid1000@uid1001"
    assert marked("fio@uid1000", "") == "fio@uid1000"


@given(st.text(max_size=400), UIDS)
def test_whatever_a_user_chooses_the_label_is_that_users_and_not_too_long(name: str, uid: int) -> None:
    label = marked(name, user_mark(uid))

    assert user_of(label) == uid
    assert split_user(label)[1] == user_mark(uid)
    assert len(label.encode("utf-8", "replace")) <= MAX_LABEL_BYTES or label == name


@given(st.text(max_size=40))
def test_a_label_is_its_name_and_its_mark(label: str) -> None:
    assert "".join(split_user(label)) == label
