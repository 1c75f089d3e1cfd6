from __future__ import annotations

from pathlib import Path

from pinchpoint.benchmarks.io500_hash import config_hash, score_hash

FOLDER = Path(__file__).parents[1] / "fixtures" / "io500" / "cephfs-2025"
RESULT = (FOLDER / "result.txt").read_text()
CONFIG = (FOLDER / "config.ini").read_text()


def test_the_hash_of_a_public_run_is_that_of_its_figures() -> None:
    assert "hash            = C0205C71" in RESULT
    assert score_hash(RESULT) == "C0205C71"


def test_one_changed_digit_changes_it() -> None:
    assert score_hash(RESULT.replace("27.030", "27.031")) != "C0205C71"


def test_an_invalid_run_has_another_one() -> None:
    assert score_hash(RESULT, valid=False) != score_hash(RESULT)


def test_unscored_phases_do_not_count() -> None:
    assert score_hash(RESULT + "\n[ior-rnd4K-easy-read]\nscore = 1.0\n") == score_hash(RESULT)


def test_the_hash_of_the_options_is_that_of_config_ini() -> None:
    assert "config-hash     = B7F714B7" in RESULT
    assert config_hash(CONFIG) == "B7F714B7"


def test_a_changed_option_changes_it_and_an_empty_one_does_not_count() -> None:
    assert config_hash(CONFIG.replace("transferSize = 4m", "transferSize = 2m")) != "B7F714B7"
    assert config_hash(CONFIG + "\n[debug]\npause-dir = \n") == "B7F714B7"


def test_characters_beyond_ascii_are_signed() -> None:
    assert config_hash("[a]\nb = \xe9\n") == "4D5"
