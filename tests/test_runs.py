from __future__ import annotations

import pytest

from pinchpoint.runs import belongs, is_stray, stray

RUN = "20261124T100627Z-base"
ALICES = f"{RUN}@uid1001"


@pytest.mark.parametrize(
    ("work", "run", "job", "expected"),
    [
        (RUN, RUN, "", True),
        ("20261124T100627Z-other", RUN, "", False),
        # Work on a host that knows neither run nor job may be anybody's.
        ("", RUN, "", True),
        ("", RUN, "4711", True),
        # A job tells its ranks from those of other jobs.
        ("job4711", RUN, "4711", True),
        ("job4712", RUN, "4711", False),
        ("job471", RUN, "4711", False),
        ("job4711[3]", RUN, "4711[3]", True),
        ("job4711[4]", RUN, "4711[3]", False),
        # Whether a run is in a job is known only by the host of its first rank.
        ("job4711", RUN, "", True),
        # Work of an untrusted user is in no other user's run.
        ("@uid1001", ALICES, "", True),
        ("job4711@uid1001", ALICES, "4711", True),
        ("job4712@uid1001", ALICES, "4711", False),
        ("@uid1002", ALICES, "", False),
        ("job4711@uid1002", ALICES, "4711", False),
        ("job4711@uid1001", RUN, "4711", False),
    ],
)
def test_work_belongs_to_its_run_or_to_those_that_it_may_be_a_part_of(
    work: str, run: str, job: str, expected: bool
) -> None:
    assert belongs(work, run, job) is expected


@pytest.mark.parametrize("mark", ["", "@uid1001"])
@pytest.mark.parametrize("job", ["", "4711", "4711[3]"])
def test_work_without_a_run_is_told_from_that_of_a_run(job: str, mark: str) -> None:
    assert is_stray(stray(mark, job))
    assert not is_stray(f"{RUN}{mark}")
    assert not is_stray(f"job4711-fio{mark}")
