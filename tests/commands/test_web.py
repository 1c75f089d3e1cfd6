"""What protects the exporter and the judge, tried as a whole: by options, and by a real Prometheus."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import bcrypt
import pytest
from click.testing import CliRunner

from certificates import Authority
from patience import patience
from pinchpoint.cli import main
from polling import until
from ports import free_port

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, which makes certificates")
PASSED = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ['LISTEN_PID'] = str(os.getpid()); os.execv({0!r}, {1!r})"
)
"""Starts a program as systemd does: with a listening socket as descriptor 3."""

Start = Callable[..., str]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a command of Pinchpoint; return the address that it listens on."""
    with ExitStack() as stack:

        def run(*arguments: str, command: list[str] | None = None, **settings: object) -> str:
            log = (tmp_path / f"log{len(list(tmp_path.glob('log*')))}").open("w+b")
            whole = command or [sys.executable, "-m", "pinchpoint", *arguments]
            process = subprocess.Popen(whole, stderr=log, **settings)  # type: ignore[call-overload]
            stack.callback(process.wait)
            stack.callback(process.kill)

            def address() -> str:
                log.seek(0)
                found = re.search(rb"listens on (\S+)\n", log.read())
                assert process.poll() is None, Path(log.name).read_text()
                return found[1].decode() if found else ""

            said = until(30, address)
            assert isinstance(said, str)
            return said

        yield run


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def web(tmp_path: Path, authority: Authority) -> Path:
    """A configuration with TLS, certificates of clients and a password."""
    authority.sign("server")
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    (tmp_path / "web.yml").write_text(
        "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"
        "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n"
        f"basic_auth_users:\n  prometheus: {hashed}\n"
    )
    return tmp_path / "web.yml"


@pytest.mark.parametrize("service", [["exporter"], ["judge", "--target=127.0.0.1:1"]], ids=["exporter", "judge"])
def test_a_service_with_a_configuration_answers_only_those_it_knows(
    start: Start, web: Path, authority: Authority, service: list[str]
) -> None:
    address = start(*service, "--web.listen-address=127.0.0.1:0", f"--web.config.file={web}")
    context = ssl.create_default_context(cafile=str(authority.file))
    context.load_cert_chain(*authority.sign("client"))
    passwords = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    passwords.add_password(None, f"https://{address}", "prometheus", "secret")
    known = urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=context), urllib.request.HTTPBasicAuthHandler(passwords)
    )
    stranger = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))

    with known.open(f"https://{address}/", timeout=patience(20)) as answer:
        assert b"TLS and passwords protect these pages." in answer.read()
    with pytest.raises(urllib.error.HTTPError, match="401"):
        stranger.open(f"https://{address}/", timeout=patience(20))


def test_the_landing_page_says_that_nothing_protects_it(start: Start) -> None:
    address = start("exporter", "--web.listen-address=127.0.0.1:0")
    with urllib.request.urlopen(f"http://{address}/", timeout=patience(20)) as answer:
        assert b"Neither TLS nor a password protects these pages." in answer.read()


@pytest.mark.parametrize("service", [["exporter"], ["judge", "--target=127.0.0.1:1"]], ids=["exporter", "judge"])
def test_a_file_with_a_mistake_stops_the_start_with_its_line(tmp_path: Path, service: list[str]) -> None:
    (tmp_path / "web.yml").write_text("tls_server_config:\n  cert_filse: x\n")
    result = CliRunner().invoke(main, [*service, f"--web.config.file={tmp_path / 'web.yml'}"])

    assert result.exit_code == 2
    assert result.output.startswith(f"pinchpoint: {tmp_path / 'web.yml'}:2: tls_server_config: ")
    assert result.output.count("\n") == 1


def test_the_configuration_file_may_name_it(start: Start, web: Path, tmp_path: Path) -> None:
    (tmp_path / "pinchpoint.toml").write_text('[web]\nconfig-file = "web.yml"\nlisten-address = "127.0.0.1:0"\n')
    address = start("exporter", f"--config.file={tmp_path / 'pinchpoint.toml'}")

    with pytest.raises(OSError, match=r"."):
        urllib.request.urlopen(f"http://{address}/", timeout=patience(20))


def test_the_socket_that_systemd_passes_is_served(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        arguments = [sys.executable, "-m", "pinchpoint", "exporter", "--web.systemd-socket"]
        program = PASSED.format(sys.executable, arguments)
        address = start(
            command=[sys.executable, "-c", program, str(listening.fileno())],
            pass_fds=[listening.fileno()],
            env={**os.environ, "LISTEN_FDS": "1"},
        )
    assert address == f"127.0.0.1:{port}"
    with urllib.request.urlopen(f"http://{address}/-/healthy", timeout=patience(20)) as answer:
        assert answer.status == 200


def test_without_such_a_socket_that_is_one_clear_line() -> None:
    result = CliRunner().invoke(main, ["exporter", "--web.systemd-socket"])

    assert result.exit_code == 2
    assert result.output.startswith("pinchpoint: can't listen on --web.systemd-socket: systemd passes no socket")


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Prometheus")
def test_prometheus_scrapes_with_tls_and_a_password_while_the_certificate_is_replaced(
    start: Start, web: Path, authority: Authority, tmp_path: Path
) -> None:
    authority.sign("client")
    address = start("exporter", "--web.listen-address=127.0.0.1:0", f"--web.config.file={web}")
    (tmp_path / "prometheus.yml").write_text(
        f"global: {{scrape_interval: {math.ceil(patience(1))}s}}\nscrape_configs:\n"
        "- job_name: pinchpoint\n  scheme: https\n"
        "  tls_config: {ca_file: ca.pem, cert_file: client.pem, key_file: client.key}\n"
        "  basic_auth: {username: prometheus, password: secret}\n  enable_http2: true\n"
        f"  static_configs: [{{targets: ['{address}']}}]\n"
    )
    port = free_port()
    with subprocess.Popen(
        [
            "prometheus",
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stderr=subprocess.DEVNULL,
    ) as prometheus:
        try:

            def value(query: str) -> float | None:
                asked = urllib.parse.urlencode({"query": query})
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{asked}", timeout=20) as answer:
                        found = json.load(answer)["data"]["result"]
                except OSError:
                    return None
                return float(found[0]["value"][1]) if found else None

            assert until(60, lambda: (value("count_over_time(up[1h])") or 0) >= 5)
            before = value("count_over_time(up[1h])") or 0
            for number in range(3):
                new = authority.sign(f"new{number}")
                new.key.replace(tmp_path / "server.key")
                new.certificate.replace(tmp_path / "server.pem")
            assert until(60, lambda: (value("count_over_time(up[1h])") or 0) >= before + 5)
            assert value("min_over_time(up[1h])") == 1
        finally:
            prometheus.kill()
