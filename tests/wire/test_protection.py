from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from pathlib import Path
from threading import Thread
from typing import Any

import bcrypt
import pytest

from certificates import authority, issue, self_signed
from patience import patience
from pinchpoint.metrics import (
    HTTP_REFUSED_CONNECTIONS,
    WEB_CONFIG_RELOAD_SUCCESSFUL,
    WEB_CONFIG_RELOAD_TIME,
    WEB_PASSWORD_CPU_SECONDS,
)
from pinchpoint.tomlfile import ConfigError
from pinchpoint.wire import connections, protection
from pinchpoint.wire.connections import MAX_PEER_CONNECTIONS, Refusals
from pinchpoint.wire.guard import ProtectionMetrics, StartResponse, exposure
from pinchpoint.wire.http import Server, serve
from pinchpoint.wire.protection import Protection
from polling import until

METRICS = ProtectionMetrics(WEB_CONFIG_RELOAD_SUCCESSFUL, WEB_CONFIG_RELOAD_TIME, WEB_PASSWORD_CPU_SECONDS)
TOOLKIT = Path(__file__).parent.parent / "fixtures" / "web_config"
TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"
HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
USERS = f"basic_auth_users:\n  alice: {HASH}\n"
GCM = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
LOCALHOST = ("DNS:localhost", "IP:127.0.0.1")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with certificates by the names that exporter-toolkit's configurations use, and others."""
    directory = tmp_path_factory.mktemp("certificates")
    self_signed(directory, "server", *LOCALHOST, extension=".crt")
    self_signed(directory, "client_selfsigned")
    self_signed(directory, "client2_selfsigned", "DNS:test3", "IP:2001:db8::1", "email:a@b.example", "URI:spiffe://c/d")
    ca = authority(directory)
    issue(ca, directory, "client", "DNS:prometheus")
    return directory


@pytest.fixture
def directory(made: Path, tmp_path: Path) -> Path:
    """Return a copy of these in which a test may change them."""
    return Path(shutil.copytree(made, tmp_path / "web"))


