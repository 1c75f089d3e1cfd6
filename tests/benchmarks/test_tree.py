from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from machine import Machine
from pinchpoint.benchmarks.tree import OpenFile, Tree
from polling import until

PROC = Path("/proc")


def test_a_command_with_all_below_it_is_found() -> None:
    command = subprocess.Popen(["sh", "-c", "sleep 60 & echo; wait"], stdout=subprocess.PIPE)
    assert command.stdout is not None
    command.stdout.readline()
    tree = Tree.below(PROC, command.pid)
    try:
        # It is forked, then it execs; until execve has set up its memory, a process has no command line.
        while [(tree.comm(child), *tree.argv(child)) for child in tree.descendants(command.pid)] != [
            ("sleep", "sleep", "60")
        ]:
            tree = Tree.below(PROC, command.pid)

        assert tree.comm(command.pid) == "sh"
        assert [tree.comm(child) for child in tree.children(command.pid)] == ["sleep"]
    finally:
        for pid in (*tree.descendants(command.pid), command.pid):
            os.kill(pid, 9)
        command.communicate()


def test_parents_and_children_are_known_as_far_as_they_are_among_the_processes(machine: Machine) -> None:
    machine.process(10, "mpirun")
    machine.process(11, "io500", ppid=10)
    machine.process(12, "sh", ppid=11)
    tree = machine.tree()

    assert list(tree.ancestors(12)) == [11, 10]
    assert list(tree.descendants(10)) == [11, 12]
    assert tree.comm(1) == ""


def test_a_walk_from_many_processes_has_each_once(machine: Machine) -> None:
    """A user's chain of processes that are all called fio must not take the square of its length."""
    for pid in range(10, 16):
        machine.process(pid, "fio", ppid=pid - 1)
    machine.process(9, "bash")
    tree = machine.tree()

    assert list(tree.ancestors(12, 15)) == [11, 10, 9, 14, 13]
    assert sorted(tree.descendants(10, 12)) == [11, 13, 14, 15]


def test_a_circle_of_parents_is_no_endless_one(machine: Machine) -> None:
    machine.process(10, "a", ppid=11)
    machine.process(11, "b", ppid=10)

    assert list(machine.tree().ancestors(10)) == [11]
    assert list(machine.tree().descendants(10)) == [11]


def test_a_process_that_is_its_own_parent_has_no_descendants(machine: Machine) -> None:
    machine.process(10, "a", ppid=10)

    assert list(machine.tree().descendants(10)) == []


def test_a_circle_of_children_is_read_once(machine: Machine) -> None:
    for pid, child in ((10, 11), (11, 10)):
        machine.process(pid, "a")
        machine.write(f"proc/{pid}/task/{pid}/children", f"{child} ")

    assert list(Tree.below(machine.procfs, 10).processes) == [10, 11]


def test_open_files_have_positions_and_access_modes(machine: Machine) -> None:
    machine.process(10, "ior")
    machine.opens(10, 3, "/data/ior_file_easy.00000000", position=4096, flags=0o100002)
    machine.opens(10, 12, "socket:[7]")
    machine.opens(10, 5, "/data/in", flags=os.O_RDONLY)
    tree = machine.tree()
    position = tree.position(10, 3)

    assert tree.open_files(10) == [
        OpenFile(3, "/data/ior_file_easy.00000000"),
        OpenFile(5, "/data/in"),
        OpenFile(12, "socket:[7]"),
    ]
    assert position is not None
    assert (position.offset, position.writes) == (4096, True)
    reading = tree.position(10, 5)
    assert reading is not None
    assert not reading.writes


def test_what_has_gone_is_empty(machine: Machine) -> None:
    tree = machine.tree()

    for found in (tree.argv(10), tree.open_files(10), tree.threads(10), tree.thread_names(10)):
        assert not found
    assert (tree.link(10, 1), tree.position(10, 1), tree.variable(10, "PATH"), tree.cwd(10)) == ("", None, "", "/")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_files_that_we_have_no_right_to_see_are_told_from_none() -> None:
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        try:
            Tree(PROC, {}).open_files(1)
        except PermissionError:
            os._exit(0)
        os._exit(1)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_one_variable_of_the_environment_can_be_read() -> None:
    child = subprocess.Popen(["sleep", "60"], env={"PMI_RANK": "3", "SECRET": "x"})
    try:
        # During execve it briefly has none.
        assert until(10, lambda: Tree(PROC, {}).variable(child.pid, "PMI_RANK") == "3")
        assert Tree(PROC, {}).variable(child.pid, "RANK") == ""
    finally:
        child.kill()
        child.wait()


