from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.history import MadeHost, snapshots
from pinchpoint.diagnosis.blame import Limit
from pinchpoint.diagnosis.lock_use import LockUse, lock_doubt, lock_sentence, lock_uses
from pinchpoint.diagnosis.verdict import Confidence, verdict
from pinchpoint.model import Snapshot

LIMIT = Limit(resource="mds_lock", owner="mds.a", host="h0", serves=("mds",), busy=0.95, runqueue=0.3, blocked=0.0,
              saturated=0.9, threshold=0.8, full=True, blame=0.9, reach=0.9)  # fmt: skip
SECONDS = st.floats(allow_nan=True, allow_infinity=True)


def held(share: float, waiting: float | None = 0.0, observed: float = 1.0, seconds: float = 10.0) -> MadeHost:
    """A host on which a lock was observed, held and waited for, in seconds per second."""
    host = MadeHost(seconds)
    for what, rate in (("observed", observed), ("held", share), ("waiting", waiting)):
        if rate is not None:
            host.counter(f"pinchpoint_lock_{what}_seconds_total", rate, resource="mds_lock", owner="mds.a")
    return host


def test_the_state_of_a_lock_is_evidence() -> None:
    (use,) = lock_uses([LIMIT], *snapshots(h0=held(0.63, 0.17)))

    assert (use.held, use.waiting) == pytest.approx((0.63, 0.17))
    assert lock_sentence(use) == "mds_lock of mds.a is held for 63% of the time, and 0.2 threads wait for it"


def test_of_a_lock_that_does_not_show_who_waits_only_the_holding_is_evidence() -> None:
    (use,) = lock_uses([LIMIT], *snapshots(h0=held(0.63, None)))

    assert use.waiting is None
    assert lock_sentence(use) == "mds_lock of mds.a is held for 63% of the time"


def test_a_share_is_that_of_the_time_in_which_the_state_was_known() -> None:
    (use,) = lock_uses([LIMIT], *snapshots(h0=held(0.4, 0.2, observed=0.5, seconds=20.0)))

    assert (use.held, use.waiting) == pytest.approx((0.8, 0.4))


def test_a_lock_whose_state_was_known_for_too_short_is_not_named() -> None:
    assert lock_uses([LIMIT], *snapshots(h0=held(0.05, observed=0.05))) == ()
    assert lock_uses([LIMIT], *snapshots(h0=MadeHost())) == ()
    assert lock_uses([LIMIT], {}, {}) == ()


@pytest.mark.parametrize(("share", "doubted"), [(0.91, False), (0.6, False), (0.59, True), (0.0, True)])
def test_a_lock_that_is_free_for_long_is_doubted_to_be_the_limit(share: float, doubted: bool) -> None:
    doubt = lock_doubt([LockUse(LIMIT, share, 0.0)])

    assert bool(doubt) == doubted
    if doubted:
        assert doubt == f"mds_lock of mds.a is held for {share:.0%} of the time only: its threads are busy without it"


@pytest.mark.parametrize(("share", "confidence"), [(0.9, Confidence.HIGH), (0.4, Confidence.MEDIUM)])
def test_a_verdict_is_as_sure_as_the_state_of_its_lock_allows(share: float, confidence: Confidence) -> None:
    host = held(share, 1.5).works({"mds": 2.0}).resource("mds_lock", "mds.a", 0.97, "mds", runqueue=0.1)

    said = verdict(*snapshots(h0=host))

    assert [limit.resource for limit in said.limits] == ["mds_lock"]
    assert f"mds_lock of mds.a is held for {share:.0%} of the time, and 1.5 threads wait for it" in said.evidence
    assert said.confidence is confidence


@given(SECONDS, SECONDS, SECONDS, SECONDS)
def test_any_figures_give_shares(first: float, second: float, third: float, fourth: float) -> None:
    labels = (("owner", "mds.a"), ("resource", "mds_lock"))

    def snapshot(time: float, observed: float, rest: float) -> Snapshot:
        values = {"observed": observed, "held": rest, "waiting": rest}
        return Snapshot(
            time, {f"pinchpoint_lock_{what}_seconds_total": {labels: value} for what, value in values.items()}
        )

    for use in lock_uses([LIMIT], {"h0": snapshot(0, first, second)}, {"h0": snapshot(10, third, fourth)}):
        assert 0 <= use.held <= 1
        assert use.waiting is None or use.waiting >= 0
