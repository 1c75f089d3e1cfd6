"""Puts example runs into the Prometheus of the local stack, for the dashboard Runs. ``make example-runs`` runs it.

They are the 18 IO500 results of a public diary (tests/fixtures/seeds), imported and exported like any others.
A server opens blocks that appear among its own within a minute (reloadBlocks, tsdb/db.go). They must be older than what
it still collects in memory: it drops what is older than the newest block when it starts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from native import STATE, TREE, Stack, StackError

DIARY = TREE / "tests" / "fixtures" / "seeds" / "io500-diary.txt"
NAME = "io500-diary"
MARGIN = 60.0
"""Seconds between the examples and the server's own samples."""
KEPT = "3d"
"""How long the server keeps data (native.py)."""
LOAD_SECONDS = 150.0
"""How long it may take to open the blocks: it looks every minute."""
POLL_SECONDS = 1.0


def load(stack: Stack) -> list[str]:
    """Put the examples into the stack's Prometheus; return the runs that it has afterwards. Raises StackError."""
    prometheus = stack.urls["prometheus"]
    if found := _examples(prometheus):
        return found
    promtool = shutil.which("promtool")
    if promtool is None:
        raise StackError("Not installed: promtool. It comes with Prometheus.")
    # In the state directory, so that a rename puts each block in place as a whole.
    with tempfile.TemporaryDirectory(prefix="examples-", dir=stack.state) as directory:
        text, blocks = Path(directory, "runs.om"), Path(directory, "blocks")
        pinchpoint = str(Path(sys.executable).with_name("pinchpoint"))
        environment = os.environ | {"XDG_STATE_HOME": str(text.parent.absolute())}
        for command in (
            [pinchpoint, "import", "--name", NAME, str(DIARY)],
            [pinchpoint, "export", "--trend", "--end", str(_oldest(prometheus) - MARGIN), "-o", str(text), "*"],
            [promtool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(blocks)],
        ):
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise StackError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        for block in blocks.iterdir():
            block.rename(stack.state / "prometheus" / block.name)
    deadline = time.monotonic() + LOAD_SECONDS
    while not (found := _examples(prometheus)):
        if time.monotonic() > deadline:
            raise StackError(f"Prometheus at {prometheus} does not open the blocks in {stack.state / 'prometheus'}.")
        time.sleep(POLL_SECONDS)
    return found


def _examples(prometheus: str) -> list[str]:
    """Return the example runs that a server has."""
    metric = f'pinchpoint_run_start_timestamp_seconds{{run=~".*-{NAME}-[0-9]+"}}'
    answer = _get(f"{prometheus}/api/v1/query", query=f"group by (run) (last_over_time({metric}[{KEPT}]))")
    return sorted(series["metric"]["run"] for series in answer["result"])


def _oldest(prometheus: str) -> float:
    """Return the Unix time since which a server has data only in memory; for an empty one, the present time."""
    milliseconds = _get(f"{prometheus}/api/v1/status/tsdb")["headStats"]["minTime"]
    return min(time.time(), float(milliseconds) / 1000)


def _get(url: str, **parameters: str) -> Any:
    try:
        answer = httpx.get(url, params=parameters, timeout=60.0, trust_env=False)
        answer.raise_for_status()
        return answer.json()["data"]
    except (httpx.HTTPError, ValueError, LookupError) as error:
        raise StackError(f"{url}: {error}") from error


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description="Put example runs into the Prometheus of the local stack.")
    parser.add_argument("--state", type=Path, default=STATE, metavar="DIR", help="the stack's directory")
    options = parser.parse_args()
    stack = Stack.running(options.state)
    if stack is None:
        print("The local stack does not run; `make up` starts it.", file=sys.stderr)
        return 3
    print("Importing the IO500 results of a public diary; Prometheus needs up to a minute to see them ...", flush=True)
    try:
        found = load(stack)
    except StackError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"Prometheus has {len(found)} example runs, {found[0]} to {found[-1]}.")
    if "grafana" in stack.urls:
        print(f"Beside each other: {stack.urls['grafana']}/d/pinchpoint-runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
