from __future__ import annotations

import base64
import logging
import shutil
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import bcrypt
import pytest

from certificates import Authority, Certificate
from pinchpoint.metrics import HTTP_REFUSED_CONNECTIONS
from pinchpoint.wire import guard as module
from pinchpoint.wire.connections import Reason, Refusals
from pinchpoint.wire.guard import Guard, Passwords, TokenBucket
from pinchpoint.wire.http import Server, StartResponse, serve
from pinchpoint.wire.tls import allowed, cipher
from pinchpoint.wire.web_config import WebConfigError

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, which makes certificates")
HASH = "$2b$04$rKZHvtwZxN4Pc3.P.EUm8OgeEQeQN8iE/gxpPEpqhJ2ID6JB6dWju"
"""Of the password ``secret``."""


def plain(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"here you are\n"]


@contextmanager
def running(guard: Guard) -> Iterator[Server]:
    server = serve(("127.0.0.1", 0), plain, Refusals(HTTP_REFUSED_CONNECTIONS), guard)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Callable[[str], Server]]:
    """Return what runs a server with a text as its web configuration."""
    with ExitStack() as stack:

        def run(text: str) -> Server:
            (tmp_path / "web.yml").write_text(text)
            return stack.enter_context(running(Guard(tmp_path / "web.yml")))

        yield run


def tls(certificate: Certificate, more: str = "") -> str:
    return (
        f"tls_server_config:\n  cert_file: {certificate.certificate.name}\n  key_file: {certificate.key.name}\n{more}"
    )


def client(authority: Authority, certificate: Certificate | None = None, **settings: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.file))
    if certificate is not None:
        context.load_cert_chain(certificate.certificate, certificate.key)
    for name, value in settings.items():
        setattr(context, name, value)
    return context


def get(server: Server, context: ssl.SSLContext | None = None, login: str = "") -> int:
    """Return the status of an answer. Raises OSError without one."""
    request = urllib.request.Request(f"http{'s' if context else ''}://127.0.0.1:{server.server_port}/")
    if login:
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            assert answer.read() == b"here you are\n"
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def refused(server: Server, reason: Reason) -> float:
    return next(point.value for point in server.refusals.points() if point.labels == (reason.value,))


# ---- TLS.


@needs_openssl
def test_a_connection_is_encrypted_and_one_that_is_not_gets_no_answer(
    authority: Authority, web: Callable[[str], Server]
) -> None:
    server = web(tls(authority.sign("server")))

    assert get(server, client(authority)) == 200
    with pytest.raises(OSError, match=r"."):
        get(server)
    assert refused(server, Reason.TLS) == 1


@needs_openssl
def test_certificate_and_key_may_stand_in_the_file_itself(authority: Authority, web: Callable[[str], Server]) -> None:
    files = authority.sign("server")
    lines = {name: path.read_text().replace("\n", "\n    ") for name, path in zip(("cert", "key"), files, strict=True)}
    server = web("tls_server_config:\n" + "".join(f"  {name}: |\n    {text}\n" for name, text in lines.items()))

    assert get(server, client(authority)) == 200


@needs_openssl
def test_versions_and_ciphers_are_those_of_the_configuration(
    authority: Authority, web: Callable[[str], Server]
) -> None:
    suites = "  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256]\n"
    server = web(tls(authority.sign("server"), suites))
    old = client(authority, maximum_version=ssl.TLSVersion.TLSv1_2)
    with (
        socket.create_connection(("127.0.0.1", server.server_port)) as raw,
        old.wrap_socket(raw, server_hostname="localhost") as wrapped,
    ):
        assert wrapped.cipher() == ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2", 256)

    server = web(tls(authority.sign("other"), "  min_version: TLS13\n"))
    assert get(server, client(authority)) == 200
    with pytest.raises(urllib.error.URLError, match="protocol version"):
        get(server, old)


@needs_openssl
def test_a_client_needs_a_certificate_of_the_authority_with_one_of_the_names(
    authority: Authority, web: Callable[[str], Server], tmp_path: Path
) -> None:
    asks = (
        "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n  client_allowed_sans: [one, two]\n"
    )
    server = web(tls(authority.sign("server"), asks))
    stranger = Authority(tmp_path, "stranger").sign("foreign", "DNS:two")

    assert get(server, client(authority, authority.sign("scraper", "DNS:two"))) == 200
    for wrong in (None, authority.sign("other", "DNS:three"), stranger):
        with pytest.raises(OSError, match=r"."):
            get(server, client(authority, wrong))


