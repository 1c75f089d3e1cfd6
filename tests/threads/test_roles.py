from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pinchpoint.threads.roles import BENCHMARK, KWORKER, Roles, load_roles
from pinchpoint.tomlfile import ConfigError

PROCESS = '[[process]]\nmatch = "{}"\nclass = "{}"\n'
ROLE = '[[role]]\nname = "r"\nin = ["{}"]\nthreads = "{}"\n'


@pytest.fixture(scope="module")
def builtin() -> Roles:
    return load_roles()


def load(tmp_path: Path, text: str | bytes) -> Roles:
    file = tmp_path / "roles.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_roles(file)


@pytest.mark.parametrize(
    ("class_", "comm", "role", "unit"),
    [
        ("ceph-mds", "msgr-worker-2", "messenger", "thread"),
        ("ceph-mds", "something_new", "ceph_mds_other", None),
        ("ceph-osd", "tp_osd_tp", "osd_op", "pool"),
        ("ceph-osd", "bstore_kv_sync", "kv_sync", "thread"),
        ("ceph-osd", "rocksdb:low0", "rocksdb", "thread"),
        ("cephfs-client", "ganesha.nfsd", "ganesha", "thread"),
        ("ceph-client", "CPU 3/KVM", "qemu", "thread"),
        ("cephfs-client", "smbd", "client_program", "thread"),
        ("ceph-client", "rados", "client_program", "thread"),
        ("ceph-client", "rbd_writer", "client_program", "thread"),
        ("ceph-client", "write_stat", "ceph_client_other", None),
        ("ceph-client", "flusher", "rados_client", "thread"),
        ("ceph-client", "ms_dispatch", "rados_client", "thread"),
        ("cephfs-client", "ceph-fuse", "client_lock", "lock"),
        ("cephfs-client", "fuse_worker", "client_lock", "lock"),
        ("cephfs-client", "ms_dispatch", "client_lock", "lock"),
        ("cephfs-client", "fn_anonymous", "client_lock", "lock"),
        ("cephfs-client", "flusher", "client_lock", "lock"),
        ("cephfs-client", "safe_timer", "client_lock", "lock"),
        ("cephfs-client", "io_context_pool", "rados_client", "thread"),
        ("cephfs-client", "msgr-worker-0", "messenger", "thread"),
        ("cephfs-client", "admin_socket", "cephfs_client_other", None),
        (BENCHMARK, "taskfin_librbd", "rados_client", "thread"),
        (BENCHMARK, "admin_socket", "benchmark_helper", None),
        ("sheepdog", "sheep", "sheepdog", "thread"),
        (BENCHMARK, "ior", "benchmark", "thread"),
        (BENCHMARK, "kworker/0:1+flush-x", "benchmark", "thread"),
        (BENCHMARK, "io_context_pool", "rados_client", "thread"),
        (KWORKER, "flush-254:0", "writeback_worker", "lock"),
        (KWORKER, "flush-ceph-1", "writeback_worker", "lock"),
        (KWORKER, "writeback", "writeback_worker", "lock"),
        (KWORKER, "kblockd", "kblockd", "thread"),
        (KWORKER, "events", "kworker_other", None),
        (KWORKER, "", "kworker_other", None),
    ],
)
def test_a_thread_has_the_role_of_its_name_in_its_class(
    builtin: Roles, class_: str, comm: str, role: str, unit: str | None
) -> None:
    found = builtin.thread_role(class_, comm).role

    assert (found.name, found.unit) == (role, unit)


