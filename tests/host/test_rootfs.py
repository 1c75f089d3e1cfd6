from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pinchpoint.host.rootfs import Rights, list_in_root, open_in_root, read_piece


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root directory with a file, beside a file that must not be reachable from inside."""
    (tmp_path / "secret").write_text("ours")
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc" / "conf").write_text("theirs")
    return root


def text(root: Path, path: str) -> str:
    with open_in_root(root, path) as descriptor:
        return read_piece(descriptor, 0, 100).decode()


def refusal(root: Path, path: str) -> int:
    with pytest.raises(OSError) as caught, open_in_root(root, path):  # noqa: PT011
        pass
    return caught.value.errno or 0


@pytest.fixture(autouse=True)
def no_descriptor_stays() -> Iterator[None]:
    before = os.listdir("/proc/self/fd")
    yield
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("path", ["etc/conf", "/etc/conf", "//etc/conf", "///etc//./conf", "./etc/../etc/conf"])
def test_a_path_begins_at_the_root(root: Path, path: str) -> None:
    assert text(root, path) == "theirs"


@pytest.mark.parametrize(
    "path", ["../secret", "/../secret", "etc/../../secret", "../../../../../secret", "//../secret"]
)
def test_nothing_is_above_the_root(root: Path, path: str) -> None:
    assert refusal(root, path) == errno.ENOENT


@pytest.mark.parametrize("slashes", ["", "/", "//"])
def test_an_absolute_path_is_not_one_of_ours(root: Path, slashes: str) -> None:
    assert refusal(root, f"{slashes}{root.parent}/secret") == errno.ENOENT


@pytest.mark.parametrize("target", ["/etc/conf", "//etc/conf", "etc/conf", "../../../etc/conf", "etc/./conf"])
def test_a_link_leads_where_it_leads_for_who_lives_there(root: Path, target: str) -> None:
    (root / "link").symlink_to(target)

    assert text(root, "link") == "theirs"


@pytest.mark.parametrize("target", ["{}/secret", "/{}/secret", "../secret", "../../../{}/secret"])
def test_no_link_leads_out(root: Path, target: str) -> None:
    (root / "etc" / "link").symlink_to(target.format(root.parent))

    assert refusal(root, "etc/link") == errno.ENOENT


def test_a_link_to_a_directory_is_followed_in_the_middle_of_a_path(root: Path) -> None:
    (root / "up").symlink_to("etc/..")

    assert text(root, "up/up/etc/conf") == "theirs"


def test_links_that_lead_to_each_other_end(root: Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")

    assert refusal(root, "a") == errno.ELOOP


def test_a_fifo_is_neither_waited_for_nor_opened(root: Path) -> None:
    os.mkfifo(root / "fifo")

    assert refusal(root, "fifo") == errno.EINVAL
    with pytest.raises(OSError, match="No such device"):  # until it is read
        os.open(root / "fifo", os.O_WRONLY | os.O_NONBLOCK)


def test_a_device_is_not_opened() -> None:
    assert refusal(Path("/dev"), "zero") == errno.EINVAL


@pytest.mark.parametrize("path", ["", "/", "etc", "etc/.."])
def test_a_directory_is_no_file(root: Path, path: str) -> None:
    assert refusal(root, path) == errno.EINVAL


def test_a_file_is_no_directory(root: Path) -> None:
    assert refusal(root, "etc/conf/more") == errno.ENOTDIR
    with pytest.raises(NotADirectoryError):
        list_in_root(root, "etc/conf", 10)


@pytest.mark.parametrize("path", ["etc/co\0nf", "\ud800", "x" * 5000, "x" * 300])
def test_what_no_file_can_be_called_is_refused_as_any_other_path(root: Path, path: str) -> None:
    assert refusal(root, path)


def test_a_deep_path_does_not_take_all_descriptors(root: Path) -> None:
    place = os.open(root, os.O_RDONLY)
    for _ in range(600):
        os.mkdir("d", dir_fd=place)
        below = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    os.close(place)

    assert refusal(root, "d/" * 600 + "file") == errno.ENAMETOOLONG
    assert text(root, "d/../" * 600 + "etc/conf") == "theirs"


def test_a_directory_that_is_swapped_for_a_link_meanwhile_leads_nowhere_else(root: Path) -> None:
    (root / "inside").mkdir()
    (root / "inside" / "secret").write_text("theirs")
    (root / "place").symlink_to("inside")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for target in (root.parent, Path("inside")):
                (root / "new").symlink_to(target)
                os.replace(root / "new", root / "place")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(300):
            try:
                assert text(root, "place/secret") == "theirs"
            except FileNotFoundError:
                pass
    finally:
        stop.set()
        swapper.join()


def test_a_directory_is_listed_as_far_as_asked_for(root: Path) -> None:
    (root / "link").symlink_to("/etc")
    (root / "etc" / "more").touch()

    assert sorted(list_in_root(root, "/link", 10)) == ["conf", "more"]
    assert len(list_in_root(root, "/link", 1)) == 1


def test_a_piece_begins_anywhere_and_may_be_short(root: Path) -> None:
    with open_in_root(root, "etc/conf") as descriptor:
        assert read_piece(descriptor, 2, 3) == b"eir"
        assert read_piece(descriptor, 4, 100) == b"rs"
        assert read_piece(descriptor, 100, 100) == b""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(path=st.lists(st.sampled_from(["etc", "conf", "..", ".", "", "up", "out", "secret", "root"])).map("/".join))
def test_no_path_reaches_what_is_beside_the_root(root: Path, path: str) -> None:
    for name, target in (("up", ".."), ("out", f"//{root.parent}")):
        if not (root / name).is_symlink():
            (root / name).symlink_to(target)
    try:
        assert text(root, path) == "theirs"
    except OSError:
        pass


NOBODY = Rights(65534, frozenset([65534]))


@pytest.mark.parametrize(
    ("mode", "rights", "granted"),
    [
        (0o600, Rights(os.getuid(), frozenset()), True),
        (0o044, Rights(os.getuid(), frozenset()), os.getuid() == 0),
        (0o040, Rights(65534, frozenset([os.getgid()])), True),
        (0o604, Rights(65534, frozenset([os.getgid()])), False),
        (0o604, NOBODY, True),
        (0o640, NOBODY, False),
        (0o000, Rights(0, frozenset()), True),
    ],
)
def test_a_file_is_read_for_who_may_read_it(root: Path, mode: int, rights: Rights, *, granted: bool) -> None:
    descriptor = os.open(root / "etc" / "conf", os.O_RDONLY)
    try:
        os.fchmod(descriptor, mode)

        assert rights.grant(descriptor, 0o4) is granted
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("path", ["/etc/conf", "/link"])
def test_a_file_in_a_directory_that_is_closed_to_the_process_is_refused(root: Path, path: str) -> None:
    (root / "link").symlink_to("etc/conf")
    (root / "etc").chmod(0o700)
    root.chmod(0o755)

    with pytest.raises(PermissionError), open_in_root(root, path, NOBODY):
        pass
    with open_in_root(root, path, Rights(os.getuid(), frozenset())) as descriptor:
        assert read_piece(descriptor, 0, 100) == b"theirs"


def test_a_directory_that_the_process_may_only_search_is_not_listed(root: Path) -> None:
    (root / "etc").chmod(0o711)
    root.chmod(0o755)

    with pytest.raises(PermissionError):
        list_in_root(root, "/etc", 10, NOBODY)
    with open_in_root(root, "/etc/conf", NOBODY) as descriptor:
        assert read_piece(descriptor, 0, 100) == b"theirs"
