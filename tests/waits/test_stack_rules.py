from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.tomlfile import ConfigError
from pinchpoint.waits.stack_rules import (
    DATA,
    FLUSH,
    FUSE,
    MAX_KNOWN_STACKS,
    MAX_RAW_STACKS,
    PARKED,
    RUNNING,
    WAITS,
    YIELDS,
    Stacks,
    load_waits,
    parse_stack,
)

SYSCALL = ("do_syscall_64", "entry_SYSCALL_64_after_hwframe")


def raw(*frames: str) -> bytes:
    """Return a stack as ``/proc/PID/task/TID/stack`` shows it."""
    return b"".join(b"[<0>] %s+0x1f/0x40\n" % frame.encode() for frame in (*frames, *SYSCALL))


def decided(text: str) -> str | None:
    """Return the decision of the rules on a stack that is written as ``innermost < caller < ...``."""
    return load_waits().decide((*text.split(" < "), *SYSCALL))


def test_a_stack_is_its_functions_without_what_the_compiler_added() -> None:
    text = (
        b"[<0>] folio_wait_bit_common+0x110/0x310\n"
        b"[<0>] do_execveat_common.isra.0+0x1a6/0x1b0\n"
        b"[<0>] ceph_get_caps+0x1f/0x40 [ceph]\n"
        b"[<ffffffff8123abcd>] sys_read+0x44/0xc0\n"
        b"[<0>] 0xffffffffffffffff\n"
    )

    assert parse_stack(text) == ("folio_wait_bit_common", "do_execveat_common", "ceph_get_caps", "sys_read")


def test_wchan_is_a_stack_of_one_function_and_zero_is_none() -> None:
    assert parse_stack(b"hrtimer_nanosleep") == ("hrtimer_nanosleep",)
    assert parse_stack(b"0") == parse_stack(b"") == ()


@given(st.binary(max_size=10_000))
def test_no_bytes_break_the_parser(data: bytes) -> None:
    frames = parse_stack(data)

    assert len(frames) <= 64
    assert all(frame and frame.isascii() and len(frame) <= 128 for frame in frames)


NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,60}", fullmatch=True)


@given(st.lists(NAMES, max_size=30))
def test_every_function_is_found_in_order(names: list[str]) -> None:
    text = "".join(f"[<0>] {name}+0x{index:x}/0x40\n" for index, name in enumerate(names)).encode()

    assert parse_stack(text) == tuple(names)


@given(st.lists(NAMES, max_size=10))
def test_whatever_the_functions_are_called_a_rule_gives_a_class_or_none(names: list[str]) -> None:
    special = {PARKED, RUNNING, YIELDS, DATA, FLUSH, FUSE}

    assert load_waits().decide(tuple(names)) in {None, *WAITS, *special}


SEEN = {
    # mdtest, ior and dd on ceph-fuse
    "request_wait_answer < __fuse_simple_request < fuse_create_open < fuse_atomic_open < path_openat": FUSE,
    "request_wait_answer < __fuse_simple_request < fuse_dentry_revalidate < lookup_fast": FUSE,
    "request_wait_answer < __fuse_simple_request < fuse_perform_write < fuse_file_write_iter < vfs_write": FUSE,
    "request_wait_answer < __fuse_simple_request < fuse_getxattr < __vfs_getxattr": FUSE,
    # dd oflag=dsync on ext4
    "folio_wait_bit < folio_wait_writeback < __filemap_fdatawait_range < file_write_and_wait_range < ext4_sync_file": (
        "disk"
    ),
    "submit_bio_wait < blkdev_issue_flush < ext4_sync_file < ext4_buffered_write_iter < vfs_write": "disk",
    "__sync_dirty_buffer < ext4_write_inode < ext4_fsync_nojournal < ext4_sync_file": "disk",
    # fio: libaio, psync
    "read_events < do_io_getevents < __x64_sys_io_getevents": DATA,
    "__iomap_dio_rw < iomap_dio_rw < ext4_file_read_iter < vfs_read": "disk",
    # throttled writers, and the journal that they wait for meanwhile
    "balance_dirty_pages < balance_dirty_pages_ratelimited_flags < generic_perform_write < ext4_buffered_write_iter": (
        "writeback"
    ),
    # fio releasing a file whose pages the flush worker holds
    "__folio_lock < mpage_prepare_extent_to_map < ext4_do_writepages < ext4_writepages < do_writepages": "writeback",
    "do_get_write_access < jbd2_journal_get_write_access < __ext4_journal_get_write_access": ("disk"),
    # exec
    "folio_wait_bit_common < filemap_get_pages < filemap_read < __kernel_read < bprm_execve": "disk",
    "folio_wait_bit_common < filemap_get_pages < filemap_read < vfs_read < __x64_sys_pread64": DATA,
    # rados bench, Open MPI's and fio's helpers
    "futex_do_wait < __futex_wait < futex_wait < do_futex < __x64_sys_futex": PARKED,
    "do_epoll_wait < __x64_sys_epoll_wait": PARKED,
    "poll_schedule_timeout < do_sys_poll < __x64_sys_poll": PARKED,
    "poll_schedule_timeout < do_select < core_sys_select < do_pselect": PARKED,
    "hrtimer_nanosleep < common_nsleep < __x64_sys_clock_nanosleep": PARKED,
    "do_wait < kernel_wait4 < __do_sys_wait4": PARKED,
    "anon_pipe_read < vfs_read < ksys_read": PARKED,
    # mdtest-hard: ranks that take turns on one directory; a frozen file system
    "path_openat < do_filp_open < do_sys_openat2": "lock",
    "percpu_rwsem_wait < vfs_write < __x64_sys_pwrite64": "lock",
    # on their way back from an interrupt or a call: they could run
    "irqentry_exit_to_user_mode < asm_sysvec_apic_timer_interrupt": RUNNING,
    "exit_to_user_mode_loop": RUNNING,
    # a rank in a barrier
    "__do_sys_sched_yield": YIELDS,
    # not a wait: seen in a thread that ran
    "shmem_undo_range < shmem_evict_inode < evict < do_unlinkat < __x64_sys_unlink": None,
}