MDS_THREADS = {
    # Of a running, active MDS, and those that exist only while it starts (from strings and sources).
    "14.2.21": (
        "ms_dispatch fn_anonymous PQ_Finisher safe_timer mds_rank_progr admin_socket md_log_replay md_recov_open "
        "md_recov_reopen",
        "md_submit",
        "ceph-mds log ms_local msgr-worker-0 OpHistorySvc service signal_handler",
    ),
    "16.2.15": (
        "ms_dispatch MR_Finisher PQ_Finisher safe_timer mds_rank_progr admin_socket md_log_replay md_recov_open "
        "md_recov_reopen",
        "md_submit",
        "ceph-mds ceph_timer io_context_pool log ms_local msgr-worker-0 OpHistorySvc service signal_handler",
    ),
    "18.2.7": (
        "ms_dispatch mds-rank-fin mds-pq-fin safe_timer mds-rank-progr mds-cache-trim admin_socket mds-log-replay "
        "mds-log-recvr mds-log-reopen",
        "mds-log-submit",
        "ceph-mds ceph_timer io_context_pool log mds-beacon mds-metrics mds-ping ms_local msgr-worker-0 OpHistorySvc "
        "service signal_handler",
    ),
    "20.2.4": (
        "ms_dispatch mds-rank-fin mds-pq-fin safe_timer mds-rank-progr mds-cache-trim mds-log-trim mds-q-agt mds-q-db "
        "admin_socket mds-log-replay mds-log-recvr mds-log-reopen",
        "mds-log-submit",
        "ceph-mds ceph_timer io_context_pool log mds-beacon mds-metrics mds-ping ms_local msgr-worker-0 OpHistorySvc "
        "service signal_handler",
    ),
}
"""Threads by release: those that take mds_lock, the one that submits journal events, and the others."""


@pytest.mark.parametrize("release", MDS_THREADS)
def test_the_takers_of_mds_lock_are_known_in_every_release_and_nobody_else_is_one(builtin: Roles, release: str) -> None:
    takers, submitter, others = (names.split() for names in MDS_THREADS[release])

    assert all(len(name) <= 15 for name in (*takers, *submitter, *others))
    assert {builtin.thread_role("ceph-mds", name).role.name for name in takers} == {"mds_lock"}
    assert {builtin.thread_role("ceph-mds", name).role.name for name in submitter} == {"mds_journal"}
    assert "mds_lock" not in {builtin.thread_role("ceph-mds", name).role.name for name in others}


OSD_THREADS = {
    "tp_osd_tp": "osd_op",
    "bstore_kv_sync": "kv_sync",
    "bstore_kv_final": "kv_final",
    "bstore_aio": "bluestore_aio",
    "bstore_discard": "bluestore_aio",
    "rocksdb:low": "rocksdb",
    "rocksdb:low1": "rocksdb",
    "rocksdb:high0": "rocksdb",
    "finisher": "finisher",
    "cfin": "finisher",
    "dfin": "finisher",
    "fn_anonymous": "finisher",
    "msgr-worker-12": "messenger",
    "ms_dispatch": "dispatch",
    "reactor-3": "crimson_reactor",
    "crimson-osd": "crimson_reactor",
    "alien-store-tp": "crimson_reactor",
    "osd_srv_agent": "ceph_osd_other",
    "io_context_pool": "ceph_osd_other",
}
"""Threads of OSDs of Ceph 14.2.21 to 20.2.4 (dfin up to 14; crimson's from the sources of 20.2.4)."""


@pytest.mark.parametrize("comm", OSD_THREADS)
def test_threads_of_an_osd_have_their_roles_in_every_release(builtin: Roles, comm: str) -> None:
    assert builtin.thread_role("ceph-osd", comm).role.name == OSD_THREADS[comm]


@pytest.mark.parametrize(
    ("comm", "kernel", "class_"),
    [
        ("ceph-mds", False, "ceph-mds"),
        ("fio", False, BENCHMARK),
        ("mdtest", False, BENCHMARK),
        ("kswapd0", True, "kswapd"),
        ("kswapd0", False, None),
        ("fio", True, None),
        ("xfsaild/sda1", True, "journal"),
        ("bash", False, None),
        ("fio\n", False, None),
        ("prefio", False, None),
    ],
)
def test_a_process_is_of_interest_by_its_whole_name_and_by_who_made_it(
    builtin: Roles, comm: str, kernel: bool, class_: str | None
) -> None:
    match = builtin.process(comm, kernel=kernel)

    assert (match and match[0].class_) == class_


