from __future__ import annotations

import json
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from judge.watched import NAMES, watched
from pinchpoint import pages
from pinchpoint.clock import Clock
from pinchpoint.diagnosis.recent import Judged
from pinchpoint.judge.engine import Engine
from pinchpoint.judge.pages import _rendered, page
from pinchpoint.judge.service import Judgement, Service
from pinchpoint.judge.targets import Target, TargetFiles
from pinchpoint.judge.web import application
from pinchpoint.metrics import JUDGE
from pinchpoint.model import Labels, Snapshot
from pinchpoint.report.document import verdict_json
from pinchpoint.wire.exposition import text
from pinchpoint.wire.poller import Problem
from pinchpoint.wire.sources import TargetSource, parse_exposition
from report.made import CLIENT, MDS, START

HOSTILE = "<script>alert(1)</script>\"'\u202e\x1b[31m"
ROOT = Path(__file__).parents[2]


def judged(until: float = START + 116) -> Judgement:
    """Return the judge's verdict on the made-up run at one time, with a host that is not seen."""
    engine = Engine(lambda: 0.0)
    runs: tuple[Judged, ...] = ()
    for moment in watched():
        now = moment[CLIENT].time
        if now > until:
            break
        engine.take(moment)
        runs = tuple(engine.step(now))
    problems = {"osd1:9748": Problem("connection refused", START)}
    hosts = {CLIENT: until, MDS: until}
    return Judgement(
        time=until,
        hosts=hosts,
        problems=problems,
        runs=runs,
        phases=tuple(engine.phases),
        facts=engine.facts,
        behind=0,
        seconds=0.01,
        rounds=5,
    )


@pytest.fixture
def service() -> Service:
    found = Service([], TargetFiles([]), [])
    found.said = judged()
    return found


def ask(service: Service, path: str, method: str = "GET") -> tuple[str, dict[str, str], str]:
    """Return status, headers and body of one answer."""
    said: list[tuple[str, dict[str, str]]] = []
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": "", "SERVER_NAME": "127.0.0.1"}
    body = b"".join(application(service)(environ, lambda status, headers: said.append((status, dict(headers)))))
    return (*said[0], body.decode())


def test_the_verdict_is_a_metric_with_its_phase_limit_and_confidence() -> None:
    found = parse_exposition(text(judged().points()), 0.0)

    labels = {**NAMES, "phase": "ior_hard_write", "kind": "latency-bound", "resource": "", "owner": "", "host": ""}
    assert dict(found.series("pinchpoint_verdict_info").__next__()[0], confidence="") == {**labels, "confidence": ""}
    assert found.value("pinchpoint_verdict_wait_ratio", **NAMES, wait="osd") == pytest.approx(0.9, abs=0.01)
    blamed = [dict(labels) for labels, _ in found.series("pinchpoint_verdict_blame_ratio")]
    assert {"kv_sync", "osd_op"} <= {labels["resource"] for labels in blamed}
    assert found.value("pinchpoint_judge_hosts", state="up") == 2
    assert found.value("pinchpoint_judge_problem_info", source="osd1:9748", reason="connection refused") == 1
    assert found.value("pinchpoint_run_fact_hosts", run=NAMES["run"], fact="governor", value="powersave") == 1


def test_phases_that_have_ended_are_metrics_too() -> None:
    found = parse_exposition(text(judged().points()), 0.0)

    limits = {
        labels["phase"]: (labels["kind"], labels["resource"], labels["owner"], labels["host"])
        for labels, _ in found.series("pinchpoint_phase_verdict_info")
    }
    assert limits == {
        "ior_easy_write": ("resource", "writeback_worker", "ceph-1", CLIENT),
        "mdtest_easy_write": ("resource", "mds_lock", "mds.a", MDS),
    }


def test_every_metric_is_in_the_register(service: Service) -> None:
    known = {metric.name for metric in JUDGE if not metric.name.startswith("pinchpoint_judge_web_")}

    assert {point.metric.name for point in service.points()} == known


def test_the_document_has_what_the_report_has(service: Service) -> None:
    status, headers, body = ask(service, "/api/v1/verdicts")
    found = json.loads(body)

    assert (status, headers["Content-Type"]) == ("200 OK", "application/json; charset=utf-8")
    (run,) = found["runs"]
    assert (run["benchmark"], run["run"], run["phase"]) == ("io500", NAMES["run"], "ior_hard_write")
    assert run.items() >= json.loads(json.dumps(verdict_json(service.said.runs[0].verdict))).items()
    assert [phase["verdict"]["words"] for phase in found["phases"]] == [
        "limited by writeback_worker of ceph-1",
        "limited by mds_lock of mds.a",
    ]
    assert found["problems"] == [{"source": "osd1:9748", "reason": "connection refused", "since": START}]


