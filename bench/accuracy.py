"""How often proofs are right: the page docs/accuracy.md, from the trials of `make prove`.

The file of results has one trial per line (`trials.Trial.to_json`).
"""

from __future__ import annotations

import math
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from disturbance import LIMITS
from page import machine, parser, replaced, table
from trials import (
    ALPHA,
    GOAL,
    Ending,
    Rate,
    Trial,
    by_chain,
    by_proof,
    confidently_wrong,
    confusion,
    overall,
    rates,
    significantly_below,
    verdicts,
)

__all__ = ["BY", "PAGE", "missed", "read", "summary", "written"]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "accuracy.md"
BY = "make prove"
FIRSTS = {0.5: 2.5, 0.95: 5.0}
"""Goals in seconds: by the share of the verdicts, when the first right one has come."""
LONGEST = 240
"""Characters of a reason that the page shows."""
VALUES = 3
"""Different words measured for one proof that the page shows."""
FIGURES = {
    "others": "other processes, CPUs",
    "steal": "hypervisor, CPUs",
    "memory": "waits for memory",
    "cpu": "waits for a CPU",
    "io": "waits for I/O",
}
SHARES = ("memory", "cpu", "io")


def read(path: Path) -> list[Trial]:
    """Return the trials of a file. Raises OSError, and ValueError with the number of a line that is not a trial."""
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                found.append(Trial.from_json(line))
            except ValueError as error:
                raise ValueError(f"{path}:{number}: not a trial: {error}") from error
    return found


def missed(trials: Sequence[Trial]) -> list[str]:
    """Return a line for each goal that is missed by more than chance: that of all verdicts first, then by proof."""
    found = []
    said = overall(verdicts(trials))
    if _state(said) == MISSED:
        found.append(f"all verdicts: {_counted(said)}, significantly below {_percent(GOAL)}")
    counted = rates(trials)
    for name in significantly_below(counted, GOAL):
        found.append(f"{_words(name)}: {_counted(counted[name])}, significantly below {_percent(GOAL)}")
    return found


def summary(trials: Sequence[Trial]) -> str:
    """Summarise the trials in a few lines for a terminal."""
    lines = [_headline(trials).replace("**", ""), *_others_headline(trials)]
    if lost := sum(not trial.judged for trial in trials):
        lines.append(f"not judged, since other load disturbed them: {lost} of {_trials(len(trials))}")
    if never := [_words(name) for name, rate in rates(trials).items() if not rate.judged]:
        lines.append(f"never judged: {', '.join(never)}")
    for trial in _wrong(trials):
        sure = f" ({trial.confidence} confidence)" if trial.confidence else ""
        lines.append(f"wrong: {_words(trial.proof)}{sure}: {_line(trial.reason or trial.said)}")
    lines += [f"missed: {line}" for line in missed(trials)]
    return "\n".join(lines)


def written(text: str, trials: Sequence[Trial], where: str) -> str:
    """Return the text of the page with new sections. Raises ValueError if it lacks one."""
    for name, section in SECTIONS.items():
        text = replaced(text, name, section(trials) if name != "summary" else f"{where}.\n\n{section(trials)}", BY)
    return text


def _summary_section(trials: Sequence[Trial]) -> str:
    lines = [_headline(trials), *_firsts_headline(trials), *_others_headline(trials)]
    lines = [f"{line[0].upper()}{line[1:]}." for line in lines]
    lost = sum(not trial.judged for trial in trials)
    minutes = sum(trial.seconds for trial in trials) / 60
    lines.append(f"{_trials(len(trials))} took {minutes:.0f} minutes; not judged: {lost}.")
    lines += [f"Missed: {_cell(line)}." for line in missed(trials)]
    return "\n\n".join(lines)


def _proofs_section(trials: Sequence[Trial]) -> str:
    head = ["proof", "what is true", "right", "rate (95 % interval)", "not judged", "first right verdict after",
            "measured"]  # fmt: skip
    low = set(significantly_below(rates(trials), GOAL))
    parts = []
    for group in dict.fromkeys(trial.group for trial in trials):
        inside = by_proof(trial for trial in trials if trial.group == group)
        rows = [_proof_row(name, made, name in low) for name, made in inside.items()]
        parts.append(f"### {_cell(group)}\n\n{_filled(head, rows)}")
    return "\n".join(parts) or "No trials."