@pytest.mark.parametrize(
    ("comm", "disk"),
    [
        ("jbd2/sda1-8", "sda1"),
        ("jbd2/dm-0-8", "dm-0"),
        ("jbd2/nvme0n1p2-8", "nvme0n1p2"),
        ("jbd2/nvme0n1p2-", "nvme0n1p2"),  # before Linux 5.17
        ("jbd2/nvme10n1p2", "nvme10n1p2"),  # the same
        ("xfsaild/dm-1", "dm-1"),
    ],
)
def test_a_journals_thread_belongs_to_its_disk_also_where_its_name_is_cut(builtin: Roles, comm: str, disk: str) -> None:
    match = builtin.process(comm, kernel=True)

    assert match is not None
    assert match[0].class_ == "journal"
    assert match[0].owner.format("", *(group or "" for group in match[1])) == disk


def test_the_writeback_worker_is_full_earlier_than_everything_else(builtin: Roles) -> None:
    assert builtin.thresholds["writeback_worker"] == 0.7
    assert builtin.thresholds["benchmark"] == 0.8
    assert builtin.thread_role(KWORKER, "writeback").role.threshold == 0.7


def test_every_role_that_can_be_full_has_a_threshold_and_serves_something(builtin: Roles) -> None:
    full = [role for role in builtin.roles if role.unit is not None]

    assert full
    for role in full:
        assert builtin.thresholds[role.name] == role.threshold
        assert builtin.serves[role.name], role.name


def test_rules_of_the_users_file_come_first(tmp_path: Path) -> None:
    roles = load(
        tmp_path,
        """
        [[process]]
        match = "my-(bench)"
        class = "benchmark"
        owner = "{1}-{comm}"
        [[role]]
        name = "mine"
        in = ["benchmark"]
        threads = "ior|my-.*"
        unit = "pool"
        serves = ["cpu"]
        threshold = 0.5
        """,
    )

    match = roles.process("my-bench", kernel=False)
    assert match is not None
    assert (match[0].class_, match[0].owner, match[1]) == ("benchmark", "{1}-{comm}", ("bench",))
    assert roles.thread_role(BENCHMARK, "ior").role.name == "mine"
    assert roles.thresholds["mine"] == 0.5
    assert roles.thread_role(BENCHMARK, "mdtest").role.name == "benchmark"


def test_a_user_changes_a_threshold_without_repeating_the_role(tmp_path: Path) -> None:
    roles = load(tmp_path, "resource.writeback_worker.threshold = 0.6\nalert.SamplerLate = 0.3")

    assert roles.thresholds["writeback_worker"] == 0.6
    assert roles.thread_role(KWORKER, "writeback").role.threshold == 0.6
    assert roles.alerts["SamplerLate"] == 0.3
    assert roles.alerts["RunQueueWaitHigh"] == 0.2


def test_a_users_overall_threshold_is_that_of_every_role_that_has_none_of_its_own(tmp_path: Path) -> None:
    roles = load(tmp_path, "threshold = 0.5")

    assert roles.thresholds["benchmark"] == 0.5
    assert roles.thresholds["writeback_worker"] == 0.7