def hello(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{environ['wsgi.url_scheme']} {environ.get('REMOTE_USER')} {exposure(environ)}".encode()]


class Guarded:
    """A server with a configuration, which a test may change."""

    def __init__(self, server: Server, guard: Protection, directory: Path) -> None:
        self.server = server
        self.guard = guard
        self.directory = directory

    def ask(self, credentials: str = "", client: ssl.SSLContext | None = None, plain: bool = False) -> HTTPResponse:
        """Return the answer to a request, with its body."""
        headers = {"Authorization": f"Basic {b64encode(credentials.encode()).decode()}"} if credentials else {}
        port, seconds = self.server.server_port, patience(10)
        connection = (
            HTTPConnection("127.0.0.1", port, timeout=seconds)
            if plain
            else HTTPSConnection("127.0.0.1", port, timeout=seconds, context=client or self.trusting())
        )
        with closing(connection):
            connection.request("GET", "/", headers=headers)
            answer = connection.getresponse()
            answer.body = answer.read()  # type: ignore[attr-defined]
            return answer

    def trusting(self, certificate: str = "") -> ssl.SSLContext:
        """Return a client's context that trusts the server, and shows a certificate."""
        context = ssl.create_default_context(cafile=self.directory / "server.crt")
        if certificate:
            context.load_cert_chain(self.directory / f"{certificate}.pem", self.directory / f"{certificate}.key")
        return context

    def write(self, text: str) -> None:
        """Change the configuration."""
        (self.directory / "web.yml").write_text(text)

    def metric(self, name: str) -> float:
        return next(value for metric, _, value in self.guard.points() if metric.name == name)

    @property
    def refused(self) -> dict[str, float]:
        return {labels[0]: value for _, labels, value in self.server.refusals.points() if value}


@contextmanager
def guarded(directory: Path, text: str) -> Iterator[Guarded]:
    (directory / "web.yml").write_text(text)
    refusals = Refusals(HTTP_REFUSED_CONNECTIONS)
    guard = Protection(directory / "web.yml", METRICS, refusals)
    server = serve(("127.0.0.1", 0), hello, refusals, guard)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield Guarded(server, guard, directory)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def refusal(directory: Path, text: str) -> str:
    """Return why a configuration is refused at the start."""
    (directory / "web.yml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        Protection(directory / "web.yml", METRICS, Refusals(HTTP_REFUSED_CONNECTIONS))
    return str(caught.value).removeprefix(f"{directory}/")


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("web_config_noAuth_certPath_invalid.bad.yml", "somefile"),
        ("web_config_noAuth_certPath_keyPath_invalid.bad.yml", "somefile"),
        ("web_config_noAuth_keyPath_invalid.bad.yml", "server.cert"),
    ],
)
def test_a_configuration_of_exporter_toolkits_tests_names_a_missing_file(
    directory: Path, name: str, missing: str
) -> None:
    found = refusal(directory, (TOOLKIT / name).read_text())

    assert found == f"web.yml:2: tls_server_config.cert_file: {directory / missing}: No such file or directory"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("server.crt", "rubbish"), "web.yml:2: tls_server_config.cert_file: holds no certificate in PEM"),
        (
            ("server.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            "web.yml:2: tls_server_config.cert_file: holds a malformed certificate: ",
        ),
        (("server.key", "rubbish"), "web.yml:3: tls_server_config.key_file: holds no private key in PEM"),
        (
            ("server.key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
            "web.yml:3: tls_server_config.key_file: OpenSSL refuses it: ",
        ),
        (
            ("server.key", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"),
            "web.yml:3: tls_server_config.key_file: is encrypted: ",
        ),
        (("client_ca.pem", "rubbish"), "web.yml:5: tls_server_config.client_ca_file: holds no certificate in PEM"),
    ],
    ids=["no certificate", "malformed certificate", "no key", "malformed key", "encrypted key", "no authority"],
)
def test_a_certificate_or_key_that_cannot_be_used_stops_the_start(
    directory: Path, change: tuple[str, str], expected: str
) -> None:
    shutil.copy(directory / "ca.pem", directory / "client_ca.pem")
    name, content = change
    (directory / name).write_text(content)
    text = f"{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: client_ca.pem\n"

    assert refusal(directory, text).startswith(expected)


def test_a_key_of_another_certificate_stops_the_start(directory: Path) -> None:
    text = TLS.replace("server.key", "client.key")

    assert refusal(directory, text) == "web.yml:3: tls_server_config.key_file: does not belong to the certificate"


def test_a_missing_configuration_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yml: No such file or directory$"):
        Protection(tmp_path / "nowhere.yml", METRICS, Refusals(HTTP_REFUSED_CONNECTIONS))


@pytest.mark.parametrize(
    "name",
    [
        "web_config_noAuth.good.yml",
        "web_config_noAuth_allCiphers.good.yml",
        "web_config_noAuth_someCiphers.good.yml",
        "web_config_noAuth_someCiphers_noOrder.good.yml",
        "web_config_noAuth_someCurves.good.yml",
        "web_config_noAuth_noHTTP2.good.yml",
        "web_config_noAuth_noHTTP2Cipher.bad.yml",  # exporter-toolkit refuses it for HTTP/2, which is not served here
    ],
)
def test_a_configuration_of_exporter_toolkits_tests_serves_tls(directory: Path, name: str) -> None:
    # Theirs has an RSA key, and the ciphers are for one.
    files = ("-keyout", directory / "server.key", "-out", directory / "server.crt")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2",
         "-addext", "subjectAltName=IP:127.0.0.1", *files],
        check=True, capture_output=True,
    )  # fmt: skip
    with guarded(directory, (TOOLKIT / name).read_text()) as server:
        assert server.ask().body.startswith(b"https None ")  # type: ignore[attr-defined]


def test_a_server_prefers_its_own_order_of_ciphers_unless_it_leaves_that_to_clients(directory: Path) -> None:
    chosen = {}
    for own in ("true", "false"):
        text = (
            f"{TLS}  max_version: TLS12\n  prefer_server_cipher_suites: {own}\n  cipher_suites:\n"
            "  - TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384\n  - TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256\n"
        )
        with guarded(directory, text) as server:
            client = server.trusting()
            client.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384")
            with connected(server, client) as connection:
                chosen[own] = (connection.cipher() or ("",))[0]

    assert chosen == {"true": "ECDHE-ECDSA-AES256-GCM-SHA384", "false": "ECDHE-ECDSA-AES128-GCM-SHA256"}


