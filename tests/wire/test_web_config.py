from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.tomlfile import ConfigError
from pinchpoint.wire.tls import can_order_curves
from pinchpoint.wire.web_config import MAX_BCRYPT_COST, ClientAuth, parse_web_config, seconds

TOOLKIT = Path(__file__).parent.parent / "fixtures" / "web_config"
CERTIFICATE = "tls_server_config:\n  cert_file: c\n  key_file: k\n"
HASH = "$2y$10$qRTBuFoULoYNA7AQ/F3ck.trZBPyjV64.oA4ZsSBCIWvXuvQlQTuu"
ORDER = "this Python's ssl can set one curve only: list one, or leave it out for all"
INVALID = {
    "tls_config_noAuth.requireanyclientcert.good.yml": "4: tls_server_config.client_auth_type: RequireAnyClientCert "
    "takes any certificate unverified, which is not supported; RequireAndVerifyClientCert verifies it",
    "web_config_auth_clientCAs_invalid.bad.yml": "4: tls_server_config.client_ca_file: client certificates are not "
    "asked for: set client_auth_type: RequireAndVerifyClientCert",
    "web_config_auth_user_list_invalid.bad.yml": "5: basic_auth_users.john: not a bcrypt hash, ",
    "web_config_headers_content_type_options.bad.yml": "3: http_server_config.headers.X-Content-Type-Options: invalid "
    "value: 'sniff'; must be nosniff",
    "web_config_headers_extra_header.bad.yml": "3: http_server_config.headers.Content-Type: this header cannot be "
    "configured; ",
    "web_config_headers_frame_options.bad.yml": "3: http_server_config.headers.X-Frame-Options: invalid value: 'foo'; "
    "must be deny or sameorigin",
    "web_config_junk.yml": "1: top level: must be a table of keys; this is text",
    "web_config_junk_key.yml": "2: tls_server_config.cert_filse: unknown key",
    "web_config_noAuth.bad.yml": "4: tls_server_config.client_ca_file: client certificates are not asked for: ",
    "web_config_noAuth_certPath_empty.bad.yml": "1: tls_server_config: missing one of cert or cert_file",
    "web_config_noAuth_certPath_keyPath_empty.bad.yml": "1: tls_server_config: missing one of cert or cert_file",
    "web_config_noAuth_cert_empty.bad.yml": "1: tls_server_config: missing one of cert or cert_file",
    "web_config_noAuth_inventedCiphers.bad.yml": "6: tls_server_config.cipher_suites[1]: unknown cipher: "
    "'TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA2048'; known are ",
    "web_config_noAuth_inventedCurves.bad.yml": "6: tls_server_config.curve_preferences[1]: unknown curve: 'CurveP257'"
    "; known are CurveP256, CurveP384, CurveP521, X25519",
    "web_config_noAuth_keyPath_empty.bad.yml": "1: tls_server_config: missing one of key or key_file",
    "web_config_noAuth_key_empty.bad.yml": "1: tls_server_config: missing one of key or key_file",
    "web_config_noAuth_wrongTLSVersion.bad.yml": "5: tls_server_config.min_version: unknown TLS version: 'TLS111'; "
    "known are TLS12, TLS13",
}
"""The files of exporter-toolkit that are refused, each with the message behind its name. The first is valid there."""
if not can_order_curves():
    INVALID["web_config_noAuth_allCurves.good.yml"] = f"5: tls_server_config.curve_preferences: {ORDER}"


def message(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_web_config(text.encode(), "web.yml")
    return str(caught.value).removeprefix("web.yml:")


@pytest.mark.parametrize("path", sorted(TOOLKIT.glob("*.y*ml")), ids=lambda path: path.name)
def test_a_file_of_exporter_toolkits_tests_is_accepted_or_refused_with_its_line(path: Path) -> None:
    expected = INVALID.get(path.name)
    if expected is None:
        parse_web_config(path.read_bytes(), path.name)
        return
    with pytest.raises(ConfigError) as caught:
        parse_web_config(path.read_bytes(), path.name)

    assert str(caught.value).startswith(f"{path.name}:{expected}")


def test_every_refused_file_exists() -> None:
    assert set(INVALID) <= {path.name for path in TOOLKIT.glob("*.y*ml")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CERTIFICATE + "  cert: x\n", "2: tls_server_config.cert_file: give either cert or cert_file"),
        (CERTIFICATE + "  client_allowed_sans: [a]\n", "4: tls_server_config.client_allowed_sans: client certificates"),
        (
            CERTIFICATE + "  client_auth_type: x\n",
            "4: tls_server_config.client_auth_type: unknown: 'x'; known are ",
        ),
        (CERTIFICATE + "  min_version: TLS11\n", "4: tls_server_config.min_version: TLS11 is obsolete (RFC 8996)"),
        (CERTIFICATE + "  max_version: TLS10\n", "4: tls_server_config.max_version: TLS10 is obsolete (RFC 8996)"),
        (
            CERTIFICATE + "  min_version: TLS13\n  max_version: TLS12\n",
            "4: tls_server_config.min_version: is above max_version",
        ),
        (
            CERTIFICATE + "  cipher_suites: [TLS_AES_128_GCM_SHA256]\n",
            "4: tls_server_config.cipher_suites: has none of TLS 1.2, and those of TLS 1.3 cannot be chosen",
        ),
        (f"basic_auth_users:\n  'a:b': {HASH}\n", "2: basic_auth_users.a:b: a user's name cannot have a colon"),
        (
            f"basic_auth_users:\n  a: {HASH.replace('$10$', f'${MAX_BCRYPT_COST + 1}$')}\n",
            "2: basic_auth_users.a: its cost is 19, and must be 4 to 18",
        ),
        (f"basic_auth_users:\n  a: {HASH.replace('$10$', '$03$')}\n", "2: basic_auth_users.a: its cost is 03"),
        ("rate_limit:\n  interval: 1\n", "2: rate_limit.interval: '1' is not a duration, such as 500ms, 1s or 1m30s"),
        ("rate_limit:\n  burst: -1\n", "2: rate_limit.burst: must not be negative"),
        (
            'http_server_config:\n  headers:\n    X-XSS-Protection: "a\\r\\nb: c"\n',
            "3: http_server_config.headers.X-XSS-Protection: must be one line of ASCII",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_line(text: str, expected: str) -> None:
    assert message(text).startswith(expected)


def test_a_password_that_stands_in_place_of_its_hash_is_not_repeated() -> None:
    assert "hunter2" not in message("basic_auth_users:\n  a: hunter2\n")


def test_what_is_left_out_has_the_defaults_of_exporter_toolkit() -> None:
    found = parse_web_config(b"", "web.yml").value

    assert not found.tls_server_config.enabled
    assert found.tls_server_config.client_auth is ClientAuth.NONE
    assert found.tls_server_config.prefer_server_cipher_suites
    assert found.http_server_config.http2


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("1s", 1), ("500ms", 0.5), ("1m30s", 90), ("1.5h", 5400), (".5s", 0.5), ("2µs", 2e-6)],
)
def test_a_duration_is_read_as_go_reads_it(text: str, expected: float) -> None:
    assert seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "1", "s", "1x", "-1s", "1s ", "1 s", "1..5s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        seconds(text)


@given(st.binary(max_size=200), st.integers(0, 3))
def test_any_bytes_are_a_configuration_or_a_clear_error(raw: bytes, cut: int) -> None:
    seed = (TOOLKIT / "web_config_users.good.yml").read_bytes()
    for tried in (raw, seed[: len(seed) * cut // 3] + raw):
        with contextlib.suppress(ConfigError):
            parse_web_config(tried, "web.yml")
