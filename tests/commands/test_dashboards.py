from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from grafana_server import Grafana, grafana
from pinchpoint.cli import main
from pinchpoint.grafana import boards
from serving import answering

PROMETHEUS = "http://prometheus:9090"


@pytest.fixture
def server() -> Iterator[Grafana]:
    with grafana() as found:
        yield found


@pytest.fixture
def token(tmp_path: Path, server: Grafana) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{server.token}\n")
    return path


def install(server: Grafana, token: Path, *more: str) -> Result:
    arguments = ["dashboards", "install", "--url", server.url, "--token-file", str(token), *more]
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def test_an_empty_grafana_gets_everything_and_a_second_time_changes_nothing(server: Grafana, token: Path) -> None:
    first = install(server, token, "--prometheus", PROMETHEUS)
    written = list(server.written)
    second = install(server, token, "--prometheus", PROMETHEUS)

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert server.boards.keys() == {board.uid for board in boards()}
    assert {board["meta"]["folderUid"] for board in server.boards.values()} == {"pinchpoint"}
    assert server.sources["pinchpoint-prometheus"]["url"] == PROMETHEUS
    assert {line.rpartition(": ")[2] for line in first.stdout.splitlines()} == {"created"}
    assert {line.rpartition(": ")[2] for line in second.stdout.splitlines()} == {"as before"}
    assert len(first.stdout.splitlines()) == len(second.stdout.splitlines()) == 2 + len(boards())
    assert server.written == written


def test_a_board_of_another_release_or_in_another_folder_is_replaced_and_the_others_are_not(
    server: Grafana, token: Path
) -> None:
    install(server, token)
    server.boards["pinchpoint-mds"]["dashboard"]["revision"] = 1
    server.boards["pinchpoint-osd"]["meta"]["folderUid"] = "elsewhere"

    again = install(server, token)

    updated = {line.partition(":")[0] for line in again.stdout.splitlines() if line.endswith(": updated")}
    assert updated == {"dashboard Pinchpoint / MDS", "dashboard Pinchpoint / OSD and RADOS"}
    assert server.boards["pinchpoint-mds"]["dashboard"]["version"] == 2
    assert server.boards["pinchpoint-osd"]["meta"]["folderUid"] == "pinchpoint"


def test_what_an_administrator_has_added_to_the_data_source_stays(server: Grafana, token: Path) -> None:
    install(server, token, "--prometheus", PROMETHEUS)
    server.sources["pinchpoint-prometheus"]["jsonData"]["tlsSkipVerify"] = True
    server.sources["pinchpoint-prometheus"]["isDefault"] = True

    again = install(server, token, "--prometheus", PROMETHEUS, "--scrape-interval", "10s")

    assert "data source Pinchpoint: updated" in again.stdout
    source = server.sources["pinchpoint-prometheus"]
    assert source["jsonData"] == {"httpMethod": "POST", "timeInterval": "10s", "tlsSkipVerify": True}
    assert source["isDefault"]


def test_a_dry_run_says_what_would_change_and_changes_nothing(server: Grafana, token: Path) -> None:
    shown = install(server, token, "--dry-run", "--prometheus", PROMETHEUS)

    assert shown.exit_code == 0
    assert {line.rpartition(": ")[2] for line in shown.stdout.splitlines()} == {"would be created"}
    assert not server.written


def test_without_any_data_source_it_says_how_to_make_one(server: Grafana, token: Path) -> None:
    without = install(server, token)
    server.sources["theirs"] = {"type": "prometheus"}
    theirs = install(server, token)

    assert without.exit_code == theirs.exit_code == 0
    assert "has no data source for Prometheus: give --prometheus URL" in without.stderr
    assert not theirs.stderr


