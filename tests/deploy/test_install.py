"""`deploy/hosts/install` with a real sshd, pip and systemd-sysusers, in namespaces; systemctl is a stand-in."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from native import TREE

INSTALL = TREE / "deploy" / "hosts" / "install"
SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

PROGRAM = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/-/healthy" else 404)
        self.end_headers()
def main():
    assert sys.argv[1] == "exporter"
    if "--help" not in sys.argv:
        HTTPServer(("127.0.0.1", 9748), Handler).serve_forever()
"""

SYSTEMCTL = """#!/bin/sh
# As much of systemctl as `on-host` uses; the service is started for real.
echo "$*" >>FOLDER/calls
run() {
    if [ ! -e FOLDER/pid ] || ! kill -0 "$(cat FOLDER/pid)"; then
        setsid /opt/pinchpoint/bin/pinchpoint exporter >>FOLDER/log 2>&1 </dev/null &
        echo $! >FOLDER/pid
    fi
}
stop() { # and wait for its end, as systemd does: the next one needs the port
    pid=$(cat FOLDER/pid) || return 0
    rm FOLDER/pid
    kill "$pid"
    while kill -0 "$pid"; do sleep 0.02; done
}
case "$1" in
    is-enabled) test -e FOLDER/enabled ;;
    is-active) kill -0 "$(cat FOLDER/pid)" ;;
    enable) touch FOLDER/enabled ;;
    disable) rm -f FOLDER/enabled; stop ;;
    start) run ;;
    restart) stop; run ;;
esac 2>/dev/null
"""

HOST = """
set -eu
cd FOLDER
ip link set lo up
cp -a /etc etc && mount --bind etc /etc
sed -i 's/^root:[^:]*/root:*/' /etc/shadow
grep -q ^sshd: /etc/passwd || echo 'sshd:x:399:65534::/run/sshd:/usr/sbin/nologin' >>/etc/passwd
mount -t tmpfs none /opt
mount -t tmpfs none /run && mkdir /run/sshd
mount --bind systemctl /usr/bin/systemctl
cat key.pub >authorized
umask 077 # as hardened hosts have it
SSHD -D -e -f sshd_config 2>sshd.log &
until ssh -F ssh_config -o BatchMode=yes host true 2>/dev/null; do kill -0 $!; sleep 0.1; done
"""

CONFIG = """Port 2222
ListenAddress 127.0.0.1
HostKey FOLDER/hostkey
AuthorizedKeysFile FOLDER/authorized
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile none
"""

