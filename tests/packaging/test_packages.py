from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from string import Template

import packages
import pytest
import yaml
from click.testing import CliRunner
from packages import FILES, ROOT, BuildError, packaged_unit

from pinchpoint.cli import main as pinchpoint

UNIT = (ROOT / "compose" / "pinchpoint.service").read_text()


def test_the_service_of_a_package_differs_from_the_one_for_a_checkout_in_what_it_starts() -> None:
    removed = set(UNIT.splitlines()) - set(packaged_unit(UNIT).splitlines())

    assert removed == {"ExecStart=/opt/pinchpoint/bin/pinchpoint exporter"}
    assert "ExecStart=/usr/bin/pinchpoint exporter $EXPORTER_ARGS\n" in packaged_unit(UNIT)


def test_a_service_that_starts_something_else_is_not_packaged() -> None:
    with pytest.raises(BuildError, match="has no ExecStart"):
        packaged_unit(UNIT.replace("/opt/", "/usr/local/"))


def test_the_options_of_the_services_exist_and_the_files_that_they_name_are_valid() -> None:
    options = (FILES / "default").read_text()
    exporter = CliRunner().invoke(pinchpoint, ["config", "check", str(FILES / "pinchpoint.toml")])
    (targets,) = yaml.safe_load((FILES / "targets.yml").read_text())

    assert exporter.exit_code == 0, exporter.output
    assert targets == {"targets": ["localhost:9748"]}
    for command, option in {"exporter": "--config.file", "judge": "--targets-file"}.items():
        assert f'{command.upper()}_ARGS="{option}=/etc/pinchpoint/' in options
        assert option in CliRunner().invoke(pinchpoint, [command, "--help"]).output


def test_each_file_that_the_packages_name_is_in_the_sources() -> None:
    text = Template((ROOT / "packaging" / "nfpm.yaml").read_text()).substitute(TREE="/tree", VERSION="1", ARCH="amd64")

    for script in yaml.safe_load(text)["scripts"].values():
        assert (ROOT / script).read_text().startswith("#!/bin/sh\n")


@pytest.mark.parametrize(("status", "ends_with"), [(69, 69), (2, 1)])
def test_a_build_that_fails_says_what_the_program_said_and_whether_its_sources_are_away(
    status: int, ends_with: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interpreter() -> Path:
        packages.run("/bin/sh", "-c", f"echo no sources; exit {status}")
        raise AssertionError

    monkeypatch.setattr(packages, "interpreter", interpreter)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1790000000")
    arguments: Sequence[str] = ["--target", str(tmp_path)]

    assert packages.main(arguments) == ends_with
    assert capsys.readouterr().err == f"packages: sh failed with status {status}:\nno sources\n"


def test_what_is_kept_is_made_again_when_its_recipe_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINCHPOINT_CACHE", str(tmp_path))

    assert packages.cached("interpreter", b"a") == packages.cached("interpreter", b"a")
    assert packages.cached("interpreter", b"a") != packages.cached("interpreter", b"b")


def test_an_interpreter_that_lacks_the_patches_of_a_month_is_made_again(tmp_path: Path) -> None:
    built = tmp_path.stat().st_mtime

    assert packages.recent(tmp_path, built + 29 * 86400)
    assert not packages.recent(tmp_path, built + 31 * 86400)
    assert not packages.recent(tmp_path / "gone", built)


def test_every_command_does_without_the_standard_modules_that_the_packages_python_lacks() -> None:
    recipe = (ROOT / "packaging" / "interpreter").read_text()
    (names,) = re.findall(r"^for module in (.+); do$", recipe, re.MULTILINE)
    lacks = f"import sys; sys.modules.update(dict.fromkeys({names.split()!r}))\n"

    subprocess.run([sys.executable, "-c", lacks + packages.IMPORT_ALL], check=True)
    assert subprocess.run([sys.executable, "-c", lacks + "import sqlite3"], capture_output=True).returncode