@contextmanager
def connected(server: Guarded, client: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    """Give a connection that notices an end without close_notify (SSLEOFError)."""
    plain = socket.create_connection(("127.0.0.1", server.server.server_port), timeout=patience(10))
    with plain, client.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as secured:
        yield secured


@pytest.mark.parametrize(
    ("lines", "option", "works"),
    [
        ("", "-tls1_1", False),
        ("", "-tls1_2", True),
        ("", "-tls1_3", True),
        ("  min_version: TLS13\n", "-tls1_2", False),
        ("  max_version: TLS12\n", "-tls1_3", False),
        ("  curve_preferences: [CurveP521]\n", "-curves=P-521", True),
        ("  curve_preferences: [CurveP521]\n", "-curves=P-384", False),
        (
            "  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]\n",
            "-tls1_2 -cipher=ECDHE-ECDSA-AES128-SHA",
            False,
        ),
    ],
)
def test_openssl_connects_with_versions_curves_and_ciphers_that_are_allowed(
    directory: Path, lines: str, option: str, works: bool
) -> None:
    with guarded(directory, TLS + lines) as server:
        command = ["openssl", "s_client", "-connect", server.server.address, *option.replace("=", " ").split()]
        found = subprocess.run(command, input=b"", capture_output=True, timeout=patience(20), check=False)

    assert (found.returncode == 0) == works, found.stderr
    assert works or b"alert" in found.stderr


def test_the_end_of_an_answer_is_told_so_that_it_cannot_be_mistaken_for_a_cut_one(directory: Path) -> None:
    with guarded(directory, TLS) as server, connected(server, server.trusting()) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        read = b""
        while chunk := connection.recv(1 << 16):
            read += chunk
    assert b"https" in read


def test_plain_http_is_told_that_this_is_https(directory: Path) -> None:
    with guarded(directory, TLS) as server:
        answer = server.ask(plain=True)
        assert (answer.status, answer.body) == (400, b"Client sent an HTTP request to an HTTPS server.\n")  # type: ignore[attr-defined]
        assert server.refused == {"tls": 1}


def test_a_client_that_stalls_in_its_handshake_keeps_nobody_out_and_is_cut_off(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with guarded(directory, TLS) as server:
        stalled = []
        for _ in range(2 * MAX_PEER_CONNECTIONS):
            stalled.append(socket.create_connection(("127.0.0.1", server.server.server_port), timeout=patience(10)))
            stalled[-1].sendall(b"\x16\x03\x01")  # the beginning of a TLS record
            assert server.ask().status == 200
        monkeypatch.setattr(connections, "MAX_CONNECTION_SECONDS", 0.2)

        def cut(connection: socket.socket) -> bool:
            try:
                return connection.recv(1, socket.MSG_DONTWAIT) == b""
            except BlockingIOError:
                return False
            except OSError:
                return True

        assert until(10, lambda: all(map(cut, stalled)), 0.01)
        for connection in stalled:
            connection.close()


def test_descriptors_of_broken_and_finished_connections_are_closed(directory: Path) -> None:
    with guarded(directory, TLS) as server:
        server.ask()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            server.ask()
            server.ask(plain=True)
            socket.create_connection(("127.0.0.1", server.server.server_port)).close()

        assert until(10, lambda: len(os.listdir("/proc/self/fd")) <= before, 0.01)


def test_sessions_of_clients_without_tickets_do_not_fill_the_memory(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protection, "MAX_SESSIONS", 5)
    with guarded(directory, TLS) as server:
        client = server.trusting()
        client.maximum_version = ssl.TLSVersion.TLSv1_2
        client.options |= ssl.OP_NO_TICKET
        most = 0
        server.guard._watched._racy = False  # or each connection would read the new files, and make a new context
        for _ in range(20):
            with connected(server, client) as connection:
                connection.unwrap()  # an abrupt end makes OpenSSL forget the session
            context = server.guard._state.context
            assert context is not None
            most = max(most, context.session_stats()["number"])

    assert most == 6


@pytest.mark.parametrize(
    ("name", "certificate", "works"),
    [
        ("web_config_noAuth.good.yml", "", True),
        ("tls_config_noAuth.requireandverifyclientcert.good.yml", "client_selfsigned", True),
        ("tls_config_noAuth.requireandverifyclientcert.good.yml", "client2_selfsigned", False),
        ("tls_config_noAuth.requireandverifyclientcert.good.yml", "", False),
        ("web_config_auth_client_san.good.yaml", "client2_selfsigned", True),
        ("web_config_auth_client_san.bad.yaml", "client2_selfsigned", False),
        ("web_config_auth_clientCAs_missing.bad.yml", "client_selfsigned", False),
    ],
)
def test_clients_are_verified_as_exporter_toolkits_tests_want_it(
    directory: Path, name: str, certificate: str, works: bool
) -> None:
    with guarded(directory, (TOOLKIT / name).read_text()) as server:
        assert answered(server, certificate) == works
        assert until(10, lambda: server.refused == ({} if works else {"tls": 1}), 0.01)


def answered(server: Guarded, certificate: str) -> bool:
    """Return whether a client that shows a certificate gets an answer."""
    try:
        return server.ask(client=server.trusting(certificate)).status == 200
    except (OSError, ssl.SSLError):
        return False


@pytest.mark.parametrize(
    ("allowed", "works"),
    [
        ("test3", True),
        ("2001:db8::1", True),
        ("a@b.example", True),
        ("spiffe://c/d", True),
        ("client2_selfsigned", False),
    ],
)
def test_an_allowed_name_is_of_any_kind_but_not_the_common_name(directory: Path, allowed: str, works: bool) -> None:
    text = (
        f"{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: client2_selfsigned.pem\n"
        f"  client_allowed_sans: ['{allowed}']\n"
    )
    with guarded(directory, text) as server:
        assert answered(server, "client2_selfsigned") == works


def test_a_certificate_signed_by_the_authority_is_accepted(directory: Path) -> None:
    text = f"{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n"
    with guarded(directory, text) as server:
        assert answered(server, "client")
        assert not answered(server, "client_selfsigned")


def test_certificate_and_key_may_stand_in_the_configuration(directory: Path) -> None:
    lines = []
    for field, name in (("cert", "server.crt"), ("key", "server.key"), ("client_ca", "ca.pem")):
        lines += [f"  {field}: |", *(f"    {line}" for line in (directory / name).read_text().splitlines())]
        if field != "client_ca":
            (directory / f"moved-{name}").write_bytes((directory / name).read_bytes())
    text = "\n".join(["tls_server_config:", "  client_auth_type: RequireAndVerifyClientCert", *lines, ""])
    with guarded(directory, text) as server:
        assert answered(server, "client")


@pytest.mark.parametrize(
    ("credentials", "status"), [("alice:secret", 200), ("alice:wrong", 401), ("eve:secret", 401), ("", 401)]
)
def test_only_a_user_with_the_right_password_is_answered(directory: Path, credentials: str, status: int) -> None:
    with guarded(directory, TLS + USERS) as server:
        answer = server.ask(credentials)
        assert answer.status == status
        assert (answer.getheader("WWW-Authenticate") is not None) == (status == 401)
        assert server.refused == ({} if status == 200 else {"password": 1})
        if status == 200:
            assert answer.body.startswith(b"https alice")  # type: ignore[attr-defined]


def test_passwords_work_without_tls_too(directory: Path) -> None:
    with guarded(directory, USERS) as server:
        assert server.ask("alice:secret", plain=True).status == 200
        assert server.ask("alice:wrong", plain=True).status == 401


def test_the_users_of_exporter_toolkits_tests_are_known_by_their_passwords(directory: Path) -> None:
    with guarded(directory, (TOOLKIT / "web_config_users_noTLS.good.yml").read_text()) as server:
        assert server.ask("dave:dave123", plain=True).status == 200


def test_a_flood_of_wrong_passwords_is_refused_at_a_bounded_cost_while_a_known_user_is_answered(
    directory: Path,
) -> None:
    costly = USERS.replace(HASH, bcrypt.hashpw(b"secret", bcrypt.gensalt(10)).decode())
    with guarded(directory, costly) as server:
        assert server.ask("alice:secret", plain=True).status == 200
        began = time.monotonic()
        statuses = {server.ask(f"alice:{number}", plain=True).status for number in range(100)}
        lasted = time.monotonic() - began
        assert statuses == {401, 429}
        # What may be used at once, what comes during the flood, and the two checks that exceed it.
        assert server.metric(WEB_PASSWORD_CPU_SECONDS.name) < 1.0 + 0.05 * lasted + 1.0
        assert server.ask("alice:secret", plain=True).status == 200
        assert server.refused.keys() == {"password", "attempts"}


def test_configured_headers_are_in_every_answer(directory: Path) -> None:
    text = (TOOLKIT / "web_config_headers.good.yml").read_text() + USERS
    with guarded(directory, text) as server:
        for credentials in ("alice:secret", "alice:wrong"):
            answer = server.ask(credentials, plain=True)
            assert answer.getheader("X-Frame-Options") == "deny"
            assert answer.getheader("X-XSS-Protection") == "1"
            assert answer.getheader("Strict-Transport-Security") == "max-age=31536000; includeSubDomains"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("web_config_rate_limiter_nonblocking.yaml", {200}), ("web_config_rate_limiter_one_second.yaml", {429})],
)
def test_the_rate_limits_of_exporter_toolkits_tests_hold(directory: Path, name: str, expected: set[int]) -> None:
    with guarded(directory, (TOOLKIT / name).read_text()) as server:
        assert {server.ask(plain=True).status for _ in range(10)} == expected


