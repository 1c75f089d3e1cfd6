from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIST = """
import pkgutil, pinchpoint
print(pinchpoint.__file__)
for module in pkgutil.walk_packages(pinchpoint.__path__, "pinchpoint."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
        print(module.name)
"""


def test_an_installed_package_has_every_module_and_its_data(tmp_path: Path) -> None:
    """The tree's own .venv has links to the sources, in which nothing can be missing."""
    target, copy = tmp_path / "site", tmp_path / "copy"
    shutil.copytree(ROOT / "exporter", copy / "exporter", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    install = [
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--target",
        str(target),
        str(copy),
    ]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, capture_output=True, timeout=120)
    listed = subprocess.run(
        [sys.executable, "-c", LIST], env={"PYTHONPATH": str(target)}, cwd=tmp_path, check=True, capture_output=True
    )
    place, *names = listed.stdout.decode().split()

    assert place.startswith(str(target))
    sources = (ROOT / "exporter").rglob("pinchpoint/**/*.py")
    modules = {".".join(path.relative_to(ROOT / "exporter").with_suffix("").parts) for path in sources}
    assert set(names) == {name.removesuffix(".__init__") for name in modules} - {"pinchpoint", "pinchpoint.__main__"}
    assert (target / "pinchpoint" / "roles.toml").is_file()
