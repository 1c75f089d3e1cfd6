"""The mitigations as data, and the runbooks' text: neither can say what the other does not."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from pinchpoint.diagnosis.advice import kind_advice
from pinchpoint.experiment.knob import OLD
from pinchpoint.experiment.mitigations import Mitigation, all_mitigations, classes, mitigations_for
from pinchpoint.resources import all_resources

RUNBOOKS = Path(__file__).parents[2] / "runbooks"
LOSES = re.compile(
    r"\b(rm-pool|delete|destroy|purge|zap|wipe|mkfs|reset|out|reweight|min_size|size|nodown|noout|evict|fail|stop|restart"
    r"|kill|dd|rm -|cache_type|write_cache|write through)\b"
)
"""What may lose data or redundancy, or interrupts daemons."""
BY_HAND = {
    "ceph config set mgr mgr/prometheus/scrape_interval 30": "the module has to be disabled and enabled",
    "ceph config set osd osd_mclock_profile high_recovery_ops": "for repairs, not for a benchmark",
    "ceph config set osd osd_max_backfills 4": "the same",
    "ceph config set client admin_socket '/var/run/ceph/$cluster-$name.$pid.$cctid.asok'": "clients have to restart",
    "ceph config set client client_readahead_max_periods 16": "clients have to mount anew",
    "ceph config set osd osd_op_num_threads_per_shard_ssd 1": "OSDs have to restart",
    "ceph config set global ms_cluster_mode crc": "daemons have to restart",
    "ceph config set osd osd_scrub_begin_hour 1": "for good, not for a run",
    "ceph config set osd osd_memory_target 8589934592": "OSDs without tcmalloc have to restart",
    "ceph config set osd osd_client_message_cap 1024": "its effect on a run was not tried",
    "ceph config set mds mds_bal_interval 3600": "its effect on a run was not tried",
    "sysctl -w KEY=VALUE": "no command: words stand for it",
    "sysctl -w vm.dirty_background_ratio=5 vm.dirty_ratio=10": "two settings in one command; dirty-bytes is the same",
    "cpupower frequency-set -u $(cat /sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq)": "no command undoes it",
    "ceph config set mds mds_cache_memory_limit N": "mds-cache with another value",
    "ceph config set mds debug_mds 1/1; ceph config set mds debug_ms 0/0": "mds-log-lines goes further",
    "ceph config set mds mds_export_ephemeral_distributed true": "directories have to be made anew",
    "ceph config set mds mds_log_max_segments OLD": "an undo: the diary found it harmful",
}
"""Settings in Mitigation sections that no experiment applies, and why."""
SETTING = re.compile(r"(ceph config set|sysctl -w|cpupower (?:idle|frequency)-set) ")


def mitigation_text(runbook: str) -> str:
    """Return the Mitigation section of a runbook, with single blanks between words."""
    text = (RUNBOOKS / f"{runbook}.md").read_text()
    return " ".join(text.partition("\n## Mitigation\n")[2].partition("\n## ")[0].split())


def named(item: tuple[str, Mitigation]) -> str:
    return item[0]


EACH = pytest.mark.parametrize("entry", all_mitigations().items(), ids=named)


@EACH
def test_its_runbook_has_the_same_commands(entry: tuple[str, Mitigation]) -> None:
    _, mitigation = entry
    text = mitigation_text(mitigation.runbook)

    assert f"`{mitigation.set}`" in text
    assert f"`{mitigation.undo}`" in text or mitigation.undo in text


@EACH
def test_it_is_for_resources_or_verdicts_that_there_are(entry: tuple[str, Mitigation]) -> None:
    _, mitigation = entry

    assert mitigation.class_ in classes()
    assert set(mitigation.resources) <= all_resources().keys() | kind_advice().keys()
    assert mitigation.phases
    assert mitigation.risk


@EACH
def test_what_may_run_unattended_is_restored_exactly_and_loses_nothing(entry: tuple[str, Mitigation]) -> None:
    _, mitigation = entry
    if not classes()[mitigation.class_].unattended:
        assert not mitigation.restore
        return

    assert mitigation.restore
    assert OLD in mitigation.restore or mitigation.restore == mitigation.undo
    for command in (mitigation.set, mitigation.restore, mitigation.check):
        assert not LOSES.search(command), command


def test_a_class_is_allowed_by_its_name_alone() -> None:
    assert [name for name, kind in classes().items() if kind.unattended] == ["host", "ceph"]


def test_every_setting_in_a_runbooks_mitigation_is_an_entry_or_left_out_for_a_reason() -> None:
    known = {mitigation.set for mitigation in all_mitigations().values()}
    undone = {mitigation.undo for mitigation in all_mitigations().values()}
    found = {
        command
        for path in RUNBOOKS.glob("*.md")
        for command in re.findall(r"`([^`]+)`", mitigation_text(path.stem))
        if SETTING.match(command) and not command.endswith("...")
    }

    assert found - known - undone - BY_HAND.keys() == set()
    assert BY_HAND.keys() <= found


def test_another_value_takes_the_place_of_the_runbooks() -> None:
    cache = all_mitigations()["mds-cache"]

    assert cache.commands(None, 60).set == cache.set
    assert cache.commands("8589934592", 60).set == "ceph config set mds mds_cache_memory_limit 8589934592"
    for value in ("1; reboot", "$(id)", "", "a b"):
        with pytest.raises(ValueError, match="not a plain word"):
            cache.commands(value, 60)
    with pytest.raises(ValueError, match="no value to choose"):
        all_mitigations()["governor"].commands("9", 60)


def test_idle_states_are_put_back_as_each_of_them_was(tmp_path: Path) -> None:
    before = {
        "cpu0/cpuidle/state0": "0",
        "cpu0/cpuidle/state1": "1",
        "cpu1/cpuidle/state0": "0",
        "cpu10/cpuidle/state1": "1",
    }
    for state in before:
        (tmp_path / state).mkdir(parents=True)
    states = {tmp_path / state / "disable": value for state, value in before.items()}
    for file, value in states.items():
        file.write_text(f"{value}\n")
    knob = all_mitigations()["idle-states"]
    check, restore = (text.replace("/sys/devices/system/cpu", str(tmp_path)) for text in (knob.check, knob.restore))
    old = subprocess.run(["sh", "-c", check], check=True, capture_output=True, text=True).stdout
    for file in states:
        file.write_text("1\n")

    subprocess.run(["sh", "-c", restore], check=True, env={**os.environ, "PINCHPOINT_OLD": old})

    assert {file: file.read_text().strip() for file in states} == states


def test_the_first_words_come_first() -> None:
    assert list(mitigations_for(["kswapd", "mds_cache"])) == ["watermark", "mds-cache", "mds-recall"]
    assert mitigations_for(["nothing"]) == {}


def test_the_expected_phases_are_patterns() -> None:
    assert all_mitigations()["idle-states"].expected(["ior_hard_write", "ior_easy_write"]) == ["ior_hard_write"]