def test_a_burst_is_answered_and_what_exceeds_it_is_refused(directory: Path) -> None:
    with guarded(directory, "rate_limit: {interval: 1h, burst: 3}\n") as server:
        found = [server.ask(plain=True) for _ in range(5)]
        assert [answer.status for answer in found] == [200, 200, 200, 429, 429]
        assert found[-1].getheader("Retry-After") == "3600"
        assert server.refused == {"rate": 2}


def serial(server: Guarded) -> bytes | None:
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    with connected(server, client) as connection:
        return connection.getpeercert(binary_form=True)


def test_a_certificate_is_replaced_at_the_next_connection(directory: Path) -> None:
    with guarded(directory, TLS) as server:
        old = serial(server)
        self_signed(directory, "server", *LOCALHOST, extension=".crt")
        assert serial(server) not in (None, old)
        assert server.metric(WEB_CONFIG_RELOAD_SUCCESSFUL.name) == 1


def test_a_certificate_without_its_key_leaves_the_last_good_pair_in_use(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with guarded(directory, TLS) as server:
        old = serial(server)
        key = (directory / "server.key").read_bytes()
        self_signed(directory, "server", *LOCALHOST, extension=".crt")
        new_key = (directory / "server.key").read_bytes()
        (directory / "server.key").write_bytes(key)
        for _ in range(3):
            assert serial(server) == old
        assert server.metric(WEB_CONFIG_RELOAD_SUCCESSFUL.name) == 0
        assert caplog.text.count("does not belong to the certificate; what was read before stays in use") == 1

        (directory / "server.key").write_bytes(new_key)
        assert serial(server) != old
        assert server.metric(WEB_CONFIG_RELOAD_SUCCESSFUL.name) == 1


@pytest.mark.parametrize(
    "text",
    ["rubbish", "", TLS, USERS, TLS.replace("server.crt", "nowhere") + USERS],
    ids=["rubbish", "empty", "no passwords", "no TLS", "no certificate"],
)
def test_a_broken_or_weaker_configuration_leaves_the_last_good_one_in_use(
    directory: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with guarded(directory, TLS + USERS) as server:
        server.write(text)
        assert server.ask("alice:secret").status == 200
        assert server.ask("alice:wrong").status == 401
        assert server.metric(WEB_CONFIG_RELOAD_SUCCESSFUL.name) == 0
        assert "web.yml" in caplog.text

        server.write(TLS + USERS.replace("alice", "bob"))
        assert server.ask("alice:secret").status == 401
        assert server.ask("bob:secret").status == 200
        assert server.metric(WEB_CONFIG_RELOAD_SUCCESSFUL.name) == 1


def test_passwords_and_tls_can_be_added_while_it_runs(directory: Path) -> None:
    with guarded(directory, "") as server:
        assert server.ask(plain=True).status == 200
        server.write(TLS + USERS)
        assert server.ask("alice:secret").status == 200
        assert server.ask("alice:secret", plain=True).status == 400


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "Unprotected: it is not encrypted and no password or client certificate is asked for. "),
        ({"wsgi.url_scheme": "https"}, "Unprotected: no password or client certificate is asked for. "),
        ({"REMOTE_USER": "alice"}, "Unprotected: it is not encrypted. "),
        ({"wsgi.url_scheme": "https", "REMOTE_USER": "alice"}, ""),
        ({"wsgi.url_scheme": "https", "SSL_CLIENT_VERIFY": "SUCCESS"}, ""),
        ({"SERVER_NAME": "127.0.0.1"}, ""),
    ],
)
def test_a_server_for_other_hosts_says_what_does_not_protect_it(environ: dict[str, str], expected: str) -> None:
    found = exposure({"SERVER_NAME": "::", "wsgi.url_scheme": "http", **environ})

    assert found.startswith(expected)
    assert bool(found) == bool(expected)
