from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pinchpoint import tomllines
from pinchpoint.tomllines import line_of, lines_of

PACKAGE = Path(tomllines.__file__).parent
KEYS = st.text("abc-_1", min_size=1, max_size=4)
QUOTED = st.one_of(KEYS, st.text("a.#[ ]=", min_size=1, max_size=4).map(lambda text: f'"{text}"'), KEYS.map(repr))
VALUES = st.sampled_from(
    [
        "1", "true", "[\n1, # ]\n2,\n]", '"text # [ = "', "'''\n[table]\nkey = 1\n'''", '"""\\"""\na = 2 # no\n""""',
        "[1, 2]", '{a = 1, b = "}"}', "[[1], [2]]", "1979-05-27T07:32:00", "'lite\"ral'", "''", '""',
    ]
)  # fmt: skip
PIECES = st.one_of(
    st.tuples(QUOTED, VALUES).map(lambda pair: f"{pair[0]} = {pair[1]}  # = [x]"),
    st.tuples(QUOTED, QUOTED, VALUES).map(lambda parts: f"{parts[0]} . {parts[1]}={parts[2]}"),
    st.tuples(QUOTED, QUOTED).map(lambda pair: f"[{pair[0]}.{pair[1]}]"),
    QUOTED.map(lambda key: f"[[ {key} ]] # a = 1"),
    st.sampled_from(["", "# key = 1", "   "]),
)


@given(st.lists(PIECES, max_size=12))
def test_every_key_of_a_valid_text_is_found_on_the_line_that_names_it(pieces: list[str]) -> None:
    text = "\n".join(pieces)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        lines_of(text)  # only has to end
        return
    lines, found = text.split("\n"), lines_of(text)

    for path, line in found.items():
        value: Any = document
        for part in path:
            value = value[part]  # a path that does not exist raises here
        names = [part for part in path if isinstance(part, str)]
        assert names[-1] in lines[line - 1]
    assert {path[0] for path in found} == set(document)


@given(st.text("a=[]{}\"'#\n.\\", max_size=40))
def test_any_text_ends(text: str) -> None:
    lines_of(text)


def test_keys_of_tables_and_arrays_have_their_lines() -> None:
    text = 'a = """\nb = 1\n"""\n[web]\nport = 1\n\n[[x]]\n[x.y]\nz = 1\n[[x]]\n  k.l = [\n1,\n]\nm = 1\n'

    assert lines_of(text) == {
        ("a",): 1,
        ("web",): 4,
        ("web", "port"): 5,
        ("x", 0): 7,
        ("x", 0, "y"): 8,
        ("x", 0, "y", "z"): 9,
        ("x", 1): 10,
        ("x", 1, "k"): 11,
        ("x", 1, "k", "l"): 11,
        ("x", 1, "m"): 14,
    }


def test_what_is_inside_a_value_has_the_line_of_its_key() -> None:
    lines = lines_of("a = 1\nb = [\n {c = 1},\n]\n")

    assert (line_of(("b", 0, "c"), lines), line_of(("none",), lines)) == (2, 1)


def test_the_packages_own_files_are_found_whole() -> None:
    for path in PACKAGE.rglob("*.toml"):
        text = path.read_text()
        for table, value in tomllib.loads(text).items():
            if isinstance(value, list) and value and isinstance(value[0], dict):
                assert (table, len(value) - 1) in lines_of(text), path