@pytest.mark.parametrize("stack", SEEN)
def test_a_stack_that_was_seen_has_its_class(stack: str) -> None:
    assert decided(stack) == SEEN[stack]


READ = {
    # fs/ceph
    "ceph_mdsc_wait_request < ceph_mdsc_do_request < ceph_atomic_open < lookup_open < path_openat": "mds",
    "ceph_mdsc_do_request < __ceph_do_getattr < ceph_getattr < vfs_statx": "mds",
    "ceph_get_caps < ceph_write_iter < vfs_write": "mds",
    "try_get_cap_refs < __ceph_get_caps < ceph_get_caps < ceph_read_iter": "mds",
    "ceph_osdc_wait_request < ceph_sync_write < ceph_write_iter < vfs_write": "osd",
    "ceph_direct_read_write < ceph_read_iter < vfs_read": "osd",
    "folio_wait_bit_common < filemap_get_pages < filemap_read < generic_file_read_iter < ceph_read_iter": "osd",
    "folio_wait_writeback < __filemap_fdatawait_range < file_write_and_wait_range < ceph_fsync < do_fsync": "osd",
    "ceph_fsync < vfs_fsync_range < do_fsync": "mds",
    "balance_dirty_pages < generic_perform_write < ceph_write_iter < vfs_write": "writeback",
    "folio_wait_bit_common < folio_wait_writeback < folio_wait_stable < ext4_da_write_begin": "writeback",
    "blk_mq_get_tag < blk_mq_submit_bio < ext4_io_submit < mpage_prepare_extent_to_map < ext4_writepages": "disk",
    "rwsem_down_write_slowpath < down_write < ceph_start_io_write < ceph_write_iter": "lock",
    "ceph_write_iter < vfs_write": "lock",
    # fs/nfs, net/sunrpc
    "rpc_wait_bit_killable < __rpc_wait_for_completion_task < nfs4_run_open_task < nfs4_do_open": "network",
    "nfs_wait_on_request < nfs_direct_wait < nfs_file_direct_read": "network",
    "wait_on_commit < nfs_wb_all < nfs_file_fsync": "network",
    # reclaim inside whatever allocated memory
    "shrink_lruvec < shrink_node < do_try_to_free_pages < try_to_free_pages < filemap_alloc_folio < ext4_write_begin": (
        "memory"
    ),
    "throttle_direct_reclaim < try_to_free_pages < ceph_write_begin": "memory",
    # locks, and the journal's own mutex, which is held by a task that waits for the disk
    "rwsem_down_write_slowpath < down_write < ext4_buffered_write_iter": "lock",
    "down_read < xfs_ilock < xfs_file_buffered_read": "lock",
    "__mutex_lock < mutex_lock_io_nested < __jbd2_log_wait_for_space < add_transaction_credits": "disk",
    "xlog_wait_on_iclog < xfs_log_force_seq < xfs_file_fsync": "disk",
    "btrfs_sync_log < btrfs_sync_file < do_fsync": "disk",
    # io_uring, sync, memory maps
    "io_cqring_wait < __do_sys_io_uring_enter": DATA,
    "folio_wait_writeback < do_fsync < __x64_sys_fsync": FLUSH,
    "wb_wait_for_completion < sync_inodes_sb < __x64_sys_syncfs": "writeback",
    # sockets
    "sk_stream_wait_memory < tcp_sendmsg_locked < tcp_sendmsg": "network",
}


