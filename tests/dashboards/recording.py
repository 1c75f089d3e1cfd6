"""What Prometheus saw of the scene, as a file: ``recording.py`` makes it anew, which `make recording` does.

The file is a tar archive with a block of Prometheus' database (tsdb/docs/format of Prometheus 2.42), which unlike its
text format keeps the marks of series that ended, and with the end of the scene and the types of its metrics.
"""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from patience import patience
from scaled import free_addresses, prometheus
from scene import Scene, scene

__all__ = ["FILE", "Recorded", "replayed"]

FILE = Path(__file__).parents[1] / "fixtures" / "dashboards" / "scene.tar.xz"
FACTS = "scene.json"
FOREVER = "--storage.tsdb.retention.time=100y"


@dataclass(frozen=True)
class Recorded:
    """A Prometheus that has what was recorded."""

    url: str
    end: float
    """When everything was there, in Unix seconds."""
    kinds: dict[str, str]
    """The types of the metrics: counter, gauge and so on."""


@contextmanager
def replayed(folder: Path) -> Iterator[Recorded]:
    """Run a Prometheus on the recording, in a new directory."""
    with tarfile.open(FILE) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # from Python 3.11.4 on; Debian 12 has 3.11.2
        archive.extractall(folder / "data")
    facts = json.loads((folder / "data" / FACTS).read_text())
    (address,) = free_addresses(1)
    with prometheus(folder, address, {}, FOREVER):
        yield Recorded(f"http://{address}", facts["end"], facts["kinds"])


def record(folder: Path, played: Scene) -> None:
    """Write the recording from the database of a scene's stack, which has been stopped."""
    (played.stack.state / "prometheus").rename(folder / "data")
    (address,) = free_addresses(1)
    with prometheus(folder, address, {}, FOREVER, "--web.enable-admin-api"):
        answer = httpx.post(f"http://{address}/api/v1/admin/tsdb/snapshot", timeout=patience(60), trust_env=False)
        name = answer.raise_for_status().json()["data"]["name"]
        FILE.parent.mkdir(exist_ok=True)
        facts = json.dumps({"end": played.end, "kinds": played.kinds}).encode()
        with tarfile.open(FILE, "w:xz", preset=9) as archive:
            entry = tarfile.TarInfo(FACTS)
            entry.size = len(facts)
            archive.addfile(entry, io.BytesIO(facts))
            archive.add(folder / "data" / "snapshots" / name, "")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        with scene(Path(name)) as played:
            pass
        record(Path(name), played)
    print(f"{FILE}: {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
