from __future__ import annotations

from base64 import b64encode
from threading import Event, Thread

import bcrypt
import pytest

from pinchpoint.wire.basic_auth import (
    FORGIVE_SECONDS,
    MAX_KNOWN_WRONG,
    MAX_WAITING,
    WRONG_CPU_SECONDS,
    WRONG_CPU_SHARE,
    Answer,
    Passwords,
    credentials,
)
from polling import until

CHECK_SECONDS = 0.07
"""CPU seconds of a check in these tests."""


class Clocked:
    """Passwords whose checks take `CHECK_SECONDS` of a clock that a test sets; a password's hash is the password."""

    def __init__(self) -> None:
        self.now = 0.0
        self.cpu = 0.0
        self.checked: list[tuple[bytes, bytes]] = []
        self.users = {"alice": "right", "bob": "other"}
        self.passwords = Passwords(lambda: self.now, lambda: self.cpu, self._matches)

    def _matches(self, password: bytes, hashed: bytes) -> bool:
        self.checked.append((password, hashed))
        self.cpu += CHECK_SECONDS
        return password == hashed

    def ask(self, user: str, password: str, peer: str = "192.0.2.1") -> Answer:
        return self.passwords.check(self.users, user, password.encode(), peer)


def basic(user_and_password: bytes) -> str:
    return f"Basic {b64encode(user_and_password).decode()}"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (basic(b"a:b"), ("a", b"b")),
        (basic(b"a:b:c"), ("a", b"b:c")),
        (basic(b":"), ("", b"")),
        (basic(b"a:b").replace("Basic", "bAsIc"), ("a", b"b")),
        (basic("é:\xff".encode("latin-1").replace(b"\xe9", "é".encode())), ("é", b"\xff")),
        ("", None),
        ("Basic", None),
        ("Basic %%%", None),
        ("Basic é", None),
        (basic(b"no colon"), None),
        (basic(b"\xff:a"), None),
        ("Bearer YTpi", None),
    ],
)
def test_a_header_has_credentials_or_none(header: str, expected: object) -> None:
    assert credentials(header) == expected


def test_real_hashes_are_checked_and_only_the_first_72_bytes_count_as_in_bcrypt() -> None:
    users = {"alice": bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode().replace("$2b$", "$2y$")}
    passwords = Passwords()

    assert passwords.check(users, "alice", b"x" * 80, "a") is Answer.RIGHT
    assert passwords.check(users, "alice", b"x" * 71, "a") is Answer.WRONG
    assert passwords.check(users, "alice", b"\0", "a") is Answer.WRONG


def test_an_outcome_is_remembered_right_or_wrong() -> None:
    clocked = Clocked()
    for _ in range(3):
        assert clocked.ask("alice", "right") is Answer.RIGHT
        assert clocked.ask("alice", "wrong") is Answer.WRONG

    assert len(clocked.checked) == 2


def test_a_changed_hash_is_checked_anew() -> None:
    clocked = Clocked()
    assert clocked.ask("alice", "right") is Answer.RIGHT
    clocked.users["alice"] = "new"

    assert clocked.ask("alice", "right") is Answer.WRONG
    assert clocked.ask("alice", "new") is Answer.RIGHT


def test_a_removed_user_is_wrong_at_once() -> None:
    clocked = Clocked()
    assert clocked.ask("alice", "right") is Answer.RIGHT
    del clocked.users["alice"]

    assert clocked.ask("alice", "right") is Answer.WRONG


def test_an_unknown_user_costs_a_check_against_a_hash_of_some_user_and_is_never_right() -> None:
    clocked = Clocked()
    assert clocked.ask("eve", "right") is Answer.WRONG
    assert clocked.ask("eve", "other") is Answer.WRONG

    assert [hashed for _, hashed in clocked.checked] in ([b"right"] * 2, [b"other"] * 2)


def test_a_flood_of_wrong_passwords_costs_no_more_than_its_budget() -> None:
    clocked = Clocked()
    hour = 3600
    for second in range(hour):
        clocked.now = second
        for number in range(20):
            clocked.ask("alice", f"{second} {number}", f"192.0.2.{number}")

    most = WRONG_CPU_SECONDS + WRONG_CPU_SHARE * hour + CHECK_SECONDS
    assert clocked.passwords.cpu_seconds == pytest.approx(clocked.cpu)
    assert 0.8 * most < clocked.cpu <= most


def test_a_flood_from_one_address_leaves_a_check_for_others() -> None:
    clocked = Clocked()
    for number in range(1000):
        clocked.ask("alice", str(number), "192.0.2.66")
    assert clocked.ask("alice", "right", "192.0.2.66") is Answer.UNCHECKED

    assert clocked.ask("alice", "right", "192.0.2.1") is Answer.RIGHT


def test_a_password_known_to_be_right_is_accepted_in_a_flood() -> None:
    clocked = Clocked()
    assert clocked.ask("alice", "right") is Answer.RIGHT
    for number in range(1000):
        clocked.ask("alice", str(number), f"192.0.2.{number}")
    assert clocked.ask("bob", "other") is Answer.UNCHECKED

    assert clocked.ask("alice", "right") is Answer.RIGHT


def test_whoever_was_wrong_is_forgiven_later() -> None:
    clocked = Clocked()
    for number in range(1000):
        clocked.ask("alice", str(number))
    clocked.now = FORGIVE_SECONDS

    assert clocked.ask("alice", "right") is Answer.RIGHT


def test_what_is_remembered_is_bounded() -> None:
    clocked = Clocked()
    for number in range(3 * MAX_KNOWN_WRONG):
        clocked.now += 10.0
        assert clocked.ask("alice", str(number)) is Answer.WRONG
    before = len(clocked.checked)
    assert clocked.ask("alice", "0") is Answer.WRONG

    assert len(clocked.checked) == before + 1


def test_checks_happen_one_after_the_other_and_few_wait() -> None:
    may_end = Event()
    at_once: list[int] = []
    under_way = 0

    def matches(password: bytes, hashed: bytes) -> bool:
        nonlocal under_way
        under_way += 1
        at_once.append(under_way)
        may_end.wait(60)
        under_way -= 1
        return False

    passwords = Passwords(matches=matches)
    answers: list[Answer] = []

    def ask(number: int) -> None:
        answers.append(passwords.check({"a": "x"}, "a", str(number).encode(), str(number)))

    threads = [Thread(target=ask, args=(number,)) for number in range(MAX_WAITING + 5)]
    for thread in threads:
        thread.start()
    assert until(10, lambda: len(answers) == 5, 0.01)
    assert set(answers) == {Answer.UNCHECKED}
    may_end.set()
    for thread in threads:
        thread.join()

    assert set(at_once) == {1}
    assert answers.count(Answer.WRONG) == MAX_WAITING


def test_the_same_password_of_several_requests_at_once_is_checked_once() -> None:
    may_end = Event()
    checked: list[bytes] = []

    def matches(password: bytes, hashed: bytes) -> bool:
        checked.append(password)
        may_end.wait(60)
        return True

    passwords = Passwords(matches=matches)
    answers: list[Answer] = []
    threads = [Thread(target=lambda: answers.append(passwords.check({"a": "x"}, "a", b"p", "peer"))) for _ in range(5)]
    for thread in threads:
        thread.start()
    may_end.set()
    for thread in threads:
        thread.join()

    assert answers == [Answer.RIGHT] * 5
    assert len(checked) == 1