@pytest.mark.parametrize("stack", READ)
def test_a_stack_as_the_sources_have_it_has_its_class(stack: str) -> None:
    assert decided(stack) == READ[stack]


def test_the_order_of_rules_decides_and_not_the_innermost_function() -> None:
    assert decided("folio_wait_bit < fuse_wait_on_folio_writeback < fuse_flush < filp_flush") == FUSE
    assert decided("folio_wait_bit < ext4_da_write_begin < generic_perform_write") == "disk"


@pytest.mark.parametrize("name", ["futex_do_wait", "request_wait_answer", "folio_wait_bit_common", "0"])
def test_wchan_is_judged_by_the_same_rules(name: str) -> None:
    expected = {"futex_do_wait": PARKED, "request_wait_answer": FUSE, "folio_wait_bit_common": DATA, "0": RUNNING}

    assert load_waits().decide(parse_stack(name.encode())) == expected[name]


@pytest.mark.parametrize(
    ("fstype", "source", "wait"),
    [
        ("ext4", "/dev/vda", "disk"),
        ("ext4", "/dev/rbd0p1", "osd"),
        ("bdev", "/dev/rbd0", "osd"),
        ("xfs", "/dev/mapper/data", "disk"),
        ("ceph", "10.0.0.1:6789:/", "osd"),
        ("fuse.ceph-fuse", "ceph-fuse", FUSE),
        ("fuse.sshfs", "host:/", "client"),
        ("nfs4", "server:/export", "network"),
        ("tmpfs", "tmpfs", None),
        ("proc", "proc", None),
    ],
)
def test_a_wait_for_data_is_known_by_the_file_system(fstype: str, source: str, wait: str | None) -> None:
    assert load_waits().filesystem(fstype, source) == wait


def test_a_parked_program_is_idle_unless_its_parking_means_something() -> None:
    assert load_waits().parked("fio") == "idle"
    assert load_waits().parked("iperf3") == "network"


def test_a_users_rules_come_before_the_built_in_ones(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[[rule]]\nclass = "network"\nframes = "myfs_.*"\nseen = "6.1"\n')
    rules = load_waits(own)

    assert rules.decide(("folio_wait_bit", "myfs_read", "ext4_file_read_iter")) == "network"
    assert rules.decide(("submit_bio_wait", "ext4_sync_file")) == "disk"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            '[[rule]]\nclass = "disc"\nframes = "a"\nseen = "x"\n',
            "own.toml: rule[0].class: Invalid enum value 'disc'",
        ),
        ('[[rule]]\nclass = "disk"\nframes = "("\nseen = "x"\n', "own.toml: rule[0].frames: not a regular expression"),
        ('[[rule]]\nclass = "disk"\nframes = ""\nseen = "x"\n', "own.toml: rule[0].frames: names no function"),
        ('[[rule]]\nclass = "disk"\nframes = "a"\n', "own.toml: rule[0]: Object missing required field `seen`"),
        ('[[filesystem]]\nclass = "disk"\ntypes = "["\n', "own.toml: filesystem[0].types: not a regular expression"),
        ("nonsense", "own.toml: not TOML"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_place_and_the_reason(
    text: str, reason: str, tmp_path: Path
) -> None:
    own = tmp_path / "own.toml"
    own.write_text(text)

    with pytest.raises(ConfigError) as error:
        load_waits(own)
    assert reason in str(error.value)


def test_stacks_that_differ_in_offsets_alone_are_one() -> None:
    stacks = Stacks(load_waits())
    one = stacks.look(b"[<0>] hrtimer_nanosleep+0x1/0x9\n", 1.0)
    other = stacks.look(b"[<0>] hrtimer_nanosleep+0x2/0x9\n", 2.0)

    assert one is other
    assert (one.times, one.seen) == (2, 2.0)


def test_however_many_stacks_there_are_few_are_remembered_and_none_is_wrong() -> None:
    stacks = Stacks(load_waits())
    for number in range(MAX_RAW_STACKS + MAX_KNOWN_STACKS):
        assert stacks.look(raw(f"strange_{number}"), float(number)).wait is None

    assert len(list(stacks)) <= MAX_KNOWN_STACKS
    assert stacks.look(raw("hrtimer_nanosleep"), 1e6).wait == PARKED


def test_a_stack_is_unknown_only_if_a_thread_slept_in_it_and_forgotten_when_it_is_seen_no_more() -> None:
    stacks = Stacks(load_waits())
    stacks.look(raw("strange"), 1.0)
    assert stacks.unknown == 0

    stacks.look(raw("strange"), 1.0).slept = True
    stacks.look(raw("hrtimer_nanosleep"), 2.0).slept = True
    assert stacks.unknown == 1

    stacks.forget(1.5)
    assert stacks.unknown == 0
    assert [stack.frames[0] for stack in stacks] == ["hrtimer_nanosleep"]
