"""A release, made from a small repository with a throw-away key."""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import subprocess
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from release import NAMESPACE, ReleaseError, changes, normalised, release, version_of
from sbom import bill_of_materials, closure

ROOT = Path(__file__).parent.parent
COMMIT, SECONDS = "0123456789abcdef0123456789abcdef01234567", 1_790_000_000
PARTS = (
    "setup.cfg",
    "setup.py",
    "pyproject.toml",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
    "constraints.txt",
    ".gitignore",
)
FOLDERS = ("exporter", "runbooks", "docs", "alerts", "compose")
CHANGELOG = "# Changes\n\n## {}\n\n* [FEATURE] It says what limits a run\n\n## 0.0.1\n\n* [FEATURE] It exists\n"


def git(tree: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, *arguments], cwd=tree, check=True, capture_output=True, text=True).stdout


def commit(tree: Path) -> None:
    git(tree, "add", "--all")
    git(tree, "commit", "-q", "-m", "A commit")


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "key"
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a repository of what the package is built from, whose changelog has the version."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in PARTS:
        shutil.copy(ROOT / name, tree)
    left_out = shutil.ignore_patterns("*.egg-info", "__pycache__", "*.bpf.o", "pictures")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=left_out)
    (tree / "Makefile").write_text("all:\n")
    version = version_of((tree / "exporter" / "pinchpoint" / "__init__.py").read_text())
    (tree / "CHANGELOG.md").write_text(CHANGELOG.format(version))
    git(tree, "init", "-q")
    commit(tree)
    return tree


@pytest.fixture
def compiler() -> None:
    if shutil.which("clang") is None or not Path("/usr/include/bpf/bpf_helpers.h").exists():
        pytest.skip("needs clang and libbpf-dev")


@pytest.fixture
def no_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent")


@pytest.mark.usefixtures("compiler", "no_docker")
def test_a_release_has_everything_can_be_checked_and_is_the_same_twice(tree: Path, key: Path, tmp_path: Path) -> None:
    first = release(tree, str(key), tmp_path / "first")
    second = release(tree, str(key), tmp_path / "second")
    version = version_of((tree / "exporter" / "pinchpoint" / "__init__.py").read_text())
    head = git(tree, "rev-parse", "HEAD").strip()

    names = {path.name for path in first.iterdir()}
    stem = f"pinchpoint-{version}"
    made = {f"{stem}{ending}" for ending in (".tar.gz", "-py3-none-any.whl", ".changes.md", ".cdx.json")}
    assert names == {"SHA256SUMS", "SHA256SUMS.sig"} | made
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=first, check=True)
    assert len((first / "SHA256SUMS").read_text().splitlines()) == len(names) - 2
    assert (first / "SHA256SUMS").read_bytes() == (second / "SHA256SUMS").read_bytes()
    assert verified(first, key, tmp_path)
    with zipfile.ZipFile(first / f"{stem}-py3-none-any.whl") as wheel:
        assert wheel.read("pinchpoint/commit").decode().strip() == head
        assert "pinchpoint/bpf/tasks.bpf.o" in wheel.namelist()
    assert "It says what limits a run" in (first / f"{stem}.changes.md").read_text()
    assert "It exists" not in (first / f"{stem}.changes.md").read_text()
    assert git(tree, "status", "--porcelain") == git(tree, "tag") == ""

    (first / f"{stem}.tar.gz").write_bytes(b"changed")
    assert subprocess.run(["sha256sum", "--check", "--status", "SHA256SUMS"], cwd=first).returncode
    (first / "SHA256SUMS").write_text("")
    assert not verified(first, key, tmp_path)


def verified(made: Path, key: Path, scratch: Path) -> bool:
    """Return whether the signature is that of the key, as docs tell a user to check it."""
    signers = scratch / "signers"
    signers.write_text(f"release {key.with_suffix('.pub').read_text()}")
    command = [
        "ssh-keygen",
        "-Y",
        "verify",
        "-f",
        str(signers),
        "-I",
        "release",
        "-n",
        NAMESPACE,
        "-s",
        "SHA256SUMS.sig",
    ]
    with (made / "SHA256SUMS").open("rb") as sums:
        return not subprocess.run(command, cwd=made, stdin=sums, capture_output=True).returncode


