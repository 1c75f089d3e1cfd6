from __future__ import annotations

import re
from html.parser import HTMLParser
from math import sin
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import msgspec
import pytest
from msgspec.structs import replace

from pinchpoint.diagnosis.chains import Passed, WaitGraph
from pinchpoint.diagnosis.facts import facts, merged
from pinchpoint.diagnosis.verdict import Limit
from pinchpoint.report.document import Document, DocumentHost, DocumentPhase, build
from pinchpoint.report.page import important, page
from pinchpoint.report.palette import WAITS
from pinchpoint.report.timeline import Line, ResourceLine, RunLines, Tracer, step_of
from pinchpoint.runs import Result
from pinchpoint.waits.chain import Kind, Node, Step
from report.made import MDS, RUN, START, cut, made_record, moments

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}$x_1$\x00\x1b[31m\u202e&amp;"


def made(skip: str = "nothing") -> tuple[Document, RunLines]:
    """Return the made-up run without metrics whose names begin with `skip`."""
    record = made_record(c6="on")
    tracer, known, kept = Tracer(RUN, ["io500"], 2.0), dict[str, dict[str, list[str]]](), []
    for moment in moments():
        kept.append({
            host: type(taken)(taken.time, {name: of for name, of in taken.values.items() if not name.startswith(skip)})
            for host, taken in moment.items()
        })  # fmt: skip
        tracer.take(kept[-1])
        known = merged(known, facts(kept[-1]))
    found = build(record, cut(record.marker.phases, kept), known, state="finished", recorded=True)
    return found, tracer.timeline


@pytest.fixture(scope="module")
def shown() -> str:
    return page(*made())


class Elements(HTMLParser):
    """Collects the elements and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.said = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.said += data


def pictures(text: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


def test_the_page_says_what_limited_each_phase_and_what_to_do(shown: str) -> None:
    said = " ".join(Elements(shown).said.split())

    for words in (
        "limited by writeback_worker of ceph-1",
        "limited by mds_lock of mds.a",
        "latency-bound",
        "too short",
        "score 3.94",
        "c6=on",
        "kswapd of node0 on client1:9748 is busy for 97%: it keeps up",
        "runbooks/MdsLockSaturated.md",
        "mpirun -np 4 ./io500 config.ini",
        "OSD write: 4.1 ms, 800 per second",
        "kv commit 2.9 ms",
    ):
        assert words in said


def test_nothing_is_loaded_from_anywhere(shown: str) -> None:
    elements = Elements(shown)

    assert elements.tags.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "base", "form"})
    loads = [(name, value) for tag, name, value in elements.attributes if name in ("src", "srcset", "xlink:href")]
    assert all(name == "xlink:href" and value.startswith("#") for name, value in loads)
    assert {value.partition("#")[0] for tag, name, value in elements.attributes if name == "href"} <= {
        "",
        *re.findall(r"http://127\.0\.0\.1:9749/runbooks/\w+\.md", shown),
    }
    assert not re.search(r"@import|url\((?!#)", shown)
    assert "default-src 'none'" in shown


def test_every_picture_has_a_title_and_all_share_one_axis_of_time(shown: str) -> None:
    found = pictures(shown)

    assert len(found) == 7
    assert all(picture.get("aria-label") for picture in found)
    assert {(picture.get("viewBox") or "").split()[2] for picture in found} == {"960"}
    over_time = [picture for picture in found if "who wakes whom" not in (picture.get("aria-label") or "")]
    assert len(over_time) == 6
    for picture in over_time:
        texts = ["".join(text.itertext()) for text in picture.iter("{http://www.w3.org/2000/svg}text")]
        assert {"0:00", "1:00", "3:30"} <= set(texts)
    for title in ("What the benchmark waits for", "How busy the resources are", "Clock", "Idle states", "MDS cache"):
        assert f"<h3>{title}" in shown


def test_a_picture_without_data_is_left_out() -> None:
    text = page(*made(skip="pinchpoint_mds"))
    bare = page(*made(skip="pinchpoint"))

    assert "MDS cache</h3>" not in text
    assert "Clock</h3>" in text
    assert len(pictures(bare)) == 1  # the phases
    assert "no process of the benchmark was seen" in bare


def test_inks_follow_the_page_and_wait_classes_keep_their_colour(shown: str) -> None:
    assert "prefers-color-scheme: dark" in shown
    assert "var(--ink" in shown
    assert "#fe00" not in shown
    for wait in ("mds", "osd", "writeback", "cpu", "runqueue", "idle"):
        assert f"fill: {WAITS[wait].lower()}" in shown


def test_the_resources_that_verdicts_name_come_first() -> None:
    found = important(made()[0])

    assert found[0] == ResourceLine("mds_lock", "mds.a", MDS)
    assert ResourceLine("writeback_worker", "ceph-1", "client1:9748") in found[:4]
    assert len(found) <= 8


def test_what_others_wrote_is_text_and_nothing_else() -> None:
    document, timeline = made()
    document = msgspec.structs.replace(
        document,
        run=HOSTILE,
        benchmark=HOSTILE,
        command=[HOSTILE],
        tags={HOSTILE: HOSTILE},
        origin=HOSTILE,
        state=HOSTILE,
        reason=HOSTILE,
        against=HOSTILE,
        warnings=[HOSTILE],
        hosts=[DocumentHost(HOSTILE, {HOSTILE: [HOSTILE]})],
        phases=[hostile(phase) for phase in document.phases],
    )
    timeline.waits[HOSTILE] = timeline.waits["mds"]
    timeline.idle = {HOSTILE: {HOSTILE: Line()}}
    timeline.clocks = {HOSTILE: Line()}
    timeline.caches = {(HOSTILE, HOSTILE): Line(), ("b", HOSTILE): Line()}
    resource = ResourceLine(HOSTILE, HOSTILE, HOSTILE)
    timeline.busy[resource], timeline.serves[resource] = timeline.busy[important(made()[0])[0]], (HOSTILE,)

    text = page(document, timeline)

    elements = Elements(text)
    assert elements.tags.isdisjoint({"script", "img"})
    assert not [name for _, name, _ in elements.attributes if name.startswith("on")]
    assert "\x00" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "{{ 7*7 }}" in elements.said
    assert "<script>alert(1)</script>" in elements.said
    assert len(pictures(text)) == 6 + len(document.phases)


def hostile(phase: DocumentPhase) -> DocumentPhase:
    assert phase.verdict is not None
    lists = ("doubts", "evidence", "innocent", "blind", "latency", "no_role")
    texts: dict[str, Any] = dict.fromkeys(lists, (HOSTILE,)) | dict.fromkeys(("margin", "runbook", "advice"), HOSTILE)
    limit = Limit(
        resource=HOSTILE,
        owner=HOSTILE,
        host=HOSTILE,
        serves=(HOSTILE,),
        busy=0.9,
        runqueue=0.1,
        blocked=0.0,
        saturated=0.9,
        threshold=0.8,
        full=True,
        blame=0.9,
        reach=0.9,
    )
    one, two = Node(HOSTILE, HOSTILE), Node("", HOSTILE)
    graph = WaitGraph((Step(one, 0.6, {Kind.CPU: 0.6}), Step(two, 0.4, {Kind.DISK: 0.4})), (Passed(two, one, 0.4),), 1)
    verdict = replace(phase.verdict, waits={HOSTILE: 1.0}, limits=(limit,), ranking=(limit,), graph=graph, **texts)
    return msgspec.structs.replace(
        phase, phase=HOSTILE, state=HOSTILE, alerts=[HOSTILE], warnings=[HOSTILE], verdict=verdict
    )


def test_a_run_of_many_hours_makes_no_page_that_is_too_large_to_mail() -> None:
    document, _ = made()
    hours = 24 * 3600.0
    step = step_of(hours)
    timeline = RunLines([(START + n * step, START + (n + 1) * step) for n in range(1000)])
    for seed, wait in enumerate(WAITS):
        timeline.waits[wait] = wavy(seed, 1 / len(WAITS))
    for seed, resource in enumerate(important(document)):
        timeline.busy[resource] = wavy(seed, 0.9)
    timeline.clocks = {f"h{seed}": wavy(seed, 3e9) for seed in range(8)}
    timeline.idle = {f"h{seed}": {f"C{state}": wavy(seed + state, 0.2) for state in range(4)} for seed in range(30)}

    text = page(msgspec.structs.replace(document, end=START + hours), timeline)

    assert len(text) < 6_000_000
    assert "22 more are not shown" in text


def wavy(seed: int, top: float) -> Line:
    line = Line()
    line.values = [top * (0.5 + 0.4 * sin(seed + place * 1.7)) for place in range(1000)]
    return line


def test_the_same_run_is_the_same_page(shown: str) -> None:
    assert page(*made()) == shown


def test_a_users_own_settings_of_matplotlib_change_nothing(shown: str) -> None:
    with mpl.rc_context({"text.usetex": True, "axes.facecolor": "red", "svg.fonttype": "path"}):
        assert page(*made()) == shown


def test_a_run_without_phases_or_samples_has_a_page_too() -> None:
    record = made_record()
    record.marker.phases = []
    record.origin = "diary.txt"
    record.marker.scores = [Result("total", "score", 2.5)]
    document = build(record, [], {}, state="finished", recorded=False, warnings=["the run has no samples"])

    said = Elements(page(document, RunLines())).said

    assert "The run has no phases." in said
    assert "imported from diary.txt" in said
    assert "the run has no samples" in said
