from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pinchpoint.build import trusted_users
from pinchpoint.config import Config, ConfigError, check_config, load_config
from pinchpoint.tomlfile import decode_toml, read_toml


def load(tmp_path: Path, text: str | bytes) -> Config:
    file = tmp_path / "pinchpoint.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_config(file)


def test_no_file_means_the_defaults() -> None:
    config = load_config(None)

    assert (config.web.listen_address, config.web.telemetry_path) == (":9748", "/metrics")
    assert (config.path.procfs, config.path.sysfs, config.path.rootfs) == ("/proc", "/sys", "/")
    assert (config.sample_interval, config.log_level, config.probe) == (0.1, "info", {})


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "") == Config()


def test_a_file_sets_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """
        sample-interval = 0.05
        log-level = "debug"
        [path]
        procfs = "/host/proc"
        [web]
        listen-address = "[::1]:9000"
        [probe]
        tasks = false
        """,
    )

    assert (config.sample_interval, config.log_level, config.probe) == (0.05, "debug", {"tasks": False})
    assert (config.path.procfs, config.path.sysfs) == ("/host/proc", "/sys")
    assert (config.web.listen_address, config.web.telemetry_path) == ("[::1]:9000", "/metrics")


def test_rest_and_the_limit_of_the_exporters_cost_can_be_set(tmp_path: Path) -> None:
    config = load(tmp_path, "rest = false\ncost-limit = 0.02")

    assert (config.rest, config.cost_limit) == (False, 0.02)
    assert (Config().rest, Config().cost_limit) == (True, 0.1)


def test_trusted_users_are_names_or_uids(tmp_path: Path) -> None:
    assert load(tmp_path, 'trusted-users = ["alice", 1000]').trusted_users == ["alice", 1000]


def test_a_trusted_user_that_the_host_does_not_have_is_a_mistake(tmp_path: Path) -> None:
    config = load(tmp_path, 'trusted-users = ["alice"]')
    config.path.rootfs = str(tmp_path)

    with pytest.raises(ConfigError, match=r"trusted-users: .*/etc/passwd has no 'alice': give the uid"):
        trusted_users(config)


def test_files_of_rules_are_looked_for_beside_the_configuration(tmp_path: Path) -> None:
    assert load(tmp_path, 'roles-file = "mine.toml"').roles_file == str(tmp_path / "mine.toml")
    assert load(tmp_path, 'roles-file = "/etc/mine.toml"').roles_file == "/etc/mine.toml"
    assert load(tmp_path, 'waits-file = "mine.toml"').waits_file == str(tmp_path / "mine.toml")


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ("sample-interval = 0", "sample-interval", "0.02 to 10 seconds"),
        ("sample-interval = nan", "sample-interval", "0.02 to 10 seconds"),
        ("cost-limit = 0", "cost-limit", "must be 0.005 to 100 CPUs"),
        ("cost-limit = nan", "cost-limit", "must be 0.005 to 100 CPUs"),
        ("rest = 1", "rest", "Expected `bool`, got `int`"),
        ('sample-interval = "fast"', "sample-interval", "Expected `float`, got `str`"),
        ("probe.tusks = true", "probe.tusks", "unknown probe; known probes are tasks, kworkers,"),
        ("probe.tasks = 1", "probe[...]", "Expected `bool`, got `int`"),
        ('log-level = "loud"', "log-level", "must be one of debug, info, warning, error"),
        ('web.telemetry-path = "metrics"', "web.telemetry-path", "must be a path"),
        ('web.telemetry-path = "/"', "web.telemetry-path", "must be a path"),
        ('web.telemetry-path = "/-/healthy"', "web.telemetry-path", "must be a path"),
        ('web.listen-address = "9748"', "web.listen-address", "'9748' is not HOST:PORT"),
        ('web.listen-address = "::1:9748"', "web.listen-address", "in brackets"),
        ('path.runs = ""', "path.runs", "is not a valid path"),
        ('path.procfs = "/proc\\u0000"', "path.procfs", "is not a valid path"),
        ('colour = "red"', "top level", "unknown field `colour`"),
        ("web.port = 1", "web", "unknown field `port`"),
        ("[web", "not TOML", "Expected ']'"),
        (b"\xff", "not TOML", "can't decode byte 0xff"),
        ("a = " + "[" * 5000, "not TOML", "recursion"),
        ("a = " + "9" * 5000, "not TOML", "4300 digits"),
    ],
    ids=str,
)
def test_an_error_names_file_key_and_reason_in_one_line(tmp_path: Path, text: str, key: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)

    assert str(caught.value).startswith(f"{tmp_path / 'pinchpoint.toml'}: {key}: ")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "reason"), [("missing", "No such file"), (".", "Is a directory"), ("a\0b", "embedded null byte")]
)
def test_a_file_that_can_not_be_read_is_named_with_the_reason(tmp_path: Path, path: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read_toml(tmp_path / path, Config)


VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats().map(repr) | st.text(max_size=5).map(repr), lambda inner: st.lists(inner)
).map(str)
KEYS = ["sample-interval", "roles-file", "log-level", "path", "path.runs", "web.telemetry-path", "probe", "probe.tasks"]
LINES = st.tuples(st.sampled_from(KEYS), VALUES).map(" = ".join)


@given(st.binary(max_size=100) | st.lists(LINES, max_size=3).map(lambda lines: "\n".join(lines).encode()))
@example(b"sample-interval = 1e999")
@example(b'web.listen-address = ":\xc2\xb2"')
def test_any_bytes_are_a_usable_configuration_or_a_configuration_error(raw: bytes) -> None:
    try:
        config = decode_toml(raw, Config, "file")
        check_config(config, "file")
    except ConfigError:
        return

    assert 0.02 <= config.sample_interval <= 10


OWN = """
[[benchmark]]
name = "hacc_io"
processes = ["hacc_io"]
phase-pattern = '^(?P<phase>\\w+) phase'
"""


def test_a_benchmark_of_ones_own_has_a_name_processes_and_a_pattern(tmp_path: Path) -> None:
    (own,) = load(tmp_path, OWN).benchmark

    assert (own.name, own.processes, own.phase_pattern) == ("hacc_io", ["hacc_io"], r"^(?P<phase>\w+) phase")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"hacc_io"', '"HACC IO"', "name: must be of lower-case letters"),
        ('["hacc_io"]', "[]", "processes: name at least one process"),
        ("phase-pattern = '^(", "phase-pattern = '^((", "is not a valid Python regular expression: missing )"),
    ],
)
def test_a_benchmark_of_ones_own_that_cannot_be_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        load(tmp_path, OWN.replace(old, new, 1))
