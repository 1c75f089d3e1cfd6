"""Measures how many faults in `diagnosis/` its tests find: `make mutate`, with mutmut (mutation testing).

mutmut changes one operator, constant or argument of a function at a time, and runs the tests of tests/diagnosis that
reach it. It expects packages below src/, so it runs in a copy of the tree, `.mutate/`. A sample takes at most so many
mutants of each module, chosen by the seed. Prints a line for each module, and the names of the mutants that survive;
`cd .mutate && ../.venv/bin/mutmut show NAME` shows one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPY = ROOT / ".mutate"
MUTMUT = Path(sys.executable).with_name("mutmut")
ROOM = "pinchpoint/diagnosis"
SETTINGS = """
[mutmut]
source_paths = src
only_mutate = {modules}
pytest_add_cli_args_test_selection = tests/diagnosis
pytest_add_cli_args = -p
    no:cacheprovider
also_copy =
    {others}
"""
TESTS_FAIL, TESTS_PASS, NO_TESTS = 1, 0, 33
"""What mutmut notes of a mutant: the exit status of pytest, or 33 where no test reaches it."""
MIN_KILLED = 0.9


def main() -> int:
    """Measure the modules that the command line names, or all of `diagnosis/`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help="names of modules, such as blame")
    parser.add_argument("--sample", type=int, default=0, help="mutants of each module; 0 for all of them")
    parser.add_argument("--seed", type=int, default=1, help="chooses the sample")
    asked = parser.parse_args()
    modules = asked.modules or sorted(path.stem for path in (ROOT / "exporter" / ROOM).glob("[a-z]*.py"))
    stage(modules)
    # Without a mutant of this name it makes all mutants, and notes which tests reach which function.
    run("no-such-mutant")
    chosen = {module: sample(mutants(module), asked.sample, asked.seed) for module in modules}
    if names := [name for some in chosen.values() for name in some]:
        run(*names)
    return report({module: {name: mutants(module)[name] for name in some} for module, some in chosen.items()})


def stage(modules: list[str]) -> None:
    """Copy what git tracks, with the package where mutmut expects it."""
    shutil.rmtree(COPY, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        if (ROOT / name).is_file():
            target = COPY / name.replace("exporter/", "src/", 1) if name.startswith("exporter/") else COPY / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    (COPY / "exporter").symlink_to("src")
    others = sorted(path.name for path in COPY.iterdir() if path.name not in ("src", "exporter"))
    paths = [f"src/{ROOM}/{module}.py" for module in modules]
    with (COPY / "setup.cfg").open("a") as file:
        file.write(SETTINGS.format(modules="\n    ".join(paths), others="\n    ".join(others)))


def run(*names: str) -> None:
    """Let mutmut try these mutants; it ends with an error if one survives or none has that name."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([MUTMUT, "run", "--max-children", "1", *names], cwd=COPY, env=environment, check=False)


def mutants(module: str) -> Mapping[str, int | None]:
    """Return what became of each mutant of a module: an exit status, None for those not tried."""
    note = COPY / "mutants/src" / ROOM / f"{module}.py.meta"
    return json.loads(note.read_text())["exit_code_by_key"] if note.exists() else {}


def sample(found: Mapping[str, int | None], most: int, seed: int) -> list[str]:
    """Return the names of at most so many mutants; of all if `most` is 0."""
    names = sorted(found)
    return names if not most or len(names) <= most else random.Random(seed).sample(names, most)


def report(tried: Mapping[str, Mapping[str, int | None]]) -> int:
    """Print the result of each module, and what survived. Returns 1 if too few were killed."""
    every: Counter[str] = Counter()
    for module, ends in tried.items():
        counts = Counter(word(end) for end in ends.values())
        every += counts
        print(f"{module:16} {counts['killed']:5} of {len(ends):5} killed")
        for name, end in ends.items():
            if word(end) != "killed":
                print(f"    {word(end)}: {name}")
    killed = every["killed"] / max(1, every.total())
    print(f"{'all':16} {every['killed']:5} of {every.total():5} killed: {killed:.1%}")
    return int(killed < MIN_KILLED)


def word(end: int | None) -> str:
    """Return what became of a mutant, in a word; one that takes too long counts as killed."""
    words = {TESTS_PASS: "survived", NO_TESTS: "no test reaches it", None: "not tried"}
    return words.get(end, "killed")


if __name__ == "__main__":
    sys.exit(main())