def _proof_row(name: str, made: Sequence[Trial], low: bool) -> list[str]:
    rate = overall(made)
    firsts = [trial.first_right for trial in made if trial.judged and trial.first_right is not None]
    first = f"{statistics.median(firsts):.1f} s, at most {max(firsts):.1f} s" if firsts else ""
    interval = _interval(rate) + (f", **{MISSED}**" if low else "")
    lost = sum(not trial.judged for trial in made)
    truth = next((trial.truth for trial in made if trial.truth), "")
    return [_cell(_words(name)), _cell(truth), f"{rate.right} of {rate.judged}", interval, str(lost or ""), first,
            _measured(made)]  # fmt: skip


def _confusion_section(trials: Sequence[Trial]) -> str:
    counts = confusion(trials)
    if not counts:
        return "No verdict was judged."
    wrong = confusion(_wrong(trials))
    kinds = sorted({found for _, found in counts})
    rows = []
    for expected in dict.fromkeys(true for true, _ in counts):
        cells = [_confused(counts.get((expected, kind), 0), wrong.get((expected, kind), 0)) for kind in kinds]
        rows.append([_cell(expected), *cells])
    return table(["true (row), found (column)", *(_cell(kind) or "nothing" for kind in kinds)], rows)


def _confused(count: int, wrong: int) -> str:
    return f"{count}, **{wrong} wrong**" if wrong else str(count or "")


def _wrong_section(trials: Sequence[Trial]) -> str:
    rows = []
    sure = confidently_wrong(trials)
    for trial in _wrong(trials):
        cells = [_cell(_words(trial.proof)), _cell(trial.truth), _cell(trial.said), _cell(trial.confidence),
                 _cell(trial.reason)]  # fmt: skip
        rows.append([f"**{cell}**" if cell and trial in sure else cell for cell in cells])
    return _filled(["proof", "what is true", "what was said", "confidence", "why it is wrong"], rows) or "None."


def _chains_section(trials: Sequence[Trial]) -> str:
    counts = by_chain(trials)
    if not counts:
        return "No verdict was judged."
    head = ["by the rules (row), by who wakes whom alone (column)", Ending.RIGHT, Ending.WRONG, "nothing full"]
    chains = (Ending.RIGHT, Ending.WRONG, "")
    rows = [[end, *(str(counts.get((end, chain), 0)) for chain in chains)] for end in (Ending.RIGHT, Ending.WRONG)]
    led = overall(trial for trial in verdicts(trials) if trial.led)
    more = f"\nWhere the rules named nothing, who wakes whom was {_counted(led)}." if led.judged else ""
    return f"{table(head, rows)}{more}"


def _disturbance_section(trials: Sequence[Trial]) -> str:
    rows = []
    for name, judged in (("judged", True), ("not judged", False)):
        of_them = [trial for trial in trials if trial.judged == judged]
        if of_them:
            rows.append([name, str(len(of_them)), *(_highest(of_them, figure) for figure in FIGURES)])
    limits = (
        f"A trial is not judged where other processes used more than {LIMITS.others:g} CPUs, the hypervisor took more "
        f"than {_percent(LIMITS.steal)} of all CPUs, or processes waited for memory in more than "
        f"{_percent(LIMITS.memory)} of the time."
    )
    return f"{limits}\n\n{table(['highest in trials that were', 'trials', *FIGURES.values()], rows)}"


SECTIONS: Mapping[str, Callable[[Sequence[Trial]], str]] = {
    "summary": _summary_section,
    "proofs": _proofs_section,
    "confusion": _confusion_section,
    "wrong": _wrong_section,
    "chains": _chains_section,
    "disturbance": _disturbance_section,
}
"""The function that makes each section of the page."""

MET, UNCERTAIN, MISSED = "met", "not significantly below", "missed"


def _state(rate: Rate) -> str:
    """Return whether a rate meets the goal, misses it, or is below it by an amount that may be chance."""
    if not rate.judged:
        return "not measured"
    if rate.share >= GOAL:
        return MET
    return MISSED if rate.p_below(GOAL) < ALPHA else UNCERTAIN


def _headline(trials: Sequence[Trial]) -> str:
    rate = overall(verdicts(trials))
    if not rate.judged:
        return "no verdict was judged"
    state = _state(rate)
    low, high = rate.interval
    return (
        f"verdicts are {_counted(rate)}, 95 % interval {_percent(low)} to {_percent(high)}; goal {_percent(GOAL)}: "
        f"{f'**{state}**' if state == MISSED else state}; wrong with high confidence: "
        f"{len(confidently_wrong(verdicts(trials)))}"
    )