@pytest.mark.usefixtures("compiler", "no_docker")
def test_a_key_of_gpg_signs_too_and_packages_are_taken_along(
    tree: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("gpg") is None:
        pytest.skip("gpg is not installed")
    home = tmp_path_factory.mktemp("g")  # its socket's path has to be short
    home.chmod(0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    make = ["gpg", "--batch", "--passphrase", "", "--quick-generate-key", "release@example.org", "ed25519", "sign"]
    subprocess.run(make, check=True, capture_output=True)
    (tree / "packaging").mkdir()
    program = "import pathlib, sys; pathlib.Path(sys.argv[2], 'pinchpoint.deb').write_text('deb')"
    (tree / "packaging" / "packages.py").write_text(program)
    commit(tree)
    try:
        made = release(tree, "release@example.org")
        done = subprocess.run(["gpg", "--verify", "SHA256SUMS.asc", "SHA256SUMS"], cwd=made, capture_output=True)
    finally:
        subprocess.run(["gpgconf", "--kill", "gpg-agent"], check=False)

    assert done.returncode == 0, done.stderr
    assert made.parent == tree / "dist"
    assert "  pinchpoint.deb\n" in (made / "SHA256SUMS").read_text()


def test_a_tree_with_changes_is_refused(tree: Path, key: Path) -> None:
    (tree / "README.md").write_text("changed")
    (tree / "new.py").touch()

    with pytest.raises(ReleaseError, match=r"not committed: README\.md, new\.py; commit or stash them"):
        release(tree, str(key))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("# Changes\n\n## 0.1.0\n\n* x\n", "has nothing under ## 0.2.0"),
        ("# Changes\n\n## 0.2.0\n\n## 0.1.0\n\n* x\n", "has nothing under ## 0.2.0"),
        ("# Changes\n\n## Unreleased\n\n* y\n\n## 0.2.0\n\n* x\n", "under Unreleased: give them the heading ## 0.2.0"),
        ("", "has nothing under ## 0.2.0"),
    ],
)
def test_a_changelog_without_the_version_or_with_later_changes_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ReleaseError, match=reason):
        changes(text, "0.2.0")


def test_an_empty_place_for_later_changes_is_fine() -> None:
    assert changes("# Changes\n\n## Unreleased\n\n## 0.2.0\n\n* x\n", "0.2.0") == "# Pinchpoint 0.2.0\n\n* x\n"


@pytest.mark.parametrize("source", ["", '__version__ = "soon"\n', '__version__ = "1.0 "\n'])
def test_a_version_that_is_not_one_is_refused(source: str) -> None:
    with pytest.raises(ReleaseError, match="__version__ must be a version"):
        version_of(source)


@pytest.mark.parametrize(("key", "reason"), [("", "give the key"), ("no-such-key-of-anybody", "neither a file nor")])
def test_without_a_key_nothing_is_built(tree: Path, key: str, reason: str) -> None:
    with pytest.raises(ReleaseError, match=reason):
        release(tree, key)

    assert not (tree / "dist").exists()


@pytest.mark.usefixtures("no_docker")
def test_a_wheel_without_bpf_objects_is_refused(tree: Path, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLANG", "there-is-no-clang")

    with pytest.raises(ReleaseError):
        release(tree, str(key))

    assert not (tree / "dist").exists()


def archive(names: list[str], mtime: int, uid: int) -> bytes:
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=mtime) as stream, tarfile.open(fileobj=stream, mode="w") as new:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uid, member.uname = len(name), mtime, uid, f"user{uid}"
            new.addfile(member, io.BytesIO(name.encode()))
    return packed.getvalue()


def test_archives_that_differ_only_in_order_owner_and_time_become_the_same() -> None:
    one, other = archive(["a", "b"], 1, 0), archive(["b", "a"], 2, 1000)

    assert one != other
    assert normalised(one, SECONDS) == normalised(other, SECONDS)
    with tarfile.open(fileobj=io.BytesIO(normalised(one, SECONDS))) as found:
        assert [(member.name, member.mtime) for member in found] == [("a", SECONDS), ("b", SECONDS)]


def test_the_bill_of_materials_names_every_library_that_an_installation_needs_and_no_other() -> None:
    document = json.loads(bill_of_materials("0.2.0", COMMIT, SECONDS))
    libraries = {part["name"] for part in document["components"]}
    direct = {re.split(r"[^A-Za-z0-9_-]", line)[0].lower().replace("_", "-") for line in runtime()}

    assert direct <= libraries
    assert libraries == set(closure()) - {"pinchpoint"}
    assert not libraries & {"pytest", "mypy", "supervisor", "mutmut"}
    references = {part["bom-ref"] for part in document["components"]} | {document["metadata"]["component"]["bom-ref"]}
    assert {entry["ref"] for entry in document["dependencies"]} == references
    assert {ref for entry in document["dependencies"] for ref in entry["dependsOn"]} <= references
    assert document["metadata"]["timestamp"] == "2026-09-21T14:13:20Z"
    assert bill_of_materials("0.2.0", COMMIT, SECONDS) == bill_of_materials("0.2.0", COMMIT, SECONDS)


def runtime() -> list[str]:
    return [line for line in metadata.requires("pinchpoint") or () if "; " not in line]