SSH_CONFIG = """Host host again
  HostName 127.0.0.1
  Port 2222
Host down
  HostName 127.0.0.1
  Port 2223
Host *
  User root
  IdentityFile FOLDER/key
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""


def write_wheel(folder: Path, version: str, program: str = PROGRAM) -> Path:
    """Write a wheel of a small program with the name and the one page of Pinchpoint."""
    folder.mkdir(exist_ok=True)
    info = f"pinchpoint-{version}.dist-info"
    files = {
        "toy.py": program,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: pinchpoint\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\npinchpoint = toy:main\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    path = folder / f"pinchpoint-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, text)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the directory of a host that sshd can be started on; skip the test where it cannot."""
    if SSHD is None:
        pytest.skip("sshd is not installed: Debian's package openssh-server has it")
    if subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "true"], capture_output=True).returncode:
        pytest.skip("this needs root, for namespaces")
    tmp_path.chmod(0o755)
    for name in ("key", "hostkey"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    for name, text in {"systemctl": SYSTEMCTL, "sshd_config": CONFIG, "ssh_config": SSH_CONFIG}.items():
        (tmp_path / name).write_text(text.replace("FOLDER", str(tmp_path)))
    (tmp_path / "systemctl").chmod(0o755)
    (tmp_path / "calls").touch()
    return tmp_path


def on_host(folder: Path, commands: Sequence[str]) -> list[str]:
    """Start the host, run commands beside it, and return what each printed. The host ends with the last of them."""
    script = HOST.replace("FOLDER", str(folder)).replace("SSHD", str(SSHD))
    script += "set +e\n" + "".join(f"{{ {command}; }} >said.{i} 2>&1\n" for i, command in enumerate(commands))
    done = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", script],
        env={**os.environ, "SSH": f"ssh -F {folder}/ssh_config", "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
    )
    assert (folder / f"said.{len(commands) - 1}").exists(), done.stderr + (folder / "sshd.log").read_text()
    return [(folder / f"said.{number}").read_text() for number in range(len(commands))]


def test_a_host_is_installed_left_alone_updated_and_cleaned_up(folder: Path) -> None:
    write_wheel(folder / "old", "1.0")
    write_wheel(folder / "bad", "1.1", "def main():\n    raise SystemExit('broken: no exporter')\n")
    write_wheel(folder / "crash", "1.1.1", "import sys\ndef main():\n    sys.exit('--help' not in sys.argv)\n")
    write_wheel(folder / "new", "1.2")
    (folder / "hosts.txt").write_text("# all of them\ndown\nhost  # the one that runs\n\n")
    state = "cat pid; readlink /opt/pinchpoint; ls /opt; ls /etc/systemd/system; id -un pinchpoint"
    programs = "readlink /opt/pinchpoint; ls /opt; stat -Lc %A /opt/pinchpoint"
    installs, first, again, second, breaks, third, before, crashes, after, updates, fourth, removes, left = on_host(
        folder,
        [
            f"{INSTALL} old - <hosts.txt; echo $?",
            state,
            f"{INSTALL} old host",
            state,
            f"{INSTALL} bad host; echo $?",
            "cat pid; readlink /opt/pinchpoint; ls /opt",
            programs,
            f"{INSTALL} crash host; echo $?; kill -0 $(cat pid)",
            programs,
            f"{INSTALL} new host; echo $?",
            state,
            f"{INSTALL} --remove host; {INSTALL} --remove host",
            "ls -A /opt; ls /etc/systemd/system; cat pid",
        ],
    )
    *lines, status = installs.splitlines()

    assert status == "1", "one host that fails does not keep the others from being installed"
    assert "host: installed" in lines
    assert [line for line in lines if line.startswith("down: failed: ssh: connect to host 127.0.0.1 port 2223")]
    assert {"pinchpoint", "pinchpoint.service", "run-pinchpoint.mount"} <= set(first.split())
    assert "no such user" not in first
    assert (again, second) == ("host: unchanged\n", first)
    assert breaks == "host: failed: broken: no exporter\n1\n"
    assert first.startswith(third), "the old program still runs, and nothing is left of the other"
    assert "the new program does not start, and the old one runs again" in crashes
    assert crashes.splitlines()[1:] == ["1"], "the old program runs"
    assert after == before
    assert before.split()[-1] == "drwxr-xr-x", "the service's user reads it"
    assert updates == "host: updated\n0\n", (folder / "log").read_text()
    assert fourth.split()[0] != first.split()[0]
    assert removes == "host: removed\nhost: removed\n"
    assert "pinchpoint" not in left
    assert (folder / "calls").read_text().splitlines().count("restart pinchpoint") == 4


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "needs a package and hosts"),
        (("--remove",), "needs a package and hosts"),
        (("--purge", "host"), "--purge is not an option"),
        (("missing.whl", "host"), "missing.whl: no such file or directory"),
        (("/etc/passwd", "host"), "/etc/passwd is not a deb, an rpm, a wheel or a directory"),
        (("/etc", "host"), "/etc: there is no pinchpoint-*.whl"),
        (("--remove", "-oProxyCommand=id"), "-oProxyCommand=id is not a host"),
        (("--remove", "-"), "no hosts"),
    ],
)
def test_a_wrong_call_is_named(arguments: tuple[str, ...], reason: str) -> None:
    done = subprocess.run([INSTALL, *arguments], input="# none\n", capture_output=True, text=True)

    assert done.returncode == 2
    assert done.stderr.startswith(f"install: {reason}")


def test_two_versions_in_one_directory_of_wheels_are_named(tmp_path: Path) -> None:
    for version in ("1.0", "1.1"):
        (tmp_path / f"pinchpoint-{version}-py3-none-any.whl").touch()

    done = subprocess.run([INSTALL, tmp_path, "host"], capture_output=True, text=True)

    assert done.returncode == 2
    assert done.stderr == (
        f"install: {tmp_path}: 2 versions are there: leave only one of "
        "pinchpoint-1.0-py3-none-any.whl pinchpoint-1.1-py3-none-any.whl\n"
    )
