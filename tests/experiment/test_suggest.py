from __future__ import annotations

import pytest

from experiment.made import LOCK, experiment
from pinchpoint.experiment.suggest import suggestions, tried
from pinchpoint.runs import LimitMark, PhaseMark, VerdictMark

EQUAL = (1.001, 0.999, 1.0, 1.002)
CACHE = VerdictMark("several", (LimitMark("mds_cache", "mds.a", 0.6), LimitMark("osd_op", "osd.0", 0.2)))
COMMAND = ["mpirun", "io500", "my config.ini"]


def phases(**verdicts: VerdictMark) -> list[PhaseMark]:
    return [PhaseMark(name, 0.0, 1.0, verdict=verdict) for name, verdict in verdicts.items()]


def test_the_most_blamed_comes_first_with_the_command_to_try_it() -> None:
    found = suggestions(phases(mdtest_easy_stat=CACHE, ior_easy_write=CACHE), COMMAND, [], None, {})

    assert [one.name for one in found] == ["mds-cache", "mds-recall", "governor", "scrub"]
    assert found[0].phases == ["mdtest_easy_stat"]  # not expected of ior
    assert found[0].command == (
        "pinchpoint experiment run --knob mds-cache --yes ceph --expect mdtest_easy_stat "
        "-- mpirun io500 'my config.ini'"
    )


def test_a_resource_counts_by_its_most_blamed_owner() -> None:
    disks = (LimitMark("disk", "sda", 0.6), LimitMark("mds_cache", "mds.a", 0.5), LimitMark("disk", "sdb", 0.3))
    found = suggestions(phases(mdtest_easy_stat=VerdictMark("several", disks)), COMMAND, [], None, {})
    cache = next(place for place, one in enumerate(found) if one.name == "mds-cache")

    assert cache > 0


def test_what_needs_hands_has_commands_with_this_clusters_names_and_no_experiment() -> None:
    found = {one.name: one for one in suggestions(phases(mdtest_easy_stat=LOCK), COMMAND, [], "bench fs", {})}

    assert found["mds-ranks"].set == "ceph fs set 'bench fs' max_mds 4"
    assert found["mds-ranks"].command == ""
    assert found["mds-cache"].command


def test_what_did_not_help_here_comes_last_and_says_so() -> None:
    earlier = experiment(EQUAL, mitigation="mds-cache")

    found = suggestions(phases(mdtest_easy_stat=CACHE), COMMAND, [earlier], None, {})

    assert found[-1].name == "mds-cache"
    assert found[-1].tried[0].startswith("tried on 2023-11-1")
    assert "did not help: score total +0.0 %" in found[-1].tried[0]


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"kernel": ["6.1"]}, []),
        ({"mount:ext4": ["rw"]}, []),
        ({"osd:version": ["18.2.4"]}, ["scrub"]),
        ({"client:version": ["18.2.4"]}, ["scrub"]),
        ({"mount:ceph": ["rw"]}, ["scrub"]),
    ],
)
def test_a_setting_of_ceph_is_for_a_run_that_used_ceph(settings: dict[str, list[str]], names: list[str]) -> None:
    disk = VerdictMark("resource", (LimitMark("disk", "sda", 0.8),))

    found = suggestions(phases(job=disk), COMMAND, [], None, {"client0": settings})

    assert [one.name for one in found] == names


def test_the_same_verdict_tells_what_was_tried_for_it() -> None:
    did_nothing, helped, undecided = experiment(EQUAL), experiment((1.2, 1.21, 1.2, 1.19)), experiment((1.0, 1.5))
    other_daemon = VerdictMark("resource", (LimitMark("mds_lock", "mds.b", 0.7),))

    assert len(tried({"find": other_daemon}, [did_nothing, helped, undecided])) == 1
    assert tried({"find": CACHE}, [did_nothing]) == []
    assert tried({"mdtest_easy_stat": LOCK}, [did_nothing]) == []


def test_without_verdicts_nothing_is_suggested() -> None:
    assert suggestions([PhaseMark("find", 0.0)], COMMAND, [], None, {}) == []
