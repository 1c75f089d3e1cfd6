from __future__ import annotations

import json
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from as_user import as_user, user_environment
from pinchpoint import __version__
from pinchpoint.about import commit, commit_of_checkout
from pinchpoint.cli import main

ROOT = Path(__file__).parent.parent
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git(*arguments: str, tree: Path = ROOT) -> str:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    return subprocess.run(
        ["git", "-C", tree, *identity, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_version_names_what_a_report_of_a_mistake_needs() -> None:
    found = json.loads(CliRunner().invoke(main, ["version", "--json"]).stdout)

    assert found["version"] == __version__
    assert found["python"].startswith(f"CPython {platform.python_version()}, ")
    assert found["kernel"] == f"{platform.release()} {platform.machine()}"
    assert found["threads"]["name"] in {"bpf", "bpf-iterator", "kept"} or found["threads"]["reason"]
    assert found["libraries"].keys() >= {"click", "msgspec", "rich"}
    assert "pytest" not in found["libraries"]


def test_the_words_have_the_same_as_the_json() -> None:
    said = CliRunner().invoke(main, ["version"]).stdout.splitlines()

    assert said[0].split() == ["version", __version__]
    assert f"library         click {metadata.version('click')}" in said


def test_it_says_why_another_user_reads_threads_in_another_way(tmp_path: Path) -> None:
    done = subprocess.run(
        as_user("version", "--json"),
        cwd="/",
        env=user_environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    threads = json.loads(done.stdout)["threads"]

    assert threads["name"] == "kept"
    assert threads["reason"].startswith("no bpf")


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is not a checkout")
def test_the_commit_of_this_checkout_is_that_of_git() -> None:
    assert commit() == git("rev-parse", "HEAD")


def test_a_commit_is_found_on_a_branch_packed_detached_and_in_a_worktree(tmp_path: Path) -> None:
    git("init", "-q", "-b", "main", str(tmp_path / "tree"), tree=tmp_path)
    tree = tmp_path / "tree"
    git("commit", "-q", "--allow-empty", "-m", "first", tree=tree)
    head = git("rev-parse", "HEAD", tree=tree)

    assert commit_of_checkout(tree) == head
    git("worktree", "add", "-q", str(tmp_path / "other"), "-b", "branch", tree=tree)
    assert commit_of_checkout(tmp_path / "other") == head
    git("pack-refs", "--all", tree=tree)
    assert commit_of_checkout(tree) == head
    git("checkout", "-q", "--detach", tree=tree)
    assert commit_of_checkout(tree) == head


@pytest.mark.parametrize("head", ["", "ref: refs/heads/none", "ref: ../../etc/passwd", "\0", "nonsense", "ä"])
def test_what_is_not_a_commit_is_not_shown(tmp_path: Path, head: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_bytes(head.encode("latin-1"))

    assert commit_of_checkout(tmp_path) == ""
    assert commit_of_checkout(tmp_path / "none") == ""
    (tmp_path / ".git" / "HEAD").write_text(COMMIT)
    assert commit_of_checkout(tmp_path) == COMMIT
