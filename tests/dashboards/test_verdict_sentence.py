"""The verdict as a sentence, evaluated by promtool over the judge's series."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

import promtool
from dashboards.verdict import sentences
from pinchpoint.rules import PAGES

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")

RUN = 'benchmark="io500", run="20261125T032739Z-io500"'
PHASE = f'{RUN}, phase="mdtest_hard_write"'
MDS = 'resource="mds_lock", owner="mds.a", host="node1:9748"'
CPU = 'resource="cpu", owner="host", host="node3:9748"'
DISK = 'resource="disk", owner="vda", host="node1:9748"'
NO_RESOURCE = 'resource="", owner="", host=""'
NOW = 30
ACTIVE = {f"pinchpoint_phase_active{{{PHASE}}}": "1x60", f"pinchpoint_phase_elapsed_seconds{{{PHASE}}}": "40.7x60"}


def judged(kind: str, where: str = NO_RESOURCE, sure: str = "high") -> dict[str, str]:
    """Return the series of a verdict that holds since second 18."""
    return {
        f'pinchpoint_verdict_info{{{PHASE}, kind="{kind}", {where}, confidence="{sure}"}}': "1x60",
        f"pinchpoint_verdict_start_timestamp_seconds{{{PHASE}}}": "18x60",
    }


def blamed(where: str, blame: float, full: float) -> dict[str, str]:
    return {
        f"pinchpoint_verdict_blame_ratio{{{RUN}, {where}}}": f"{blame}x60",
        f"pinchpoint_verdict_saturated_ratio{{{RUN}, {where}}}": f"{full}x60",
    }


def text_of(name: str) -> str:
    """Return the query of a variable's text alone, with all runs chosen."""
    for variable in sentences():
        built = variable.build()
        if built.name == name:
            query = str(built.query["query"]).removeprefix("query_result(").removesuffix(")")
            for run in ("($run)", "$run"):
                query = query.replace(run, "(.+)")
            return f"group by (text) ({query})"
    raise AssertionError(name)


def said(folder: Path, series: Mapping[str, str], name: str, text: str) -> str:
    found = [{"labels": f"{{text={text!r}}}" if "'" not in text else f'{{text="{text}"}}', "value": 1}]
    return promtool.check(folder, series, [(text_of(name), NOW, found)])


@pytest.mark.parametrize(
    ("series", "text"),
    [
        ({}, "No benchmark is running."),
        (
            ACTIVE | judged("resource", MDS) | blamed(MDS, 0.62, 0.94) | blamed(CPU, 0.05, 0.1),
            "**mds_lock of mds.a** is full 94 % of the time. 62 % of the benchmark's time waits for it, for 12 s now; "
            "next comes cpu of node3 with 5 %. Phase: mdtest_hard_write. Confidence: high.",
        ),
        (
            ACTIVE | judged("resource", CPU, "low") | blamed(CPU, 0.7, 1),
            "**cpu of node3** is full 100 % of the time. 70 % of the benchmark's time waits for it, for 12 s now. "
            "Phase: mdtest_hard_write. Confidence: low.",
        ),
        (
            ACTIVE
            | {**judged("several", CPU), **judged("several", DISK)}
            | blamed(CPU, 0.3, 1)
            | blamed(DISK, 0.4, 0.9)
            | blamed(MDS, 0.1, 0),
            "**disk of vda** is full 90 % of the time. 40 % of the benchmark's time waits for it, for 12 s now; next "
            "comes mds_lock of mds.a with 10 %. Phase: mdtest_hard_write. Confidence: high.",
        ),
        (
            ACTIVE | judged("latency-bound") | blamed(DISK, 0.2, 0),
            "**latency-bound** for 12 s now: no resource is the limit; the most blamed is disk of vda, with 20 %. "
            "Phase: mdtest_hard_write. Confidence: high.",
        ),
        (
            ACTIVE | judged("stuck"),
            "**stuck** for 12 s now: no resource is the limit. Phase: mdtest_hard_write. Confidence: high.",
        ),
        (
            {name.replace(PHASE, f'{RUN}, phase=""'): values for name, values in judged("latency-bound").items()},
            "**latency-bound** for 12 s now: no resource is the limit. Confidence: high.",
        ),
        (ACTIVE, "Phase mdtest_hard_write: **no verdict** yet after 40 s."),
        (
            judged("resource", MDS)
            | blamed(MDS, 0.62, 0.94)
            | {
                f"pinchpoint_phase_active{{{PHASE}}}": "1x60",
                f"pinchpoint_phase_elapsed_seconds{{{PHASE}}}": "2.5x60",
            },
            "Phase mdtest_hard_write: **measuring**, 2 of 3 s.",
        ),
    ],
)
def test_the_verdict_is_a_sentence(tmp_path: Path, series: dict[str, str], text: str) -> None:
    assert said(tmp_path, series, "verdict", text) == ""


def test_two_runs_give_one_sentence_about_the_limit_with_more_blame(tmp_path: Path) -> None:
    other = {name.replace("io500", "fio"): values for name, values in judged("resource", DISK).items()}
    other |= {name.replace("io500", "fio"): values for name, values in blamed(DISK, 0.9, 1).items()}

    assert (
        said(
            tmp_path,
            ACTIVE | judged("resource", MDS) | blamed(MDS, 0.62, 0.94) | other,
            "verdict",
            "**disk of vda** is full 100 % of the time. 90 % of the benchmark's time waits for it, for 12 s now. "
            "Phase: mdtest_hard_write. Confidence: high.",
        )
        == ""
    )


@pytest.mark.parametrize("sure", ["high", "low"])
def test_two_judges_give_one_sentence_even_if_they_differ_for_a_moment(tmp_path: Path, sure: str) -> None:
    def told(judge: str, series: dict[str, str]) -> dict[str, str]:
        return {name.replace("{", f'{{instance="{judge}", '): values for name, values in series.items()}

    one = judged("resource", MDS) | blamed(MDS, 0.62, 0.94)
    other = judged("resource", MDS, sure) | blamed(MDS, 0.58, 0.9)
    query = text_of("verdict").replace("group by (text)", "count")

    counted = [(query, NOW, [{"labels": "{}", "value": 1}])]
    assert promtool.check(tmp_path, ACTIVE | told("a", one) | told("b", other), counted) == ""


def test_the_advice_is_about_the_limit_with_most_blame_and_leads_to_its_page(tmp_path: Path) -> None:
    def advice(where: str, text: str, page: str) -> dict[str, str]:
        return {f'pinchpoint_verdict_advice_info{{{RUN}, {where}, advice="{text}", page="{page}"}}': "1x60"}

    series = {**judged("several", CPU), **judged("several", DISK)} | blamed(CPU, 0.3, 1) | blamed(DISK, 0.4, 0.9)
    series |= advice(CPU, "Add cores.", "runbooks/RunQueueWaitHigh.md")
    series |= advice(DISK, "Add disks.", "runbooks/DiskSaturated.md")

    text = f"Add disks. [Read on]({PAGES}runbooks/DiskSaturated.md)"
    assert said(tmp_path, series, "advice", text) == ""
    alone = judged("latency-bound") | advice(NO_RESOURCE, "Run more processes.", "docs/verdict.md")
    assert said(tmp_path, alone, "advice", f"Run more processes. [Read on]({PAGES}docs/verdict.md)") == ""