def test_more_threads_for_a_known_role_leave_its_threshold_as_it_is(tmp_path: Path) -> None:
    roles = load(
        tmp_path,
        ROLE.replace('"r"', '"writeback_worker"').format("kworker", "my-flush")
        + 'unit = "lock"\nserves = ["writeback"]',
    )

    assert roles.thread_role(KWORKER, "my-flush").role.threshold == 0.7


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        (PROCESS.format("(", "c"), "process[0].match", "not a regular expression"),
        (PROCESS.format("a{99999999999999999999}", "c"), "process[0].match", "not a regular expression"),
        (PROCESS.format("(" * 5000 + ")" * 5000, "c"), "process[0].match", "not a regular expression"),
        (PROCESS.format("a", "c") + 'owner = "{2}"', "process[0].owner", "unknown field {2}"),
        (ROLE.format("nobody", "a"), "role[0] (r).in", "no [[process]] has the class nobody"),
        (ROLE.format("benchmark", "["), "role[0] (r).threads", "not a regular expression"),
        (ROLE.format("benchmark", "a") + "threshold = 1.5", "role[0] (r).threshold", "at most 1"),
        (ROLE.format("benchmark", "a") + 'unit = "herd"', "role[0].unit", "Invalid enum value 'herd'"),
        (ROLE.format("benchmark", "(a)") + 'owner = "{1}"', "role[0] (r).owner", "only a role of kworker"),
        (ROLE.format("kworker", "a") + 'owner = "{1}"', "role[0] (r).owner", "the first group of threads"),
        (ROLE.format("kworker", "(a)") + 'owner = "x-{1}"', "role[0] (r).owner", "the first group of threads"),
        ("threshold = 7", "threshold", "above 0 and at most 1, is 7"),
        ("threshold = 0", "threshold", "above 0 and at most 1, is 0"),
        ("resource.disk.threshold = nan", "resource.disk.threshold", "above 0"),
        ("alert.X = -1", "alert.X", "not negative"),
        ("alert.X = nan", "alert.X", "not negative"),
        ("alert.X = inf", "alert.X", "not negative"),
        ("thresold = 0.5", "top level", "unknown field `thresold`"),
        ("threshold = " + "9" * 400, "threshold", "out of range"),
        ("[[role]]\n", "role[0]", "missing required field `name`"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_an_error_names_file_key_and_reason_in_one_line(tmp_path: Path, text: str, key: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)

    assert str(caught.value).startswith(f"{tmp_path / 'roles.toml'}: {key}: ")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def quoted(text: str) -> str:
    return '"' + "".join(f"\\U{ord(c):08x}" for c in text) + '"'


TEXTS = st.sampled_from(["benchmark", "kworker", "a", "(a)", "{1}", "{comm}", "{ceph_id}", "lock"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=5
)
NUMBERS = st.floats().map(lambda value: repr(value).replace("e", "E")) | st.integers().map(str)
FIELDS = st.tuples(
    st.sampled_from(["match", "class", "owner", "name", "threads", "unit"]), TEXTS.map(quoted)
) | st.tuples(st.sampled_from(["threshold"]), NUMBERS)
TABLES = st.tuples(
    st.sampled_from(
        [
            "[[process]]",
            "[[role]]",
            '[[role]]\nname = "r"\nin = ["kworker"]',
            "[resource.r]",
            "[alert]",
            '[[process]]\nmatch = "x"',
        ]
    ),
    st.dictionaries(FIELDS.map(lambda field: field[0]), FIELDS.map(lambda field: field[1]), max_size=4),
).map(lambda table: table[0] + "".join(f"\n{key} = {value}" for key, value in table[1].items()))


@given(st.binary(max_size=100) | st.lists(TABLES, max_size=3).map(lambda tables: "\n".join(tables).encode()))
@example(b"threshold = 1e999")
def test_any_bytes_are_usable_rules_or_a_configuration_error(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    try:
        roles = load(tmp_path_factory.getbasetemp(), raw)
    except ConfigError:
        return

    assert all(0 < value <= 1 for value in roles.thresholds.values())
    assert all(0 <= value < math.inf for value in roles.alerts.values())


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[resource.dsik]\nthreshold = 0.5\n", "resource.dsik"),
        ("[resource.disk]\nthreshold = 0.5\n[resource.dsik]\n", "resource.dsik"),
        ("[alert]\nRunQueueWaitHihg = 0.5\n", "alert.RunQueueWaitHihg"),
    ],
)
def test_a_threshold_of_something_that_does_not_exist_is_refused_by_its_name(
    tmp_path: Path, text: str, key: str
) -> None:
    with pytest.raises(ConfigError, match=rf"roles.toml: {key}: there is none of that name"):
        load(tmp_path, text)


def test_a_file_may_give_a_threshold_to_a_role_of_its_own(tmp_path: Path) -> None:
    text = (
        PROCESS.format("mine", "mine") + ROLE.format("mine", "x") + 'unit = "thread"\n[resource.r]\nthreshold = 0.4\n'
    )

    assert load(tmp_path, text).thresholds["r"] == 0.4
