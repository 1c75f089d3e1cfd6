"""Command lines: the program that remains once wrappers are removed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Sequence
from typing import NamedTuple

from pinchpoint.expressions import expression

__all__ = ["LAUNCHERS", "Wrapper", "programs"]

LAUNCHERS = frozenset(
    {"mpirun", "mpiexec", "orterun", "prterun", "srun", "aprun", "mpirun.mpich", "mpiexec.mpich"}
    | {"mpirun.openmpi", "mpiexec.openmpi", "mpiexec.hydra"}
)
"""Programs that start the ranks of a parallel program; its command line comes last in theirs."""
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
SEPARATORS = frozenset({";", "&", "&&", "|", "||", "(", ")", "\n"})
ASSIGNMENT = expression(r"[A-Za-z_]\w*=")
MAX_WRAPPER_DEPTH = 8
"""Maximum number of nested wrappers that are removed."""


class Wrapper(NamedTuple):
    """The structure of a wrapper's command line."""

    words: int = 0
    """Words before the command that aren't options."""
    valued: Collection[str] = ()
    """Options whose value is a separate word."""


WRAPPERS = {
    "nice": Wrapper(0, {"-n", "--adjustment"}),
    "env": Wrapper(0, {"-u", "--unset", "-C", "--chdir"}),
    "time": Wrapper(0, {"-f", "-o"}),
    "stdbuf": Wrapper(0, {"-i", "-o", "-e"}),
    "ip": Wrapper(3),  # netns exec NAME
    "sudo": Wrapper(0, {"-u", "-g", "-C", "-h", "-p", "-D"}),
    "nohup": Wrapper(),
    "setsid": Wrapper(),
    "unshare": Wrapper(),
    "exec": Wrapper(),
    "ionice": Wrapper(0, {"-c", "-n"}),
    "numactl": Wrapper(0, {"-N", "-m", "-C", "-i", "-p"}),
    "timeout": Wrapper(1, {"-k", "-s"}),
    "taskset": Wrapper(1),
    "chrt": Wrapper(1),
}


def programs(command: Sequence[str], depth: int = 0) -> list[list[str]]:
    """Return the command lines behind a command's wrappers: more than one for a shell's ``-c``."""
    words = list(command)
    while words:
        name = os.path.basename(words[0])
        if ASSIGNMENT.match(words[0]):
            del words[0]
        elif name in SHELLS and depth < MAX_WRAPPER_DEPTH:
            index = next((i for i, word in enumerate(words) if i and not word.startswith("-")), len(words))
            if any(word.startswith("-") and not word.startswith("--") and "c" in word for word in words[1:index]):
                # A recorded command line may have lost its quotes: then the script is all that follows.
                script = " ".join(words[index:])
                return [found for line in _simple(script) for found in programs(line, depth + 1)]
            return [words]
        elif (wrapper := WRAPPERS.get(name)) is not None and len(words) > 1:
            words = _behind(words, wrapper)
        else:
            return [words]
    return []


def _behind(words: list[str], wrapper: Wrapper) -> list[str]:
    """Return what follows a wrapper's own words."""
    index, left = 1, wrapper.words
    while index < len(words):
        word = words[index]
        if word in wrapper.valued:
            index += 2
        elif word.startswith("-"):
            index += 1
        elif left:
            left -= 1
            index += 1
        else:
            break
    return words[index:]


def _simple(script: str) -> list[list[str]]:
    """Return the simple commands of a shell's script, as far as it can be read without a shell."""
    lexer = shlex.shlex(script, posix=True, punctuation_chars=";&|()\n")
    lexer.whitespace_split = True
    lexer.whitespace = " \t\r"
    lexer.commenters = ""
    found: list[list[str]] = [[]]
    try:
        for word in lexer:
            if set(word) <= set("".join(SEPARATORS)):
                found.append([])
            else:
                found[-1].append(word)
    except ValueError:  # a quote that isn't closed
        pass
    return [line for line in found if line]