class Links(HTMLParser):
    """Collects the links and the element names of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name == "href"]


def test_the_page_says_what_limits_each_run_and_refreshes_itself(service: Service) -> None:
    status, _, body = ask(service, "/")

    assert status == "200 OK"
    assert "latency-bound" in body
    assert "limited by mds_lock of mds.a" in body
    assert "connection refused" in body
    assert '<meta http-equiv="refresh"' in body
    assert "script" not in Links(body).tags


def test_without_a_run_the_page_says_so(service: Service) -> None:
    service.said = Judgement(1.0)

    assert "No benchmark runs." in ask(service, "/")[2]


def test_names_of_others_are_text_and_nothing_else(service: Service) -> None:
    engine = Engine(lambda: 0.0)
    labels = (("benchmark", HOSTILE), ("run", HOSTILE))
    for second in range(5):
        values: dict[str, dict[Labels, float]] = {
            "pinchpoint_workload_seconds_total": {(*labels, ("wait", HOSTILE)): float(second)},
            "pinchpoint_phase_active": {(labels[0], ("phase", HOSTILE), labels[1]): 1.0},
        }
        engine.take({HOSTILE: Snapshot(START + second, values)})
    runs = tuple(engine.step(START + 5))
    assert runs
    service.said = Judgement(START + 5, {HOSTILE: START}, {HOSTILE: Problem(HOSTILE, 1.0)}, runs)

    body = ask(service, "/")[2]

    assert "<script" not in body
    assert "\u202e" not in body
    assert "\x1b" not in body
    assert json.loads(ask(service, "/api/v1/verdicts")[2])["runs"][0]["run"] == HOSTILE
    assert ask(service, "/metrics")[0] == "200 OK"


def test_every_page_is_served_and_its_links_lead_somewhere(service: Service) -> None:
    bodies = {}
    for folder in pages.FOLDERS:
        names = {path.stem for path in (ROOT / folder).glob("*.md")} - {"README"}
        assert {f"/{folder}/{name}" for name in names} <= set(Links(ask(service, f"/{folder}/")[2]).links)
        for name in names:
            status, _, bodies[f"/{folder}/{name}"] = ask(service, f"/{folder}/{name}")
            assert status == "200 OK"
            assert ask(service, f"/{folder}/{name}.md")[2] == bodies[f"/{folder}/{name}"]

    assert '<h1 id="mdslocksaturated">MdsLockSaturated</h1>' in bodies["/runbooks/MdsLockSaturated"]
    for here, body in bodies.items():
        for link in Links(body).links:
            there, _, anchor = link.partition("#")
            assert (
                link in ("/", "/runbooks/", "/docs/")
                or link.startswith(("https://", "http://"))
                or f' id="{anchor}"' in bodies[there or here]
                or (not anchor and there in bodies)
            ), (here, link)


@pytest.mark.parametrize(
    "path",
    ["/nowhere", "/runbooks/Nothing", "/runbooks/../verdict", "/runbooks/%2e%2e/x", "/docs/README", "/tests/", ""],
)
def test_what_is_not_there_is_said_to_be_not_there(service: Service, path: str) -> None:
    assert ask(service, path)[0] == "404 Not Found"


def test_only_get_and_head_are_answered(service: Service) -> None:
    status, headers, body = ask(service, "/", "HEAD")
    assert (status, body) == ("200 OK", "")
    assert int(headers["Content-Length"]) > 1000
    assert ask(service, "/", "POST")[0] == "405 Method Not Allowed"


def test_a_judge_that_has_had_no_round_for_long_is_not_healthy(service: Service) -> None:
    assert ask(service, "/-/healthy")[0] == "503 Service Unavailable"
    service.round()
    assert ask(service, "/-/healthy")[0] == "200 OK"


@pytest.mark.parametrize("step", [-3600.0, 86_400.0])
def test_a_clock_that_is_set_makes_no_judge_unhealthy(
    service: Service, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    service.round()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + step)

    assert ask(service, "/-/healthy")[0] == "200 OK"


def test_a_clock_that_is_set_does_not_move_a_phase_that_is_under_way() -> None:
    steps = [0.0]
    clock = Clock(lambda: START + time.monotonic() + steps[0], time.monotonic)
    service = Service([Target("h", "http://h:9748/metrics")], TargetFiles([]), [], clock=clock)
    (source,) = (make() for make in service._sources().values())
    assert isinstance(source, TargetSource)
    times = []

    def collect() -> dict[str, Snapshot]:
        times.append(source._clock())
        return {"h": Snapshot(times[-1], {}), "far": Snapshot(START, {})}

    service._hosts.collect = collect  # type: ignore[method-assign]
    service.round()
    steps[0] = -3600.0
    service.round()

    assert 0.0 <= times[1] - times[0] < 1800.0
    assert service.said.hosts == pytest.approx({"h": times[1] - 3600.0, "far": START}, abs=1e-3)
    assert service.said.time == pytest.approx(times[1] - 3600.0, abs=60.0)


def test_runbooks_are_read_by_name_and_nothing_else_is() -> None:
    assert page("runbooks", "MdsLockSaturated")
    for name in ("README", "../docs/verdict", "MdsLockSaturated.md", "", "mdslocksaturated", "a/b"):
        assert page("runbooks", name) is None
    assert page("..", "README") is None


def test_names_that_are_made_up_are_not_remembered() -> None:
    assert page("docs", "verdict")
    before = _rendered.cache_info().currsize
    assert [page("docs", f"madeup{number}") for number in range(100)] == [None] * 100
    assert _rendered.cache_info().currsize == before


def test_a_host_that_answers_is_not_lost_because_another_source_lacks_it(service: Service) -> None:
    lost: list[str] = []
    times = iter([100.0, 101.0])
    service._hosts.collect = lambda: {"a": Snapshot(next(times), {})}  # type: ignore[method-assign]
    service._hosts.problems = lambda: {name: Problem("no samples", START) for name in "ab"}  # type: ignore[method-assign]
    service._engine.lose = lambda host: lost.append(host)  # type: ignore[method-assign]

    service.round()
    service.round()

    assert lost == []
    assert (set(service.said.hosts), set(service.said.problems)) == ({"a"}, {"b"})


def test_a_server_that_is_slow_and_a_malformed_file_are_problems_but_no_host_is_down(service: Service) -> None:
    late = {"http://prometheus": Problem("late", START, unseen=False), "b": Problem("no samples", START)}
    service._hosts.collect = lambda: {"a": Snapshot(START, {})}  # type: ignore[method-assign]
    service._hosts.problems = lambda: late  # type: ignore[method-assign]
    service._files.problems = {"targets.json": "not JSON"}

    service.round()

    found = parse_exposition(text(service.said.points()), 0.0)
    assert [found.value("pinchpoint_judge_hosts", state=state) for state in ("up", "down")] == [1, 1]
    assert {labels["source"] for labels, _ in found.series("pinchpoint_judge_problem_info")} == {*late, "targets.json"}


def test_a_host_lasts_between_the_answers_of_a_slow_server(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([{"a": Snapshot(START, {}, lasts=20.0)}, *[{}] * 3])
    service._hosts.collect = lambda: next(answers)  # type: ignore[method-assign]
    service._hosts.problems = dict  # type: ignore[method-assign]
    seen = []
    for passed in (0.0, 6.0, 19.0, 22.0):
        monkeypatch.setattr(time, "monotonic", lambda passed=passed: 1000.0 + passed)
        service.round()
        seen.append("a" in service.said.hosts)

    assert seen == [True, True, True, False]


def test_while_a_run_is_judged_exporters_are_asked_for_the_full_rate(service: Service) -> None:
    answers = iter([[], [*judged().runs], []])
    service._hosts.collect = dict  # type: ignore[method-assign]
    service._engine.step = lambda now, budget=0.0: next(answers)  # type: ignore[method-assign]
    demands: list[bool] = []
    for _ in range(3):
        service.round()
        demands.append(service._demand.full)

    assert demands == [False, True, False]


def test_a_host_without_a_time_that_leaves_ends_no_round(service: Service) -> None:
    answers = iter([{"a": Snapshot(0.0, {})}, {}])
    service._hosts.collect = lambda: next(answers)  # type: ignore[method-assign]
    service.round()
    service._hosts.problems = lambda: {"a": Problem("gone", START)}  # type: ignore[method-assign]
    service.round()

    assert service.said.hosts == {}


def test_of_a_host_that_two_sources_know_the_newest_samples_count(service: Service) -> None:
    taken: list[float] = []
    given = [[100.0, 99.0], [101.0, 101.0], [99.5, 102.0], [50.0, 51.0]]
    collected = iter([{"a": Snapshot(time, {})} for pair in given for time in pair])
    service._hosts.collect = lambda: next(collected)  # type: ignore[method-assign]
    service._engine.take = lambda moment: taken.extend(found.time for found in moment.values())  # type: ignore[method-assign]

    for _ in range(8):
        service.round()

    assert taken == [100.0, 101.0, 102.0, 50.0, 51.0], "a clock that was set back by more than that is believed"
