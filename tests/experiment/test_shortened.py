"""IO500's config, shortened to some phases: real configs of several years."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.benchmarks.io500_plan import PHASE_SECTIONS, STANDARD, ini_sections, phases_of
from pinchpoint.experiment.phases import PhasesError, find_config, in_config, phases_in, shortened

FIXTURES = Path(__file__).parents[1] / "fixtures"
SHORT = FIXTURES / "captures/io500-main-mpich-pipe/resultdir/config-orig.ini"
LONG = FIXTURES / "io500/cephfs-2025/config.ini"


def runs(text: str) -> set[str]:
    """Return the phases of the standard that a config runs: one without a section runs too."""
    sections = {name: options for name, options in ini_sections(text).items() if name not in STANDARD}
    own = {phase: ini_sections(text).get(phase, {}) for phase in STANDARD}
    return set(phases_of({**{name: sections[name] for name in ("global",)}, **own}))


@pytest.mark.parametrize("path", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize(
    ("asked", "run"),
    [
        ("mdtest_hard_write", {"mdtest_hard_write"}),
        ("mdtest-hard-stat", {"mdtest_hard_write", "mdtest_hard_stat"}),
        ("ior-easy-read, ior_hard_write", {"ior_easy_write", "ior_easy_read", "ior_hard_write"}),
        ("find", {"ior_easy_write", "mdtest_easy_write", "ior_hard_write", "mdtest_hard_write", "find"}),
    ],
)
def test_a_phase_runs_after_those_that_make_its_files_and_no_other_does(path: Path, asked: str, run: set[str]) -> None:
    assert runs(shortened(path.read_text(), phases_in(asked))) == run


def test_a_word_that_is_too_long_for_a_name_is_no_config() -> None:
    hosts = ",".join(f"client{number:02}:16" for number in range(30))
    argv = ["mpirun", "--host", hosts, "./io500", SHORT.name]

    assert find_config(argv, SHORT.parent)[0] == 4


def test_all_else_in_the_config_stays_as_it_is() -> None:
    text = LONG.read_text() + "; the end\n"
    found = shortened(text, ["ior-easy-write"])

    for section, options in ini_sections(text).items():
        if section not in PHASE_SECTIONS and not section.endswith(("-write", "-read")):
            assert ini_sections(found)[section] == options
    assert found.endswith("; the end\n")
    assert ini_sections(found)["ior-rnd4K-write"]["run"] == "FALSE"


def test_old_configs_are_shortened_in_their_own_words() -> None:
    text = "[global]\ndatadir = /x\n[ior-easy-read]\nnoRun = FALSE\n[mdtest-easy-write]\n"
    found = ini_sections(shortened(text, ["ior-hard-write"]))

    assert found["ior-easy-read"] == found["mdtest-easy-write"] == found["find"] == {"noRun": "TRUE"}
    assert "ior-hard-write" not in found


@pytest.mark.parametrize(
    "text", ["[global]\n[mdtest-hard-write]\nrun = FALSE\n", "[global]\n[mdtest-hard]\nrun = FALSE ; broken disk\n"]
)
def test_a_phase_that_the_config_switches_off_is_named(text: str) -> None:
    with pytest.raises(PhasesError, match=r"switches mdtest-hard-write.* off \(run = FALSE\)"):
        shortened(text, ["mdtest-hard-stat"])


@pytest.mark.parametrize(
    ("text", "said"), [("mdtest_hard", "no phase of IO500: mdtest_hard; the"), (" , ", "names no")]
)
def test_what_is_no_phase_is_refused_with_those_that_are(text: str, said: str) -> None:
    with pytest.raises(PhasesError, match=f"{said}.* ior_easy_write, "):
        phases_in(text)


def test_the_config_is_the_word_of_the_command_that_is_one(tmp_path: Path) -> None:
    (tmp_path / "config.ini").write_text(SHORT.read_text())
    (tmp_path / "hosts").write_text("[a]\nb\n")

    assert find_config(["mpirun", "-f", "hosts", "./io500", "config.ini", "--mode=extended"], tmp_path) == (
        4,
        SHORT.read_text(),
    )


@pytest.mark.parametrize("argv", [["io500"], ["io500", "none.ini"], ["io500", "a.ini", "a.ini"], ["io500", "."]])
def test_a_command_without_one_config_is_refused(argv: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.ini").write_text("[global]\n")

    with pytest.raises(PhasesError, match="one config of IO500"):
        find_config(argv, tmp_path)


def test_the_shortened_config_is_beside_the_original_while_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/config.ini").write_text(SHORT.read_text())
    with in_config(["io500", "sub/config.ini"], tmp_path, ["find"], "exp") as command:
        assert command == ["io500", str(tmp_path / "sub/config.exp.ini")]
        assert runs(Path(command[1]).read_text()) == runs(shortened(SHORT.read_text(), ["find"]))

    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["config.ini"]


def test_a_link_of_somebody_else_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "config.ini").write_text(SHORT.read_text())
    (tmp_path / "config.exp.ini").symlink_to(tmp_path / "precious")

    with (
        pytest.raises(PhasesError, match="has to be beside the original"),
        in_config(["io500", "config.ini"], tmp_path, ["find"], "exp"),
    ):
        pass
    assert not (tmp_path / "precious").exists()


SECTIONS = ["[global]", "[find]", "[ior-easy]", "[ior-easy-write]", "[x"]
OPTIONS = ["run = TRUE", "noRun=FALSE", ";run = FALSE", "a=b", "="]
LINES = st.lists(st.sampled_from(SECTIONS + OPTIONS) | st.text(max_size=6))


@given(LINES, st.lists(st.sampled_from(STANDARD), min_size=1))
def test_whatever_the_config_has_only_what_is_wanted_runs(lines: list[str], phases: list[str]) -> None:
    try:
        found = shortened("\n".join(lines), phases)
    except PhasesError:
        return
    assert set(phases) <= {phase.replace("_", "-") for phase in runs("[global]\n" + found)}
    assert shortened(found, phases) == found
