from __future__ import annotations

import json
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.judge import targets
from pinchpoint.judge.targets import Target, TargetFiles, TargetsError, parse_targets

GROUPS = [{"targets": ["client1:9748", "client2:9748"], "labels": {"group": "clients"}}, {"targets": ["osd1:9748"]}]


def test_groups_may_share_their_labels() -> None:
    assert len(parse_targets("- {targets: [a], labels: &l {job: x}}\n- {targets: [b], labels: *l}\n", "t")) == 2


def test_what_aliases_multiply_is_counted_before_it_is_copied() -> None:
    """Else a line would cost as much as the list that it repeats."""
    many = ", ".join("a" for _ in range(1200))

    def memory(lines: int) -> int:
        tracemalloc.start()
        with suppress(TargetsError):
            parse_targets(f"- targets: &a [{many}]\n" + "- targets: *a\n" * lines, "t")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert memory(300) < 2 * memory(9)


@pytest.mark.parametrize("text", [yaml.safe_dump(GROUPS), json.dumps(GROUPS)])
def test_a_file_of_prometheus_names_exporters(text: str) -> None:
    assert parse_targets(text, "t") == [
        Target(f"{host}:9748", f"http://{host}:9748/metrics") for host in ("client1", "client2", "osd1")
    ]


def test_labels_of_prometheus_say_how_a_target_is_asked_and_called() -> None:
    labels = {"__scheme__": "https", "__metrics_path__": "/pinchpoint", "instance": "client1"}

    assert parse_targets(json.dumps([{"targets": ["10.0.0.1:443"], "labels": labels}]), "t") == [
        Target("client1", "https://10.0.0.1:443/pinchpoint")
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- targets: [a:1\n  labels: {}\n", r"t:\d: not YAML: .+"),
        ("- targets: a:1\n", r"t: \[0\]\.targets: Expected `array`, got `str`"),
        ("a: b\n", "t: top level: Expected `array`, got `object`"),
        ("- labels: {}\n", r"t: \[0\]: Object missing required field `targets`"),
        ("!!python/object/apply:os.system [ls]", r"t:1: not YAML: could not determine a constructor .+"),
        ("- targets: [{}]".format(", ".join("a" for _ in range(10_001))), r"t: \[0\]\.targets: Expected .+ <= 10000"),
        ("- &a {targets: [a, b]}\n" + "- *a\n" * 5000, "t: has more than 10000 targets"),
        ("- &a {targets: []}\n- {<<: *a}\n", "t:2: not YAML: could not determine a constructor .+"),
        ('- targets: [!!int ""]\n', "t: not YAML: .+"),
        ("- targets: [!!bool x]\n", "t: not YAML: .+"),
        ("- targets: [!!timestamp x]\n", "t: not YAML: .+"),
    ],
    ids=["yaml", "targets", "list", "none", "tag", "long", "many", "merge", "int", "bool", "time"],
)
def test_what_is_no_list_of_targets_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(TargetsError, match=f"^{message}$"):
        parse_targets(text, "t")


@given(st.text(max_size=60) | st.sampled_from(["- targets: &a [x]\n- targets: *a\n", "[[[[", "? ", "\x00", "- {"]))
def test_any_text_is_targets_or_none(text: str) -> None:
    with suppress(TargetsError):
        assert all(isinstance(target.host, str) for target in parse_targets(text, "file.yml"))


def test_files_are_read_again_when_they_change_and_found_when_they_come(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("- targets: [a:1]")
    files = TargetFiles([str(tmp_path / "*.yml")])
    assert [target.host for target in files.read()] == ["a:1"]

    (tmp_path / "a.yml").write_text("- targets: [a:1, aa:1]")
    (tmp_path / "b.yml").write_text("- targets: [b:1, a:1]")
    assert [target.host for target in files.read()] == ["a:1", "aa:1", "b:1"]

    (tmp_path / "a.yml").unlink()
    assert [target.host for target in files.read()] == ["b:1", "a:1"]


def test_a_file_that_is_malformed_keeps_its_last_targets_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.yml"
    path.write_text("- targets: [a:1]")
    files = TargetFiles([str(path)])
    files.read()

    path.write_text("- targets: [a:1, b:\n- ")
    assert [target.host for target in files.read()] == ["a:1"]
    assert [target.host for target in files.read()] == ["a:1"]
    assert files.problems[str(path)].startswith(f"{path}:")

    path.write_text("- targets: [c:1]")
    assert [target.host for target in files.read()] == ["c:1"]
    assert files.problems == {}


def test_a_file_that_is_not_there_or_too_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing, long = tmp_path / "missing.yml", tmp_path / "long.yml"
    monkeypatch.setattr(targets, "MAX_TARGETS_FILE_BYTES", 10)
    long.write_text("- targets: [a:1, b:1]")

    files = TargetFiles([str(missing), str(long)])

    assert files.read() == []
    assert files.problems == {
        str(missing): f"{missing}: No such file or directory",
        str(long): f"{long}: has 21 bytes, 10 are the most",
    }


@pytest.mark.parametrize("bracket", ["[", "{"])
def test_brackets_nested_without_end_are_an_error(bracket: str) -> None:
    with pytest.raises(TargetsError, match="more than 64 brackets"):
        parse_targets(bracket * 65, "targets")
