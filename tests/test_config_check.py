from __future__ import annotations

import os
import string
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.config import ConfigError, load_config
from pinchpoint.config_check import MAX_CHECKED_BYTES, mistakes

GOOD = """
sample-interval = 0.2
trusted-users = ["root", 1000]
[probe]
waits = false
[[benchmark]]
name = "own"
processes = ["own_bench"]
phase-pattern = 'phase (\\w+)'
"""


def check(tmp_path: Path, text: str | bytes) -> list[str]:
    """Return the mistakes of a text as its lines and reasons."""
    file = tmp_path / "pinchpoint.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return [str(mistake).removeprefix(f"{file}:") for mistake in mistakes(file)]


def test_a_good_file_and_an_empty_one_have_no_mistakes(tmp_path: Path) -> None:
    assert check(tmp_path, GOOD) == check(tmp_path, "") == []


def test_every_mistake_is_named_in_the_order_of_the_lines(tmp_path: Path) -> None:
    text = """# a comment
sample_interval = 0.2
cost-limit = "much"
rest = 1
[web]
listen-address = "nowhere"
[probe]
taks = false
[[benchmark]]
name = "good"
processes = ["x"]
phase-pattern = "x"
[[benchmark]]
name = "BAD"
processes = []
phase-pattern = "("
[[benchmark]]
processes = "x"
"""
    found = check(tmp_path, text)

    assert [line.partition(": ")[0] for line in found] == ["2", "3", "4", "6", "8", "14", "15", "16", "17", "17", "18"]
    assert found[:4] == [
        "2: sample_interval: unknown key; did you mean sample-interval?",
        "3: cost-limit: must be a number; this is text in quotes",
        "4: rest: must be true or false; this is a whole number",
        "6: web.listen-address: 'nowhere' is not HOST:PORT, :PORT or [IPV6]:PORT",
    ]
    assert found[5].startswith("14: benchmark[2].name: must be of lower-case letters")
    assert found[8:] == [
        "17: benchmark[3]: name is missing",
        "17: benchmark[3]: phase-pattern is missing",
        "18: benchmark[3].processes: must be a list in [brackets]; this is text in quotes",
    ]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a = 1\nb =\n", 2, "not TOML: Invalid value"),
        ("a = [1,\n\n", 2, "not TOML: "),
        ("rest = true\nrest = true", 2, "not TOML: Cannot overwrite a value"),
        ("[web]\nlisten-addres = 1", 2, "web.listen-addres: unknown key; did you mean listen-address?"),
        ("nonsense = 1", 1, "nonsense: unknown key; known are sample-interval, "),
        ("\nweb = 5", 2, "web: must be a table; this is a whole number"),
        ("benchmark = [5]", 1, "benchmark[1]: must be a table; this is a whole number"),
        ('probe = {tasks = "no"}', 1, "probe.tasks: must be true or false; this is text in quotes"),
        ("trusted-users = [\n  'there-is-no-such-user']", 1, "trusted-users[1]: /etc/passwd has no "),
        ('\nroles-file = "gone.toml"', 2, "roles-file: "),
        ('\n[web]\nconfig-file = "gone.yml"', 3, "web.config-file: "),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_has_its_line_and_the_way_out(tmp_path: Path, text: str, line: int, reason: str) -> None:
    (found,) = check(tmp_path, text)

    assert found.startswith(f"{line}: {reason}")


@pytest.mark.parametrize(
    ("key", "text", "line", "reason"),
    [
        ("roles-file", "[[role]]\nname = 'x'\nin = ['benchmark']\nthreads = '('\n", 4, "role[0] (x).threads: not a"),
        ("roles-file", "threshold = 0.5\n[resource.disk]\nthreshold = 5.0\n", 3, "resource.disk.threshold: must be"),
        ("roles-file", "x = [\n", 1, "not TOML: "),
        (
            "waits-file",
            "\n[[rule]]\nclass = 'disk'\nseen = ''\nframes = '['\n",
            5,
            "rule[0].frames: not a regular expression",
        ),
        ("web.config-file", "\nbasic_auth_users: {a: b}\n", 2, "basic_auth_users.a: not a bcrypt hash"),
        (
            "web.config-file",
            "tls_server_config:\n  cert_file: gone\n  key_file: gone\n",
            2,
            "tls_server_config.cert_file: ",
        ),
    ],
    ids=str,
)
def test_the_files_that_it_names_are_checked_too(tmp_path: Path, key: str, text: str, line: int, reason: str) -> None:
    other = tmp_path / "other.toml"
    other.write_text(text)
    file = tmp_path / "pinchpoint.toml"
    file.write_text(f'{key} = "other.toml"\n')
    (found,) = mistakes(file)

    assert (found.file, found.line) == (str(other), line)
    assert found.reason.startswith(reason)


def test_what_is_not_a_file_of_text_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "long").write_bytes(b"#" * (MAX_CHECKED_BYTES + 1))
    (tmp_path / "latin").write_bytes(b"# 1\n# \xe4\n")

    for name, reason in (("fifo", "not a regular file"), ("long", "longer than 1 MiB"), ("latin", "line 2 is not UTF")):
        with pytest.raises(ValueError, match=reason):
            mistakes(tmp_path / name)
    with pytest.raises(OSError, match="No such file"):
        mistakes(tmp_path / "none")


KEYS = [
    "sample-interval",
    "rest",
    "cost-limit",
    "log-level",
    "path",
    "web",
    "probe",
    "benchmark",
    "other",
]
SCALARS = st.one_of(st.integers(-5, 5), st.booleans(), st.text(string.ascii_letters + "(:/", max_size=4).map(repr))
VALUES = st.one_of(
    SCALARS, SCALARS.map(lambda value: [value]), st.tuples(st.sampled_from(["procfs", "tasks", "name"]), SCALARS)
)


@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5))
def test_a_file_has_no_mistakes_exactly_if_the_exporter_takes_it(
    tmp_path_factory: pytest.TempPathFactory, chosen: dict[str, object]
) -> None:
    def written(value: object) -> str:
        match value:
            case tuple((key, inner)):
                return f"{{{key} = {written(inner)}}}"
            case list():
                return f"[{', '.join(map(written, value))}]"
        return str(value).lower() if isinstance(value, bool) else str(value)

    text = "\n".join(f"{key} = {written(value)}" for key, value in chosen.items())
    tomllib.loads(text)
    file = tmp_path_factory.mktemp("check") / "pinchpoint.toml"
    file.write_text(text)
    try:
        load_config(file)
        taken = True
    except ConfigError:
        taken = False

    assert (mistakes(file) == []) == taken