@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="system call numbers differ elsewhere")
def test_a_process_inside_of_fsync_writes_back(machine: Machine) -> None:
    machine.process(10, "ior")
    fsync = {"x86_64": 74, "aarch64": 82}[os.uname().machine]
    seen = []
    for text in (f"{fsync} 0x5 0x0 0x0 0x7ffc 0x7f00", "1 0x5 0x0", "running", "-1 0x0 0x0"):
        machine.write("proc/10/syscall", text + "\n")
        seen.append(machine.tree().syncs(10))

    assert seen == [True, False, False, False]
    assert not machine.tree().syncs(11)


def test_a_file_is_read_by_its_path_as_the_process_sees_it(machine: Machine, tmp_path: Path) -> None:
    machine.process(10, "io500")
    machine.lives_in(10, machine.procfs.parent / "container", "/home")
    machine.write("container/home/io500.ini", "[global]\n")
    tree = machine.tree()

    assert tree.read_file(10, "io500.ini") == tree.read_file(10, "/home/io500.ini") == b"[global]\n"
    with pytest.raises(OSError, match="No such file"):
        tree.read_file(10, "/etc/passwd")


@pytest.fixture
def public() -> Iterator[Path]:
    """Return a directory that every user can reach; those of pytest are private."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the root directory")
def test_paths_of_a_process_in_a_plain_chroot_are_those_that_it_sees(tmp_path: Path) -> None:
    for name in ("jail/data", "jail-beside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "jail" / "data" / "out.txt").write_text("text")
    beside = os.open(tmp_path / "jail-beside", os.O_RDONLY)
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.chroot(tmp_path / "jail")
        os.chdir("/data")
        os.write(tell, bytes([os.open("out.txt", os.O_RDONLY)]))
        signal.pause()
    try:
        (descriptor,) = os.read(told, 1)
        tree = Tree(PROC, {})

        assert tree.cwd(pid) == "/data"
        assert tree.link(pid, descriptor) == "/data/out.txt"
        assert tree.link(pid, beside) == str(tmp_path / "jail-beside")
        assert tree.link(pid, told).startswith("pipe:[")
        assert tree.read_file(pid, "out.txt") == tree.read_file(pid, "/data/out.txt") == b"text"
        assert tree.list_directory(pid, ".") == ["out.txt"]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for opened in (beside, told, tell):
            os.close(opened)


def test_what_a_process_may_open_is_known() -> None:
    rights = Tree(PROC, {}).rights(os.getpid())

    assert rights is not None
    assert rights.user == os.geteuid()
    assert rights.groups == {os.getegid(), *os.getgroups()}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can read what another user may not")
@pytest.mark.parametrize("path", ["secret", "closed/open", "/proc/self/environ", "/proc/kmsg"])
def test_what_a_process_may_not_read_is_not_read_for_it(public: Path, path: str) -> None:
    (public / "secret").touch(0o600)
    (public / "closed").mkdir(0o700)
    (public / "closed" / "open").touch(0o644)
    (public / "ours").touch(0o644)
    child = subprocess.Popen(["sleep", "60"], user=65534, group=65534, extra_groups=[], cwd=public)
    try:
        assert Tree(PROC, {}).read_file(child.pid, "ours") == b""
        with pytest.raises(PermissionError):
            Tree(PROC, {}).read_file(child.pid, path)
    finally:
        child.kill()
        child.wait()


def test_how_a_process_ended_is_known_until_its_parent_asks() -> None:
    child = subprocess.Popen(["sh", "-c", "exit 3"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert os.waitstatus_to_exitcode(Tree(PROC, {}).exit_code(child.pid)) == 3
    child.wait()
    assert Tree(PROC, {}).exit_code(child.pid) == 0