def test_links_of_installed_boards_lead_to_the_judge_that_is_named(server: Grafana, token: Path) -> None:
    install(server, token, "--pages", "https://judge:9749")

    assert all("https://judge:9749/" in str(board["dashboard"]) for board in server.boards.values())
    assert not any("127.0.0.1:9749" in str(board["dashboard"]) for board in server.boards.values())


def test_installed_boards_refresh_as_often_as_asked(server: Grafana, token: Path) -> None:
    install(server, token, "--refresh", "15s")

    assert server.boards["pinchpoint-bottleneck"]["dashboard"]["refresh"] == "15s"


def test_provisioned_objects_are_left_alone_with_the_way_out(server: Grafana, token: Path) -> None:
    install(server, token, "--prometheus", PROMETHEUS)
    server.boards["pinchpoint-mds"]["meta"]["provisioned"] = True
    board = install(server, token)
    server.sources["pinchpoint-prometheus"]["readOnly"] = True
    same = install(server, token, "--prometheus", PROMETHEUS, "--dry-run")
    source = install(server, token, "--prometheus", "http://other:9090")

    assert (board.exit_code, source.exit_code) == (1, 1)
    assert "dashboard Pinchpoint / MDS is provisioned from a file on Grafana's host" in board.stderr
    assert "data source Pinchpoint is provisioned from a file" in source.stderr
    assert "data source Pinchpoint: as before" in same.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--url", "grafana:3000"], "'grafana:3000' is not an address such as http://grafana:3000"),
        (["--url", "http://g", "--folder-uid", "../x"], "'../x': up to 40 letters, digits, _ and - can be a UID"),
        (["--url", "http://g", "--refresh", "0s"], "'0s': 1s is the shortest"),
        (["--url", "http://g", "--refresh", "often"], "'often' is not a duration such as 10s or 1m"),
        (["--url", "http://g", "--token-file", "/nowhere"], "--token-file: /nowhere: No such file or directory"),
        (["--url", "http://g", "--token-file", "/dev/null"], "--token-file: /dev/null: "),
        (
            ["--url", "http://g", "--token-file", "a", "--http-config", "b"],
            "give either --token-file or --http-config",
        ),
    ],
)
def test_wrong_usage_names_the_option(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["dashboards", "install", *arguments])

    assert result.exit_code == 2
    assert message in result.stderr


def test_a_refusal_shows_what_grafana_says(server: Grafana, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("no")

    result = install(server, wrong)

    assert result.exit_code == 1
    assert f"pinchpoint: {server.url}: 401 Unauthorized: Invalid API key" in result.stderr


def test_an_old_grafana_is_refused_before_anything_changes(server: Grafana, token: Path) -> None:
    server.version = "9.5.2"

    result = install(server, token)

    assert (result.exit_code, server.written) == (1, [])
    assert "is Grafana 9: the dashboards need 12 or newer" in result.stderr


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"[" * 5000, b'{"version": 12}', b"\xff"])
def test_what_is_no_grafana_is_one_line(body: bytes) -> None:
    with answering(body) as (url, _):
        result = CliRunner().invoke(main, ["dashboards", "install", "--url", url])

    assert result.exit_code == 1
    assert result.stderr.startswith(f"pinchpoint: {url}: not an answer of Grafana")
    assert result.stderr.count("\n") == 1


def test_the_files_are_written_where_they_are_wanted(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "bundle"

    result = CliRunner().invoke(main, ["dashboards", "write", str(folder), "--prometheus", PROMETHEUS])

    assert result.exit_code == 0
    written = {path.relative_to(folder).parts[0] for path in folder.rglob("*") if path.is_file()}
    assert written == {"dashboards", "provisioning", "pinchpoint-rules.yml"}
    assert f"{sum(path.is_file() for path in folder.rglob('*'))} files" in result.stdout


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "dashboards").write_text("in the way")

    result = CliRunner().invoke(main, ["dashboards", "write", str(tmp_path)])

    assert result.exit_code == 1
    assert str(tmp_path / "dashboards") in result.stderr