def _firsts_headline(trials: Sequence[Trial]) -> list[str]:
    judged = [trial for trial in verdicts(trials) if trial.judged]
    firsts = sorted(math.inf if trial.first_right is None else trial.first_right for trial in judged)
    if not firsts:
        return []
    parts = []
    for share, goal in FIRSTS.items():
        found = firsts[math.ceil(share * len(firsts)) - 1]
        state = MET if found <= goal else f"**{MISSED}**"
        came = "does not come" if found == math.inf else f"comes within {found:.1f} s"
        parts.append(f"{came} in {_percent(share)} of the trials (goal {goal:g} s: {state})")
    return [f"the first right verdict {', and '.join(parts)}"]


def _others_headline(trials: Sequence[Trial]) -> list[str]:
    rate = overall(trial for trial in trials if not trial.expected)
    return [f"other proofs are {_counted(rate)}"] if rate.judged else []


def _wrong(trials: Iterable[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.ending is Ending.WRONG]


def _filled(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table without its empty columns, and "" if it has no row."""
    if not rows:
        return ""
    kept = [index for index in range(len(head)) if any(row[index] for row in rows)]
    return table([head[index] for index in kept], ([row[index] for index in kept] for row in rows))


def _highest(trials: Iterable[Trial], figure: str) -> str:
    values = [trial.disturbance[figure] for trial in trials if figure in trial.disturbance]
    if not values:
        return "not known"
    return _percent(max(values)) if figure in SHARES else f"{max(values):.2f}"


def _measured(trials: Iterable[Trial]) -> str:
    """Return the measurements of the judged trials: medians with their range, and words unchanged."""
    found: dict[str, list[str]] = {}
    for trial in trials:
        if trial.judged:
            for name, value in trial.measured.items():
                found.setdefault(name, []).append(value)
    return "; ".join(f"{_cell(name)}: {_together(values)}" for name, values in found.items())


def _together(values: Sequence[str]) -> str:
    matches = [re.fullmatch(r"(-?\d{1,15}(?:\.\d{1,15})?) ?(\D*)", value) for value in values]
    numbers = [float(match[1]) for match in matches if match]
    units = {match[2] for match in matches if match}
    if len(numbers) == len(values) > 1 and len(units) == 1:
        middle, low, high = (_number(value) for value in (statistics.median(numbers), min(numbers), max(numbers)))
        return _cell(f"{middle} {units.pop()}".strip() + f" ({low} to {high})")
    different = [_cell(value) for value in dict.fromkeys(values)]
    return ", ".join(different[:VALUES]) + (", ..." if len(different) > VALUES else "")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _counted(rate: Rate) -> str:
    return f"right in {rate.right} of {rate.judged} = {_percent(rate.share)}"


def _interval(rate: Rate) -> str:
    low, high = rate.interval
    return f"{_percent(rate.share)} ({_percent(low)} to {_percent(high)})" if rate.judged else ""


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def _trials(number: int) -> str:
    return f"{number} trial{'' if number == 1 else 's'}"


def _words(name: str) -> str:
    """Return the name of a proof as words."""
    return _line(name.replace("_", " "))


def _line(text: str) -> str:
    """Return the beginning of the first line of a text that anybody may have written."""
    first = next((" ".join(line.split()) for line in text.splitlines() if line.strip()), "")
    return first if len(first) <= LONGEST else f"{first[: LONGEST - 3]}..."


def _cell(text: str) -> str:
    """Return the same for the page, escaped for Markdown and HTML."""
    return re.sub(r"[<>*`\[\]\\]", lambda found: {"<": "&lt;", ">": "&gt;"}.get(found[0], f"\\{found[0]}"), _line(text))


def main() -> None:
    """Write the page from a file of results."""
    arguments = parser(__doc__)
    arguments.set_defaults(page=PAGE)
    arguments.add_argument("results", type=Path, help="file with a trial in each line")
    chosen = arguments.parse_args()
    try:
        found = read(chosen.results)
    except (OSError, ValueError) as error:
        sys.exit(str(error))
    if not found:
        sys.exit(f"{chosen.results}: no trials")
    print(summary(found))
    if chosen.page.is_file():
        chosen.page.write_text(written(chosen.page.read_text(), found, machine()))
    lines = missed(found)
    if chosen.check and lines:
        sys.exit("\n".join(lines))


if __name__ == "__main__":
    main()
