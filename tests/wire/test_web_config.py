from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.wire.web_config import HEADERS, WebConfig, WebConfigError, load_web_config, parse_web_config

HASH = "$2b$10$thGPhJ7nFFGTa4oW.KH/pewyemTe6RFMP8Czqle2zPAncpGORwaNq"
TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"


def refusal(text: str) -> str:
    with pytest.raises(WebConfigError) as raised:
        parse_web_config(text, "web.yml")
    return str(raised.value)


def test_an_empty_file_protects_nothing() -> None:
    assert parse_web_config("", "web.yml") == parse_web_config("# nothing\n", "web.yml") == WebConfig()


def test_everything_that_exporters_know_is_read() -> None:
    found = parse_web_config(
        f"""{TLS}  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.pem
  client_allowed_sans: [one, two]
  min_version: TLS13
  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
  prefer_server_cipher_suites: false
  curve_preferences: [CurveP384]
http_server_config:
  http2: false
  headers: {{X-XSS-Protection: 1, X-Frame-Options: deny}}
basic_auth_users:
  alice: {HASH}
rate_limit: {{interval: 100ms, burst: 5}}
""",
        "web.yml",
    )

    assert found.tls_server_config is not None
    assert found.tls_server_config.client_allowed_sans == ["one", "two"]
    assert found.http_server_config.headers == {"X-XSS-Protection": 1, "X-Frame-Options": "deny"}
    assert found.basic_auth_users == {"alice": HASH}
    assert (found.rate_limit.seconds, found.rate_limit.burst) == (0.1, 5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hWkNKCp3fvIX9jKnsaBI", "web.yml:1: Expected `object`, got `str`"),
        ("a: [1\nb: 2\n", "web.yml:2: not YAML: "),
        ("tls_server_config:\n  cert_filse: x\n", "web.yml:2: tls_server_config: Object contains unknown field"),
        ("tls_server_config:\n  key_file: x\n", "web.yml:1: tls_server_config: needs cert_file or cert"),
        ("tls_server_config:\n  cert_file: x\n  cert: y\n  key: z\n", "cert_file or cert, not both"),
        ("tls_server_config:\n  cert_file: x\n", "web.yml:1: tls_server_config: needs key_file or key"),
        (f"{TLS}  client_auth_type: x\n", "web.yml:4: tls_server_config.client_auth_type: Invalid enum value 'x'"),
        (f"{TLS}  client_auth_type: RequireAnyClientCert\n", "web.yml:4: tls_server_config.client_auth_type: "),
        (f"{TLS}  client_ca_file: ca\n", "web.yml:1: tls_server_config: a CA of clients needs a client_auth_type"),
        (f"{TLS}  client_allowed_sans: [a]\n", "web.yml:4: tls_server_config.client_allowed_sans: needs"),
        (f"{TLS}  min_version: TLS111\n", "web.yml:4: tls_server_config.min_version: Invalid enum value"),
        (f"{TLS}  min_version: TLS13\n  max_version: TLS12\n", "web.yml:4: tls_server_config.min_version: TLS13 is"),
        (f"{TLS}  curve_preferences: [CurveP256, X25519]\n", "web.yml:4: tls_server_config.curve_preferences: "),
        (
            "\nhttp_server_config:\n  headers:\n    Server: x\n",
            "web.yml:3: http_server_config.headers: 'Server' cannot",
        ),
        ("http_server_config:\n  headers:\n    X-Frame-Options: x\n", "must be deny or sameorigin, not 'x'"),
        ('http_server_config:\n  headers:\n    X-XSS-Protection: "a\\r\\nb"\n', "characters that no header may have"),
        ("basic_auth_users:\n  a: b\n  bob: secret\n", "web.yml:2: basic_auth_users.a: the password of 'a' is not"),
        ("basic_auth_users:\n  bob:\n", "web.yml:1: basic_auth_users: Expected `str`, got `null`"),
        ("rate_limit:\n  interval: soon\n", "web.yml:2: rate_limit.interval: 'soon' is not a duration"),
        ("rate_limit:\n  interval: 1s\n", "web.yml:1: rate_limit.burst: must be at least 1"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_the_way_out(text: str, said: str) -> None:
    assert said in refusal(text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(WebConfigError, match=r"none\.yml: No such file"):
        load_web_config(tmp_path / "none.yml")
    (tmp_path / "web.yml").write_bytes(b"\xff")
    with pytest.raises(WebConfigError, match="not UTF-8"):
        load_web_config(tmp_path / "web.yml")


def test_paths_start_from_the_directory_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text("tls_server_config: {cert_file: a.pem, key_file: /etc/b.key}\n")
    tls = load_web_config(tmp_path / "web.yml").tls_server_config

    assert tls is not None
    assert (tls.cert_file, tls.key_file, tls.client_ca_file) == (str(tmp_path / "a.pem"), "/etc/b.key", "")


@given(
    st.text(max_size=100)
    | st.lists(
        st.sampled_from(
            [
                "tls_server_config:",
                "basic_auth_users:",
                "rate_limit:",
                "  cert: ",
                "  a: ",
                "- ",
                "&a ",
                "*a",
                "\n",
                *HEADERS,
            ]
        )
    ).map("".join)
)
def test_any_text_is_a_configuration_or_an_error_with_its_origin(text: str) -> None:
    said = "web.yml:"
    try:
        parse_web_config(text, "web.yml")
    except WebConfigError as error:
        said = str(error)
    assert said.startswith("web.yml:")
