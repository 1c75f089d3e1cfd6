from __future__ import annotations

from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.wire.request import Request, RequestError, parse_request


def status(head: bytes) -> HTTPStatus | None:
    """Return the status with which a head is refused; None if it is not."""
    try:
        parse_request(head)
    except RequestError as error:
        return error.status
    return None


def test_names_of_headers_have_no_case_and_values_no_space_around_them() -> None:
    head = b"GET /metrics?rate=full HTTP/1.1\r\nHost: a:9748\r\nACCEPT:\t text/plain \r\nEmpty:\r\n\r\n"

    assert parse_request(head) == Request(
        "GET", "/metrics?rate=full", {"host": "a:9748", "accept": "text/plain", "empty": ""}
    )


def test_values_of_one_name_are_joined() -> None:
    assert parse_request(b"GET / HTTP/1.0\nA: 1\nB: 2\na: 3\n\n").headers == {"a": "1,3", "b": "2"}


def test_a_target_may_have_bytes_that_are_not_ascii() -> None:
    assert parse_request("GET /ä HTTP/1.1\r\n\r\n".encode()).target == "/\xc3\xa4"


@pytest.mark.parametrize(
    "head",
    [
        b"\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET  / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1 \r\n\r\n",
        b"GET / extra HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1\r\n\r\n",
        b"G(T / HTTP/1.1\r\n\r\n",
        b"GET /\x01 HTTP/1.1\r\n\r\n",
        "GET / HTTP/\uff11.1\r\n\r\n".encode(),
    ],
)
def test_what_is_no_request_line_is_refused(head: bytes) -> None:
    assert status(head) == HTTPStatus.BAD_REQUEST


@pytest.mark.parametrize(
    "line",
    [b"no colon", b": value", b"A : b", b" folded: b", b"\tfolded", b"A: b\0c", b"A: b\rc", b"\xe4: b", b"A\0: b"],
)
def test_a_header_that_readers_may_understand_differently_is_refused(line: bytes) -> None:
    assert status(b"GET / HTTP/1.1\r\nHost: a\r\n" + line + b"\r\n\r\n") == HTTPStatus.BAD_REQUEST


@pytest.mark.parametrize("version", [b"2.0", b"0.9", b"3.0"])
def test_another_protocol_is_named(version: bytes) -> None:
    assert status(b"PRI * HTTP/" + version + b"\r\n\r\n") == HTTPStatus.HTTP_VERSION_NOT_SUPPORTED


def test_empty_lines_in_front_of_a_request_are_ignored() -> None:
    assert parse_request(b"\r\n\nGET / HTTP/1.1\r\n\r\n").target == "/"


@given(
    st.dictionaries(
        st.from_regex(r"[a-z-]{1,20}", fullmatch=True), st.from_regex(r"([!-~]([ !-~]*[!-~])?)?", fullmatch=True)
    )
)
def test_what_is_written_is_read(headers: dict[str, str]) -> None:
    head = "GET / HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"

    assert parse_request(head.encode()).headers == headers


@given(st.binary(max_size=300))
def test_foreign_bytes_are_a_request_or_refused(head: bytes) -> None:
    assert status(head) in (None, HTTPStatus.BAD_REQUEST, HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
