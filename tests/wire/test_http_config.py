from __future__ import annotations

import contextlib
import shutil
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certificates import authority, issue, self_signed
from pinchpoint.tomlfile import ConfigError
from pinchpoint.wire.fetch import Fetcher, FetchError
from pinchpoint.wire.http_config import HttpAccess, parse_http_config
from pinchpoint.wire.sources import TargetSource
from serving import QuietHandler, handled

BASIC = "basic_auth: {username: alice, password: secret}\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    ca = authority(directory)
    issue(ca, directory, "server", "IP:127.0.0.1", "DNS:exporter.example")
    issue(ca, directory, "named", "DNS:exporter.example")
    issue(ca, directory, "client", "DNS:judge")
    self_signed(directory, "other")
    return directory


@pytest.fixture
def directory(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "http"))


class Asked:
    """A server, and the headers of the requests that came."""

    def __init__(self, address: str, scheme: str) -> None:
        self.address = address
        self.url = f"{scheme}://{self.address}"
        self.headers: list[dict[str, str]] = []
        self.location = ""
        """Where it redirects to, if anywhere."""


@contextmanager
def serving(directory: Path, certificate: str = "", verify: bool = False) -> Iterator[Asked]:
    """Serve the metric ``a 1`` to whoever asks, with TLS if a certificate is named."""

    class Handler(QuietHandler, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.headers.append(dict(self.headers))
            self.send_response(302 if asked.location else 200)
            if asked.location:
                self.send_header("Location", asked.location)
            self.end_headers()
            self.wfile.write(b"a 1\n")

    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / f"{certificate}.pem", directory / f"{certificate}.key")
        if verify:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(directory / "ca.pem")
    with handled(Handler, context) as address:
        asked = Asked(address, "https" if certificate else "http")
        yield asked


def access(directory: Path, text: str) -> HttpAccess:
    (directory / "http.yml").write_text(text)
    return HttpAccess(directory / "http.yml")


def message(directory: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        access(directory, text)
    return str(caught.value).removeprefix(f"{directory}/http.yml:")


def authorization(directory: Path, text: str) -> str | None:
    """Return the header with which a server is asked."""
    with serving(directory) as asked:
        Fetcher(5.0, access(directory, text)).get(asked.url)
    return asked.headers[0].get("Authorization")


def basic(user_and_password: str) -> str:
    return f"Basic {b64encode(user_and_password.encode()).decode()}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        (BASIC, basic("alice:secret")),
        ("basic_auth: {username: alice, password_file: password}\n", basic("alice:from a file")),
        ("basic_auth: {username_file: user, password: ' x '}\n", basic("bob: x ")),
        ("authorization: {credentials: abc}\n", "Bearer abc"),
        ("authorization: {type: Token, credentials_file: password}\n", "Token from a file"),
    ],
)
def test_a_server_is_told_who_asks(directory: Path, text: str, expected: str | None) -> None:
    (directory / "password").write_text(" from a file\n")
    (directory / "user").write_text("bob\n")

    assert authorization(directory, text) == expected


def test_credentials_in_the_address_come_first(directory: Path) -> None:
    with serving(directory) as asked:
        Fetcher(5.0, access(directory, BASIC)).get(asked.url.replace("://", "://bob:other@"))

    assert asked.headers[0]["Authorization"] == basic("bob:other")


def test_configured_headers_are_sent(directory: Path) -> None:
    (directory / "tenant").write_text("two\n")
    text = "http_headers:\n  X-Scope-OrgID: {values: [one], files: [tenant]}\n"
    with serving(directory) as asked:
        Fetcher(5.0, access(directory, text)).get(asked.url)

    assert asked.headers[0]["X-Scope-OrgID"] == "one, two"


def test_a_server_to_which_another_one_redirects_is_not_told_who_asks(directory: Path) -> None:
    with serving(directory) as first, serving(directory) as second:
        first.location = second.url
        assert (
            Fetcher(5.0, access(directory, BASIC + "http_headers: {X-Key: {secrets: [s]}}")).get(first.url) == b"a 1\n"
        )

    assert first.headers[0].keys() >= {"Authorization", "X-Key"}
    assert second.headers[0].keys() & {"Authorization", "X-Key"} == set()


def test_redirects_can_be_refused(directory: Path) -> None:
    with serving(directory) as first:
        first.location = "/elsewhere"
        with pytest.raises(FetchError, match="302 Found, and follow_redirects is false"):
            Fetcher(5.0, access(directory, "follow_redirects: false\n")).get(first.url)


def test_a_changed_password_is_sent_with_the_next_request(directory: Path) -> None:
    (directory / "password").write_text("one")
    with serving(directory) as asked:
        fetcher = Fetcher(5.0, access(directory, "basic_auth: {username: a, password_file: password}\n"))
        fetcher.get(asked.url)
        (directory / "password").write_text("two, longer")
        fetcher.get(asked.url)
        (directory / "password").unlink()  # the last good one stays
        fetcher.get(asked.url)

    found = [headers["Authorization"] for headers in asked.headers]
    assert found == [basic("a:one"), basic("a:two, longer"), basic("a:two, longer")]