@needs_openssl
def test_a_certificate_that_is_replaced_is_used_without_a_restart(
    authority: Authority, web: Callable[[str], Server], tmp_path: Path
) -> None:
    first = authority.sign("server")
    server = web(tls(first))
    assert get(server, client(authority)) == 200

    other = Authority(tmp_path, "other")
    for new, old in zip(other.sign("new"), first, strict=True):
        new.replace(old)

    assert get(server, client(other)) == 200
    with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
        get(server, client(authority))


@needs_openssl
def test_files_that_break_later_leave_the_last_ones_in_use_and_are_told_once(
    authority: Authority, web: Callable[[str], Server], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = authority.sign("server")
    server = web(tls(certificate))
    whole = certificate.key.read_text()
    certificate.key.write_text("half a key")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert get(server, client(authority)) == 200
    (record,) = caplog.records
    assert "server.key" in record.getMessage()

    certificate.key.write_text(whole)
    (tmp_path / "web.yml").write_text("")
    assert get(server, client(authority)) == 200, "TLS is not turned off under way"
    assert "TLS is turned on and off by a restart only" in caplog.records[-1].getMessage()


@needs_openssl
def test_a_client_that_does_not_finish_its_handshake_delays_no_other(
    authority: Authority, web: Callable[[str], Server]
) -> None:
    server = web(tls(authority.sign("server")))
    with ExitStack() as stack:
        for _ in range(5):
            stalled = stack.enter_context(socket.create_connection(("127.0.0.1", server.server_port)))
            stalled.sendall(b"\x16\x03\x01")

        assert get(server, client(authority)) == 200


@needs_openssl
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl_reads_to_an_orderly_end(authority: Authority, web: Callable[[str], Server]) -> None:
    server = web(tls(authority.sign("server")) + f"basic_auth_users: {{alice: {HASH}}}\n")
    said = subprocess.run(
        ["curl", "-sSv", "--cacert", authority.file, "-u", "alice:secret", f"https://localhost:{server.server_port}/"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert said.stdout == "here you are\n"
    assert "close notify" in said.stderr or "unexpected eof" not in said.stderr.lower()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tls_server_config: {cert_file: none.pem, key_file: k}\n", "none.pem or "),
        ("tls_server_config: {cert: x, key: y}\n", "tls_server_config: cert or key: "),
    ],
)
def test_what_cannot_be_used_stops_the_start(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "web.yml").write_text(text)
    with pytest.raises(WebConfigError, match=said):
        Guard(tmp_path / "web.yml")


@needs_openssl
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA2048]\n", "no cipher suite is called"),
        ("  curve_preferences: [CurveP257]\n", "no curve is called 'CurveP257'"),
        ("  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: somefile\n", "somefile"),
    ],
)
def test_so_does_what_openssl_does_not_know(authority: Authority, tmp_path: Path, more: str, said: str) -> None:
    (tmp_path / "web.yml").write_text(tls(authority.sign("server"), more))
    with pytest.raises(WebConfigError, match=said):
        Guard(tmp_path / "web.yml")


@pytest.mark.parametrize(
    ("go", "openssl"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", "ECDHE-RSA-AES256-SHA"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_CHACHA20_POLY1305_SHA256", None),
    ],
)
def test_cipher_suites_have_the_names_of_openssl(go: str, openssl: str | None) -> None:
    assert cipher(go) == openssl
    if openssl is not None:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(openssl)


def test_only_names_of_a_certificate_count_and_no_other_field() -> None:
    certificate = {"subject": ((("commonName", "one"),),), "subjectAltName": (("DNS", "two"), ("DirName", "one"))}

    assert allowed(certificate, ["two"])
    assert not allowed(certificate, ["one"])
    assert not allowed(None, ["one"])
    assert allowed(None, [])


# ---- Passwords and requests.


def test_a_user_needs_the_password_and_others_are_not_told_which_users_there_are(web: Callable[[str], Server]) -> None:
    server = web(f"basic_auth_users:\n  alice: {HASH}\n")

    assert get(server, login="alice:secret") == 200
    assert [get(server, login=login) for login in ("", "alice:wrong", "bob:secret")] == [401, 401, 401]
    assert refused(server, Reason.PASSWORD) == 3


