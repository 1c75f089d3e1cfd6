from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pinchpoint.benchmarks.io500_folder import folder_runs
from pinchpoint.benchmarks.io500_hash import score_hash
from pinchpoint.diagnosis.io500_rules import ResultFolder, RuleState, defaults, result_folder

FOLDERS = Path(__file__).parents[1] / "fixtures" / "io500"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDERS / "cephfs-2025", tmp_path / "run"))


def checked(path: Path) -> ResultFolder:
    (run,) = folder_runs(path, 0.0, lambda line: None)
    return result_folder(run)


def changed(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def broken(path: Path) -> list[tuple[str, str]]:
    return [(rule.name, rule.phase) for rule in checked(path).rules if rule.state == RuleState.BROKEN]


def test_a_public_run_keeps_every_rule_that_its_files_show() -> None:
    found = checked(FOLDERS / "cephfs-2025")

    assert {str(rule.state) for rule in found.rules} == {"kept"}
    assert [rule.name for rule in found.rules] == [
        "all phases",
        "writes take 300 s",
        "stonewall is 300 s",
        "valid for IO500",
        "options that the rules forbid",
        "score is that of the figures",
        "hash of the figures",
        "hash of the options",
        "client nodes",
    ]
    assert (found.version, found.nodes, found.tasks, found.notes) == ("io500-isc25_v1", 10, 160, [])


def test_what_the_files_do_not_show_is_not_called_kept() -> None:
    states = {rule.name: rule.state for rule in checked(FOLDERS / "cephfs-2019").rules}

    assert states["hash of the figures"] == states["hash of the options"] == "not seen"
    assert states["options that the rules forbid"] == "not seen"
    assert states["score is that of the figures"] == "kept"


def test_options_that_differ_from_the_defaults_are_listed() -> None:
    (option,) = checked(FOLDERS / "cephfs-2025").options

    assert (option.section, option.option, option.value, option.default) == ("ior-easy", "transferSize", "4m", "2m")


def test_a_figure_that_was_edited_breaks_score_and_hash(copy: Path) -> None:
    changed(copy / "result.txt", "score           = 27.030", "score           = 37.030")
    (copy / "result_summary.txt").unlink()

    assert broken(copy) == [("score is that of the figures", ""), ("hash of the figures", "")]


def test_a_changed_config_breaks_its_hash(copy: Path) -> None:
    changed(copy / "config.ini", "transferSize = 4m", "transferSize = 1m")

    assert broken(copy) == [("hash of the options", "")]


def test_a_short_write_phase_is_named(copy: Path) -> None:
    changed(copy / "result.txt", "t_delta         = 345", "t_delta         = 145")

    assert ("writes take 300 s", "mdtest_easy_write") in broken(copy)


def test_a_short_stonewall_is_named(copy: Path) -> None:
    changed(copy / "ior-easy-write.txt", "-D 300", "-D 30")
    changed(copy / "config.ini", "stonewall-time = 300", "stonewall-time = 30")

    assert [rule for rule in broken(copy) if rule[0].startswith("stonewall")] == [
        ("stonewall is 300 s", "ior_easy_write"),
        ("stonewall is 300 s", ""),
    ]


def test_a_student_cluster_may_stop_after_30_s(copy: Path) -> None:
    changed(copy / "config.ini", "scc = FALSE", "scc = TRUE")
    changed(copy / "result.txt", "t_delta         = 345", "t_delta         = 45")

    assert [rule for rule in broken(copy) if "s" in rule[0].split()[-1:]] == []


def test_a_missing_phase_is_named(copy: Path) -> None:
    text = (copy / "result.txt").read_text()
    start, end = text.index("[mdtest-hard-stat]"), text.index("[mdtest-easy-delete]")
    (copy / "result.txt").write_text(text[:start] + text[end:])

    (words,) = [rule.words for rule in checked(copy).rules if rule.name == "all phases"]
    assert words == "without a result: mdtest_hard_stat"


def test_what_io500_calls_invalid_has_its_reason_and_phase(copy: Path) -> None:
    changed(
        copy / "result.txt",
        "[mdtest-hard-write]\n",
        "[mdtest-hard-write]\n; ERROR INVALID Runtime is smaller than expected minimum runtime\n",
    )

    rules = [rule for rule in checked(copy).rules if rule.name == "valid for IO500"]

    assert [(rule.state, rule.phase) for rule in rules] == [("broken", "mdtest_hard_write")]
    assert rules[0].words == "Runtime is smaller than expected minimum runtime"


def test_a_phase_that_was_switched_off_and_a_forbidden_option_are_named(copy: Path) -> None:
    changed(copy / "config.ini", "[mdtest-hard-stat]\nAPI = \nrun = TRUE", "[mdtest-hard-stat]\nAPI = \nrun = FALSE")
    changed(copy / "config.ini", "files-per-dir = ", "files-per-dir = 100")

    words = [rule.words for rule in checked(copy).rules if rule.name == "options that the rules forbid"]

    assert words == ["[mdtest-hard-stat] run = FALSE", "[mdtest-hard] files-per-dir = 100"]


def test_a_phase_that_is_not_scored_may_be_switched_off(copy: Path) -> None:
    changed(
        copy / "config.ini", "[ior-rnd4K-easy-read]\nAPI = \nrun = TRUE", "[ior-rnd4K-easy-read]\nAPI = \nrun = FALSE"
    )

    assert ("options that the rules forbid", "") not in broken(copy)


def test_few_client_nodes_are_allowed_and_said(copy: Path) -> None:
    for path in copy.glob("*.txt"):
        path.write_text(path.read_text().replace("on 10 node(s)", "on 4 node(s)").replace(": 10\n", ": 4\n"))

    (rule,) = [rule for rule in checked(copy).rules if rule.name == "client nodes"]

    assert (rule.state, rule.words) == ("note", "4: accepted, but a run on fewer than 10 cannot win an award")


def test_the_score_of_2017_is_the_square(tmp_path: Path) -> None:
    text = (FOLDERS / "cephfs-2019" / "result_summary.txt").read_text()
    assert "TOTAL 7.31" in text
    score = float(text.rpartition("TOTAL")[2])
    (tmp_path / "result_summary.txt").write_text(text.replace(f"{score}", f"{score * score:.4f}"))

    (rule,) = [rule for rule in checked(tmp_path).rules if rule.name == "score is that of the figures"]

    assert (rule.state, "is the square of 7.31" in rule.words) == ("note", True)


def test_every_scored_phase_has_defaults() -> None:
    assert {"debug", "global", "ior-easy", "ior-hard-read", "mdtest-hard-delete", "find"} <= defaults().keys()


def words(path: Path, name: str) -> list[tuple[str, str, str]]:
    """Return the state, words and phase of each line about a rule."""
    return [(str(rule.state), rule.words, rule.phase) for rule in checked(path).rules if rule.name == name]


def test_every_rule_says_by_what_it_is_kept() -> None:
    assert {rule.name: rule.words for rule in checked(FOLDERS / "cephfs-2025").rules} == {
        "all phases": "all 12 phases have a result",
        "writes take 300 s": "the shortest, mdtest_hard_write, took 322.3 s",
        "stonewall is 300 s": "so say the command lines",
        "valid for IO500": "it marks nothing as invalid",
        "options that the rules forbid": "none is set",
        "score is that of the figures": "the figures give 8.12595",
        "hash of the figures": "C0205C71 belongs to the figures",
        "hash of the options": "B7F714B7 belongs to config.ini",
        "client nodes": "10; exactly that many are needed for the 10 node challenge",
    }


def test_a_rule_that_is_not_seen_says_what_is_missing() -> None:
    found = checked(FOLDERS / "cephfs-2019").rules

    assert {rule.name: rule.words for rule in found if rule.state == RuleState.UNSEEN} == {
        "options that the rules forbid": "the folder has no ini file",
        "hash of the figures": "the folder has no result.txt",
        "hash of the options": "the folder lacks a result.txt with a hash",
    }


def test_a_configuration_by_another_name_is_not_the_one_that_was_hashed(copy: Path) -> None:
    (copy / "config.ini").rename(copy / "mine.ini")

    assert words(copy, "hash of the options") == [("not seen", "the folder lacks the config.ini that IO500 writes", "")]


def test_a_write_phase_of_exactly_300_s_is_long_enough_and_a_shorter_one_says_its_time(copy: Path) -> None:
    changed(copy / "result.txt", "t_delta         = 345.0330", "t_delta         = 300.0000")
    assert words(copy, "writes take 300 s") == [("kept", "the shortest, mdtest_easy_write, took 300.0 s", "")]

    changed(copy / "result.txt", "t_delta         = 300.0000", "t_delta         = 299.9000")
    assert words(copy, "writes take 300 s") == [("broken", "it took 299.9 s", "mdtest_easy_write")]


def test_a_longer_stonewall_is_a_note_and_one_of_a_student_is_right(copy: Path) -> None:
    changed(copy / "ior-easy-write.txt", "-D 300", "-D 400")

    note = "its command line says 400 s: io500-isc26_v2 calls that invalid, earlier versions do not"
    assert words(copy, "stonewall is 300 s") == [("note", note, "ior_easy_write")]
    changed(copy / "config.ini", "scc = FALSE", "scc = TRUE")
    assert words(copy, "stonewall is 30 s") == [("kept", "so say the command lines", "")]


def test_a_student_cluster_competition_is_a_note(copy: Path) -> None:
    changed(copy / "config.ini", "scc = FALSE", "scc = TRUE")

    assert words(copy, "options that the rules forbid") == [
        ("note", "scc = TRUE: a student cluster competition, which has a list of its own", ""),
        ("kept", "none is set", ""),
    ]


def test_a_find_of_ones_own_is_a_note(copy: Path) -> None:
    changed(copy / "config.ini", "external-script = ", "external-script = ./find.sh")

    assert words(copy, "options that the rules forbid")[0] == (
        "note",
        "find runs ./find.sh: it must behave like pfind, and its source belongs in the submission",
        "",
    )


def test_a_reason_is_of_the_run_or_a_note_where_nothing_is_marked_by_it(copy: Path) -> None:
    changed(copy / "result.txt", "[timestamp]\n", "[timestamp]\n; ERROR INVALID too slow\n")
    said = "too slow (so says result.txt; but it marks neither a phase nor the score as invalid)"
    assert words(copy, "valid for IO500") == [("note", said, "timestamp")]

    changed(copy / "result.txt", "[timestamp]\n; ERROR INVALID too slow\n", "[timestamp]\n")
    changed(copy / "result.txt", "[run]\n", "[run]\n; ERROR INVALID too few nodes\n")
    assert words(copy, "valid for IO500") == [("broken", "too few nodes", "")]


def test_a_score_that_is_not_there_is_not_seen(copy: Path) -> None:
    text = (copy / "result.txt").read_text()
    (copy / "result.txt").write_text(text[: text.index("[SCORE]")])
    (copy / "result_summary.txt").unlink()

    assert words(copy, "score is that of the figures") == [("not seen", "figures or the score are missing", "")]
    assert words(copy, "hash of the figures") == [("not seen", "no hash in a result.txt", "")]


def test_a_hash_of_an_invalid_run_on_a_valid_one_is_named(copy: Path) -> None:
    text = (copy / "result.txt").read_text()
    changed(copy / "result.txt", "C0205C71", score_hash(text, valid=False))

    ((state, said, _),) = words(copy, "hash of the figures")
    assert (state, said.endswith(" is that of an invalid run, which is not marked as one")) == ("broken", True)
