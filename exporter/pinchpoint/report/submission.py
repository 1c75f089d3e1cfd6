"""The files of a draft submission to the IO500 list, and what they still lack."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from pinchpoint.diagnosis.facts import Facts
from pinchpoint.diagnosis.io500_rules import RULES_VERSION, ResultFolder, RuleState
from pinchpoint.diagnosis.submission import OPEN, QUESTIONS, SCHEMA, answers, missing, system
from pinchpoint.runs import HASH_TAG
from pinchpoint.session.store import RunRecord
from pinchpoint.text import printable

__all__ = ["SubmissionFileError", "submission_lines", "submission_texts", "write_submission"]

SYSTEM, QUESTIONNAIRE = "system.json", "questionnaire.md"


class SubmissionFileError(Exception):
    """A file that cannot be written; the message says why."""


def submission_texts(record: RunRecord, folder: ResultFolder, facts: Facts, repeats: Sequence[float]) -> dict[str, str]:
    """Return the draft by the names of its files: the description of the system, and the questionnaire."""
    part = msgspec.to_builtins(system(folder, facts))
    return {
        SYSTEM: json.dumps({"DATA": part, "GRAPH": {}}, indent=4) + "\n",
        QUESTIONNAIRE: "".join(f"{line}\n" for line in _questionnaire(record, folder, facts, repeats)),
    }


def _questionnaire(record: RunRecord, folder: ResultFolder, facts: Facts, repeats: Sequence[float]) -> Iterator[str]:
    yield f"# Reproducibility questionnaire: {record.marker.run}"
    yield ""
    yield f"A draft from what was seen in the run. Check every line, and write what follows `{OPEN}`: the list wants at"
    yield "least ten words for each question."
    for answer in answers(folder, facts, execution=[*_execution(record, folder)], repeats=repeats):
        yield ""
        yield f"## {answer.question}"
        yield ""
        for line in answer.known:
            yield f"- {printable(line)}"
        if answer.known:
            yield ""
        yield answer.open


def _execution(record: RunRecord, folder: ResultFolder) -> Iterator[str]:
    marker = record.marker
    if record.command:
        yield f"Command: {shlex.join(record.command)}"
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(marker.start))
    yield f"It began on {when}" + ("." if marker.end is None else f" and took {marker.end - marker.start:.0f} s.")
    if folder.nodes and folder.tasks:
        yield f"{folder.tasks} ranks ran on {folder.nodes} client nodes."
    for key, value in marker.tags.items():
        if key != HASH_TAG:
            yield f"{key}: {value}"


def write_submission(directory: Path, texts: Mapping[str, str]) -> None:
    """Write the files into a directory, which is made. Raises SubmissionFileError; a file that is there stays."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        there = [name for name in texts if os.path.lexists(directory / name)]
        if there:
            raise SubmissionFileError(
                f"{directory / there[0]}: it is there, and may have been edited; name another directory, or move it"
            )
        for name, text in texts.items():
            with (directory / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise SubmissionFileError(f"{error.filename or directory}: {error.strerror}") from error


def submission_lines(folder: ResultFolder, facts: Facts) -> Iterator[str]:
    """Yield what stands between a run and its submission: rules, then fields and questions that are open."""
    for state in (RuleState.BROKEN, RuleState.UNSEEN):
        for rule in folder.rules:
            if rule.state is state:
                yield f"{state}: {rule.name}{f' ({rule.phase})' if rule.phase else ''}: {rule.words}"
    if not any(rule.state is RuleState.BROKEN for rule in folder.rules):
        yield f"No rule is seen to be broken, by {RULES_VERSION}."
    gaps = list(missing(system(folder, facts)))
    yield f"{SYSTEM}: {len(gaps)} required fields are empty, by {SCHEMA}:"
    yield from (f"  {gap}" for gap in gaps)
    yield f"{QUESTIONNAIRE}: {len(QUESTIONS)} answers need words of yours."