@pytest.mark.parametrize("header", ["Basic", "Basic !", "Basic YWxpY2U=", "Bearer YWxpY2U6c2VjcmV0", "Basic /w=="])
def test_a_header_that_holds_no_password_is_a_wrong_one(web: Callable[[str], Server], header: str) -> None:
    server = web(f"basic_auth_users:\n  alice: {HASH}\n")
    with socket.create_connection(("127.0.0.1", server.server_port)) as connection:
        connection.sendall(f"GET / HTTP/1.0\r\nAuthorization: {header}\r\n\r\n".encode())
        assert connection.makefile().readline() == "HTTP/1.0 401 Unauthorized\n"


def test_a_password_that_is_changed_counts_without_a_restart(web: Callable[[str], Server], tmp_path: Path) -> None:
    server = web(f"basic_auth_users:\n  alice: {HASH}\n")
    assert get(server, login="alice:secret") == 200
    new = bcrypt.hashpw(b"other", bcrypt.gensalt(4)).decode()
    (tmp_path / "new.yml").write_text(f"basic_auth_users:\n  alice: {new}\n")
    (tmp_path / "new.yml").replace(tmp_path / "web.yml")

    assert [get(server, login=f"alice:{password}") for password in ("secret", "other")] == [401, 200]


def test_wrong_passwords_are_compared_few_times_a_second_and_right_ones_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now, compared = [0.0], []

    def compare(password: bytes, hashed: bytes) -> bool:
        compared.append(password)
        return password == b"secret"

    monkeypatch.setattr(bcrypt, "checkpw", compare)
    passwords = Passwords(lambda: now[0])

    assert all(passwords.right(HASH, "alice", b"secret", "10.0.0.1") for _ in range(100))
    assert len(compared) == 1
    tried = [passwords.right(HASH, "alice", b"%d" % number, "10.0.0.2") for number in range(100)]
    assert tried == [False] * module.PEER_CHECKS + [None] * (100 - module.PEER_CHECKS)
    assert passwords.right(HASH, "alice", b"secret", "10.0.0.2"), "a right one is known, whoever has tried wrong ones"
    assert passwords.right(None, "bob", b"x", "10.0.0.3") is False, "another peer has tries of its own"

    many = [passwords.right(HASH, "alice", b"x", f"10.1.0.{number}") for number in range(100)]
    assert many.count(False) == module.ALL_CHECKS - module.PEER_CHECKS - 2
    now[0] += 10.0
    assert passwords.right(HASH, "alice", b"x", "10.0.0.2") is False


def test_a_user_that_there_is_not_takes_as_long_and_no_password_fits() -> None:
    passwords = Passwords(lambda: 0.0)

    assert passwords.right(None, "nobody", b"nobody knows this", "10.0.0.1") is False
    assert passwords.right(HASH, "alice", b"a\0b", "10.0.0.1") is False
    assert passwords.right(HASH, "alice", b"x" * 4000, "10.0.0.1") is False


def test_requests_beyond_the_limit_are_refused_with_the_headers_of_the_configuration(
    web: Callable[[str], Server],
) -> None:
    server = web("rate_limit: {interval: 1h, burst: 2}\nhttp_server_config: {headers: {X-Frame-Options: deny}}\n")

    assert [get(server) for _ in range(3)] == [200, 200, 429]
    with socket.create_connection(("127.0.0.1", server.server_port)) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert "X-Frame-Options: deny" in connection.makefile().read()


def test_a_bucket_fills_with_time() -> None:
    now = [0.0]
    bucket = TokenBucket(2, 0.5, lambda: now[0])
    assert [bucket.take() for _ in range(3)] == [True, True, False]
    now[0] = 0.5
    assert [bucket.take(), bucket.take()] == [True, False]
    now[0] = 100.0
    assert [bucket.take() for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Neither TLS nor a password protects these pages."),
        (f"basic_auth_users: {{a: {HASH}}}\n", "No TLS and passwords protect these pages."),
    ],
)
def test_what_protects_the_pages_is_told(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "web.yml").write_text(text)

    assert Guard(tmp_path / "web.yml").describe() == said