@pytest.mark.parametrize(
    ("certificate", "lines", "reason"),
    [
        ("server", "  ca_file: ca.pem\n", ""),
        ("server", "  ca_file: ca.pem\n  min_version: TLS13\n", ""),
        ("server", "", "unable to get local issuer certificate"),
        ("server", "  ca_file: other.pem\n", "unable to get local issuer certificate"),
        ("server", "  insecure_skip_verify: true\n", ""),
        ("named", "  ca_file: ca.pem\n", "IP address mismatch, certificate is not valid for '127.0.0.1'"),
        ("named", "  ca_file: ca.pem\n  server_name: exporter.example\n", ""),
        ("named", "  ca_file: ca.pem\n  server_name: another.example\n", "Hostname mismatch"),
    ],
)
def test_a_server_is_trusted_by_its_certificate(directory: Path, certificate: str, lines: str, reason: str) -> None:
    with serving(directory, certificate) as asked:
        fetcher = Fetcher(5.0, access(directory, f"tls_config:\n{lines}"))
        if not reason:
            assert fetcher.get(asked.url) == b"a 1\n"
            return
        with pytest.raises(FetchError, match=reason):
            fetcher.get(asked.url)


def test_a_client_shows_its_certificate(directory: Path) -> None:
    with serving(directory, "server", verify=True) as asked:
        with pytest.raises(FetchError):
            Fetcher(5.0, access(directory, "tls_config: {ca_file: ca.pem}\n")).get(asked.url)
        text = "tls_config: {ca_file: ca.pem, cert_file: client.pem, key_file: client.key}\n"
        assert Fetcher(5.0, access(directory, text)).get(asked.url) == b"a 1\n"


def test_certificates_may_stand_in_the_file(directory: Path) -> None:
    lines = []
    for field, name in (("ca", "ca.pem"), ("cert", "client.pem"), ("key", "client.key")):
        lines += [f"  {field}: |", *(f"    {line}" for line in (directory / name).read_text().splitlines())]
    with serving(directory, "server", verify=True) as asked:
        found = access(directory, "\n".join(["tls_config:", *lines, ""]))
        assert Fetcher(5.0, found).get(asked.url) == b"a 1\n"


def test_a_target_without_a_scheme_is_asked_over_tls_if_the_file_says_how(directory: Path) -> None:
    with serving(directory, "server") as asked:
        found = access(directory, "tls_config: {ca_file: ca.pem}\n")
        assert TargetSource(asked.address, access=found).snapshot().value("a") == 1
    with serving(directory) as asked:
        assert TargetSource(asked.address, access=access(directory, BASIC)).snapshot().value("a") == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("basic_auth:\n  user: a\n", "2: basic_auth.user: unknown key"),
        ("\nproxy_url: http://proxy\n", "2: proxy_url: is not supported: servers are asked directly"),
        ("oauth2: {client_id: a}\n", "1: oauth2: is not supported: use authorization or basic_auth"),
        ("bearer_token: a\n", "1: bearer_token: is not supported: write authorization: {credentials: ...}"),
        (BASIC + "authorization: {credentials: a}\n", "2: authorization: give either basic_auth or authorization"),
        (
            "basic_auth:\n  password: a\n  password_file: b\n",
            "3: basic_auth.password_file: give either password or password_file",
        ),
        ("authorization: {type: basic, credentials: a}\n", '1: authorization.type: cannot be "basic": use basic_auth'),
        ("authorization: {type: 'a b', credentials: a}\n", "1: authorization.type: is not a scheme, such as Bearer"),
        ("authorization: {credentials: 'a\n\n  b'}\n", "1: authorization: credentials must be one line"),
        (
            "basic_auth:\n  password_file: nowhere\n",
            "2: basic_auth.password_file: {}/nowhere: No such file or directory",
        ),
        (
            "tls_config:\n  cert_file: client.pem\n",
            "1: tls_config: a certificate needs its key, and a key its certificate",
        ),
        ("tls_config:\n  ca_file: client.key\n", "2: tls_config.ca_file: holds no certificate in PEM"),
        (
            "tls_config:\n  cert_file: client.pem\n  key_file: server.key\n",
            "3: tls_config.key_file: does not belong to the certificate",
        ),
        (
            "tls_config:\n  min_version: TLS11\n",
            "2: tls_config.min_version: 'TLS11' is not a TLS version that is supported: TLS12, TLS13",
        ),
        ("http_headers:\n  Host: {values: [a]}\n", "2: http_headers.Host: this header cannot be set here"),
        ("http_headers:\n  A B: {values: [a]}\n", "2: http_headers.A B: this header cannot be set here"),
        ("http_headers:\n  A: {values: ['a\n\n  b']}\n", "2: http_headers.A: a value must be one line of Latin-1"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_line(directory: Path, text: str, expected: str) -> None:
    assert message(directory, text) == expected.replace("{}", str(directory))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_configuration_or_a_clear_error(raw: bytes) -> None:
    for tried in (raw, b"basic_auth:\n  username: a\n" + raw):
        with contextlib.suppress(ConfigError):
            parse_http_config(tried, "http.yml")
