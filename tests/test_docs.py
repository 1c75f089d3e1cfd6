"""What the documents say is what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tables
from pinchpoint.cli import COMMANDS
from pinchpoint.metrics import EXPORTER, JUDGE
from pinchpoint.model import MetricKind
from pinchpoint.probes import PROBES

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    path for path in [*ROOT.glob("*.md"), *ROOT.glob("runbooks/*.md"), *ROOT.glob("docs/*.md")] if path.is_file()
)
UNITS = ("_seconds", "_bytes", "_ratio", "_hertz", "_info", "_cpus", "_files")


@pytest.mark.parametrize("page", tables.tables(), ids=lambda page: str(page.name))
def test_a_page_has_the_tables_that_the_code_gives(page: Path) -> None:
    assert page.read_text() == tables.updated(page, tables.tables()[page]), "make docs"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_and_says_what_it_does(name: str) -> None:
    help_text = subprocess.run(
        [sys.executable, "-m", "pinchpoint", name, "--help"], capture_output=True, text=True, check=True
    ).stdout

    assert f"pinchpoint {name}" in (ROOT / "docs" / "use.md").read_text()
    assert len(help_text.splitlines()) > 3


def test_every_probe_is_in_the_figure_of_the_architecture() -> None:
    figure = (ROOT / "docs" / "architecture.md").read_text().split("```")[1]

    assert [probe.name for probe in PROBES if probe.name not in figure] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", prose)

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_readme_is_short_and_leads_to_every_page() -> None:
    text = tables.README.read_text()
    pages = [f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")]

    assert [page for page in pages if f"({page})" not in text] == []
    assert len(text.splitlines()) <= 180


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"`make ([a-z-]+)`", page.read_text())}

    assert named - targets == set()


def test_every_file_that_contributing_names_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`((?:exporter|tests|alerts|runbooks|compose)/[\w/.]+)`", text)

    assert len(paths) > 5
    assert [path for path in paths if "NAME" not in path and not (ROOT / path).exists()] == []


def test_metrics_have_help_a_unit_and_the_suffix_of_their_kind() -> None:
    for metric in (*EXPORTER, *JUDGE):
        assert metric.name.startswith("pinchpoint_")
        assert metric.help.endswith(".")
        assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
        counted = metric.name.removesuffix("_total")
        assert counted.endswith(UNITS) or metric.kind is MetricKind.COUNTER or metric.name in COUNTS, metric.name


COUNTS = {
    "pinchpoint_alert_threshold",
    "pinchpoint_ceph_client_blind_instances",
    "pinchpoint_ceph_client_blocklisted",
    "pinchpoint_ceph_client_inflight_requests",
    "pinchpoint_ceph_client_instances",
    "pinchpoint_ceph_daemon_stuck",
    "pinchpoint_ceph_option_daemons",
    "pinchpoint_ceph_socket_up",
    "pinchpoint_cgroup_io_limit",
    "pinchpoint_cpu_turbo_disabled",
    "pinchpoint_judge_behind_runs",
    "pinchpoint_judge_hosts",
    "pinchpoint_judge_runs",
    "pinchpoint_mds_caps",
    "pinchpoint_mds_inodes",
    "pinchpoint_mds_inodes_pinned",
    "pinchpoint_mds_inodes_with_caps",
    "pinchpoint_mds_log_segments",
    "pinchpoint_mds_log_segments_limit",
    "pinchpoint_mds_log_segments_warn",
    "pinchpoint_mds_osd_ops_in_flight",
    "pinchpoint_mds_queue_requests",
    "pinchpoint_mds_rank_held",
    "pinchpoint_mds_sessions",
    "pinchpoint_osd_finisher_queue",
    "pinchpoint_osd_ops_in_flight",
    "pinchpoint_osd_pgs",
    "pinchpoint_osd_slow_ops",
    "pinchpoint_phase_active",
    "pinchpoint_phase_number",
    "pinchpoint_phase_rate",
    "pinchpoint_phase_result",
    "pinchpoint_phase_valid",
    "pinchpoint_probe_present",
    "pinchpoint_probe_success",
    "pinchpoint_run_fact_hosts",
    "pinchpoint_run_phases",
    "pinchpoint_run_score",
    "pinchpoint_run_state",
    "pinchpoint_run_valid",
    "pinchpoint_self_series",
    "pinchpoint_tasks_followed",
    "pinchpoint_tasks_unreadable",
    "pinchpoint_tcp_connections",
    "pinchpoint_threads",
    "pinchpoint_workload_processes",
    "pinchpoint_workload_unknown_stacks",
}
"""Numbers of things, yes or no, and those whose unit is a label or stands in the roles file."""
