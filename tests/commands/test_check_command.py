from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from click.testing import CliRunner, Result

from machine import Machine
from pinchpoint.cli import main
from pinchpoint.commands import check as check_command
from serving import serving

MANAGERS = Path(__file__).parents[1] / "fixtures" / "ceph" / "mgr_prometheus"
SOUND = 'pinchpoint_probe_success{probe="cpu"} 1\npinchpoint_cpu_turbo_disabled 0\n'
SLOW = 'pinchpoint_cpu_governor_info{driver="acpi-cpufreq",governor="powersave",epp=""} 1\n'
CLOSED = "127.0.0.1:1"


def exporter(text: str) -> Any:
    return serving(lambda path: text)


def invoke(*args: str) -> Result:
    result = CliRunner().invoke(main, ["check", *args], env={"COLUMNS": "80"})
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def document(*args: str) -> tuple[int, dict[str, Any]]:
    result = invoke("--json", *args)
    found: dict[str, Any] = json.loads(result.stdout)
    return result.exit_code, found


def test_a_sound_host_is_status_0() -> None:
    with exporter(SOUND) as target:
        result = invoke("--target", target, "--all")

    assert result.exit_code == 0
    assert "turbo: turbo is on" in result.stdout
    assert "1 host: 0 problems" in result.stdout


def test_a_problem_is_status_1() -> None:
    with exporter(SOUND + SLOW) as target:
        result = invoke("--target", target)

    assert result.exit_code == 1
    assert "PROBLEM frequency governor\n  CPUs run under powersave of acpi-cpufreq." in result.stdout


def test_a_host_that_does_not_answer_is_status_2_and_the_others_are_checked() -> None:
    with exporter(SOUND + SLOW) as target:
        status, found = document("--target", f"{CLOSED},{target}")

    assert status == 2
    assert found["hosts"] == [target, CLOSED]
    assert found["unreachable"] == [CLOSED]
    assert [finding["hosts"] for finding in found["findings"] if finding["check"] == "governor"] == [[target]]
    assert "Connection refused" in found["findings"][0]["found"]


def test_a_server_that_is_no_exporter_is_status_2() -> None:
    with exporter("up 1\n") as target:
        result = invoke("--target", target)

    assert result.exit_code == 2
    assert "no metrics of Pinchpoint" in " ".join(result.stdout.split())


def test_the_document_has_every_finding_with_what_is_said_of_it() -> None:
    with exporter(SOUND + SLOW) as target:
        _, found = document("--target", target)

    governor = found["findings"][0]
    assert governor.keys() == {"check", "what", "level", "hosts", "found", "matters", "harmless", "page"}
    assert (governor["check"], governor["level"], governor["hosts"]) == ("governor", "problem", [target])
    assert governor["page"] == "runbooks/GovernorPowersave.md"
    assert {"turbo", "probe_failing"} <= {finding["check"] for finding in found["findings"]}


def test_a_manager_of_ceph_can_be_a_target() -> None:
    with exporter((MANAGERS / "cache_oversized.prom").read_text()) as manager, exporter(SOUND) as target:
        status, found = document("--target", target, "--target", manager)

    assert status == 1
    assert found["unreachable"] == []
    assert found["findings"][0]["check"] == "health"


def test_a_host_that_hangs_keeps_nobody_waiting_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = Event()

    def hang(path: str) -> str:
        go_on.wait(60)
        return ""

    monkeypatch.setattr(check_command, "TARGETS_TIMEOUT_SECONDS", 3.0)
    with serving(hang) as slow, exporter(SOUND) as target:
        status, found = document("--target", f"{slow},{target}")
        go_on.set()

    assert status == 2
    assert found["unreachable"] == [slow]
    assert re.search(r"no answer for \d\.\d s|timed out", found["findings"][0]["found"])


def prometheus(*series: tuple[Mapping[str, str], float]) -> Any:
    def answer(path: str) -> str:
        result = [{"metric": metric, "value": [1e9, str(value)]} for metric, value in series if metric["__name__"]]
        return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})

    return serving(answer)


def scraped(name: str, instance: str, value: float = 1.0, **labels: str) -> tuple[Mapping[str, str], float]:
    return {"__name__": name, "job": "pinchpoint", "instance": instance, **labels}, value


WARNING = ({"__name__": "ceph_health_status", "job": "ceph", "instance": "m:9283"}, 1.0)


def test_prometheus_alone_tells_hosts_and_health_and_who_is_down() -> None:
    known = [
        scraped("pinchpoint_cpu_turbo_disabled", "a:9748"),
        scraped("up", "b:9748", 0.0),
        WARNING,
    ]
    with prometheus(*known) as server:
        status, found = document("--prometheus", f"http://{server}")

    assert status == 2
    assert found["hosts"] == ["a:9748", "b:9748"]
    assert found["unreachable"] == ["b:9748"]
    assert {"turbo", "health", "unreachable"} <= {finding["check"] for finding in found["findings"]}


def test_with_targets_prometheus_is_asked_for_health_alone() -> None:
    with prometheus(scraped("pinchpoint_cpu_turbo_disabled", "a:9748"), WARNING) as server, exporter(SOUND) as target:
        status, found = document("--target", target, "--prometheus", f"http://{server}")

    assert status == 1
    assert found["hosts"] == [target]
    assert [finding["check"] for finding in found["findings"] if finding["level"] == "problem"] == ["health"]


def test_a_prometheus_without_our_job_says_so() -> None:
    with prometheus() as server:
        result = invoke("--prometheus", f"http://{server}")

    assert result.exit_code == 2
    assert "job named pinchpoint" in " ".join(result.stdout.split())


def test_a_prometheus_that_is_not_there_is_named() -> None:
    with exporter(SOUND) as target:
        result = invoke("--target", target, "--prometheus", f"http://{CLOSED}")

    assert result.exit_code == 2
    assert CLOSED in result.stdout
    assert "1 problem" in result.stdout


def test_this_host_is_sampled_where_no_exporter_runs(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.process(1, "systemd")
    machine.write("proc/stat", "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")
    machine.write("proc/cmdline", "quiet numa=fake=8\n")
    config = tmp_path / "config.toml"
    config.write_text(
        f'[path]\nprocfs = "{machine.procfs}"\nsysfs = "{machine.sysfs}"\nrootfs = "{tmp_path}"\nruns = "{tmp_path}"\n'
    )
    monkeypatch.setattr(check_command, "EXPORTER", CLOSED)
    status, found = document("--config.file", str(config))

    assert status in (0, 1)
    assert found["hosts"] == [socket.gethostname()]
    assert "numa_fake" in {finding["check"] for finding in found["findings"]}


def test_the_exporter_of_this_host_is_asked_where_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with exporter(SOUND + SLOW) as target:
        monkeypatch.setattr(check_command, "EXPORTER", target)
        status, found = document()

    assert status == 1
    assert found["hosts"] == [socket.gethostname()]
    assert found["findings"][0]["check"] == "governor"


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["--target", "a"], "is not HOST:PORT"),
        (["--target", "a:1,,b:1"], "has an empty target"),
        (["--target", ":9748"], "names no host"),
        (["--target", "ftp://a/metrics"], "only http and https"),
        (["--prometheus", "a:9090"], "http://"),
        (["--config.file", "/nowhere.toml"], "/nowhere.toml"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_bad_usage_is_status_2_and_names_what_is_wrong(args: list[str], reason: str) -> None:
    result = invoke(*args)

    assert result.exit_code == 2
    assert reason in result.stderr
    assert "Traceback" not in result.stderr
