from __future__ import annotations

from pathlib import Path

import pytest

from pinchpoint.profile.classes import OTHER, CostRules, Frame, cost_words, load_costs, without_switch
from pinchpoint.profile.collected import Collector, folded, merged
from pinchpoint.tomlfile import ConfigError

OSD = "ceph-osd"
KERNEL = ""


def stack(*frames: str) -> list[Frame]:
    """Return a stack, innermost first: ``name`` of ceph-osd, ``name@file``, or ``name@`` of the kernel."""
    return [Frame(*(frame.split("@") if "@" in frame else (frame, OSD))) for frame in frames]


@pytest.mark.parametrize(
    ("cost", "frames"),
    [
        ("allocator", ("_int_malloc@libc.so.6", "malloc@libc.so.6", "rocksdb::MemTable::Add")),
        (
            "rocksdb_memtable",
            ("rocksdb::InlineSkipList::Insert", "rocksdb::MemTable::Add", "BlueStore::_kv_sync_thread"),
        ),
        ("block_io", ("virtqueue_kick@", "io_submit_one@", "__x64_sys_io_submit@", "io_submit@libaio.so.1")),
        ("checksum", ("ceph_crc32c_intel_fast", "Checksummer::calculate", "BlueStore::_do_write")),
        ("compression", ("memcpy@libc.so.6", "[libzstd.so.1]@libzstd.so.1", "BlueStore::_do_write_data")),
        ("encryption", ("[libcrypto.so.3]@libcrypto.so.3", "EVP_EncryptUpdate@libcrypto.so.3")),
        ("logging", ("malloc@libc.so.6", "std::__ostream_insert@libstdc++.so.6", "PrimaryLogPG::do_op")),
        ("rocksdb_compaction", ("malloc@libc.so.6", "rocksdb::CompactionJob::Run")),
        ("page_fault", ("clear_page_erms@", "handle_mm_fault@", "asm_exc_page_fault@", "malloc@libc.so.6")),
        ("iommu", ("native_queued_spin_lock_slowpath@", "alloc_iova_fast@", "iommu_dma_map_page@", "nvme_queue_rq@")),
        ("lock", ("native_queued_spin_lock_slowpath@", "futex_wait@", "do_futex@")),
        ("network_io", ("tcp_sendmsg@", "sock_sendmsg@", "__x64_sys_sendmsg@", "sendmsg@libc.so.6")),
        ("copying", ("rep_movs_alternative@", "_copy_from_iter@", "tcp_sendmsg_locked@")),
        ("python", ("_int_malloc@libc.so.6", "PyObject_Malloc@libpython3.11.so.1.0")),
        ("interrupt", ("handle_softirqs@", "__irq_exit_rcu@", "asm_common_interrupt@", "malloc@libc.so.6")),
        (OTHER, ("PrimaryLogPG::do_op", "clone3@libc.so.6")),
        (OTHER, ()),
    ],
)
def test_the_class_of_a_stack(cost: str, frames: tuple[str, ...]) -> None:
    assert load_costs().decide(stack(*frames)) == cost


def test_the_kernel_and_programs_have_rules_of_their_own() -> None:
    assert load_costs().decide(stack("tcp_sendmsg")) == OTHER
    assert load_costs().decide(stack("malloc@")) == OTHER


def test_each_class_has_a_rule_and_words() -> None:
    rules = load_costs()

    assert {rule.cost for rule in rules._rules} == set(rules.words)
    assert cost_words("rocksdb_wal") == "RocksDB write-ahead log and BlueFS"
    assert cost_words("my_class") == "my class"


def test_a_switch_to_the_thread_is_not_what_it_does() -> None:
    frames = stack(
        "finish_task_switch@", "__schedule@", "schedule@", "irqentry_exit@", "asm_sysvec_apic_timer_interrupt@"
    )

    assert list(without_switch([*frames, *stack("malloc")])) == stack("malloc")
    assert list(without_switch(stack("finish_task_switch@", "__schedule@", "futex_wait@"))) == stack("futex_wait@")
    assert list(without_switch(stack("malloc"))) == stack("malloc")


def own(tmp_path: Path, text: str) -> CostRules:
    (tmp_path / "costs.toml").write_text(text)
    return load_costs(tmp_path / "costs.toml")


def test_rules_of_the_user_come_first_and_may_add_a_class(tmp_path: Path) -> None:
    rules = own(tmp_path, "class.mine = 'my code'\n[[rule]]\nclass = 'mine'\nfunctions = 'malloc'\nseen = 'here'\n")

    assert rules.decide(stack("malloc")) == "mine"
    assert rules.decide(stack("free")) == "allocator"
    assert rules.words["mine"] == "my code"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule]]\nclass = 'none'\nfunctions = 'x'\nseen = ''\n", r"rule\[0\].class: \[class\] has no 'none'"),
        ("[[rule]]\nclass = 'lock'\nseen = ''\n", r"rule\[0\]: needs functions, files or kernel"),
        ("[[rule]]\nclass = 'lock'\nfunctions = '('\nseen = ''\n", r"rule\[0\].functions: not a regular expression"),
        ("class.UPPER = 'x'\n", r"class.UPPER: not a name"),
        ("class.other = 'x'\n", r"class.other: not a name"),
        ("".join(f"class.a{number} = 'x'\n" for number in range(99)), "class: more than 64 classes"),
        ("x = 1", "unknown field"),
    ],
)
def test_a_mistake_in_the_users_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        own(tmp_path, text)


def test_a_profile_adds_up_stacks() -> None:
    collector = Collector(load_costs())
    collector.add(stack("malloc", "Foo::run;x"), 3)
    collector.add(stack("Foo::run"), 1)

    profile = collector.profile("kv_sync", "osd.0", 10.0, 15.0, 0.02)

    assert profile.classes == {"allocator": 3, OTHER: 1}
    assert profile.top == [("malloc", 3), ("Foo::run", 1)]
    assert folded([profile]) == "kv_sync of osd.0;Foo::run 1\nkv_sync of osd.0;Foo::run:x;malloc 3\n"


def test_long_stacks_keep_their_innermost_functions() -> None:
    collector = Collector(load_costs())
    collector.add(stack("malloc", *(f"{number:0>150}" for number in range(99))), 1)

    (kept,) = collector.profile("kv_sync", "osd.0", 10.0, 15.0, 0.02).stacks

    assert kept.endswith(";malloc")
    assert len(kept) <= 2000


def test_profiles_of_one_resource_become_one() -> None:
    one, two = Collector(load_costs()), Collector(load_costs())
    one.add(stack("malloc"), 2)
    two.add(stack("malloc"), 1)
    two.add(stack("free"), 1)

    found = merged(
        [
            one.profile("kv_sync", "osd.0", 10.0, 15.0, 0.02),
            two.profile("kv_sync", "osd.0", 30.0, 35.0, 0.04),
            one.profile("kv_sync", "osd.1", 10.0, 15.0, 0.02),
        ]
    )

    assert [(profile.owner, profile.samples) for profile in found] == [("osd.0", 4), ("osd.1", 2)]
    assert (found[0].start, found[0].end, found[0].stacks) == (10.0, 35.0, {"malloc": 3, "free": 1})
    assert found[0].seconds == pytest.approx(0.03)


def test_rare_stacks_are_added_up() -> None:
    collector = Collector(load_costs())
    for number in range(2100):
        collector.add(stack(f"function_{number}"), 1)

    profile = collector.profile("kv_sync", "osd.0", 0.0, 1.0, 0.02)

    assert sum(profile.stacks.values()) == 2100
    assert profile.stacks["[rare stacks]"] == 100
