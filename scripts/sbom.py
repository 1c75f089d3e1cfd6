"""The bill of materials of a release, in CycloneDX 1.6 (ECMA-424): the package, and the libraries it is tested with."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from packaging.markers import default_environment
from packaging.requirements import Requirement

from pinchpoint.project import URL

__all__ = ["bill_of_materials", "closure"]

NAME = "pinchpoint"
NOT_SHIPPED = frozenset({"dev", "fuzz", "mutate", "release", "stack"})
"""Extras that a checkout needs, not an installation."""
SPDX = re.compile(r"[A-Za-z0-9.+-]+(?: (?:AND|OR|WITH) [A-Za-z0-9.+-]+)*")


def closure(name: str = NAME) -> dict[str, list[str]]:
    """Return the installed libraries that a package needs, with its extras, each with what it needs itself.

    Raises PackageNotFoundError if one of them is not installed.
    """
    extras = set(metadata.metadata(name).get_all("Provides-Extra") or ()) - NOT_SHIPPED
    found: dict[str, list[str]] = {}
    waiting = [(_plain(name), extras)]
    while waiting:
        one, wanted = waiting.pop()
        if one in found:
            continue
        needed = [requirement for requirement in _requirements(one, wanted) if _plain(requirement.name) != one]
        found[one] = sorted({_plain(requirement.name) for requirement in needed})
        waiting += [(_plain(requirement.name), requirement.extras) for requirement in needed]
    return dict(sorted(found.items()))


def _requirements(name: str, extras: set[str]) -> list[Requirement]:
    environment = {key: str(value) for key, value in default_environment().items()}
    parsed = [Requirement(line) for line in metadata.requires(name) or ()]
    return [
        one
        for one in parsed
        if one.marker is None or any(one.marker.evaluate(environment | {"extra": extra}) for extra in (*extras, ""))
    ]


def _plain(name: str) -> str:
    """Return the normal form of a name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def bill_of_materials(version: str, commit: str, seconds: int) -> str:
    """Return the document of a release that is made from a commit; `seconds` is its Unix time."""
    needs = closure()
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{NAME}:{version}:{commit}')}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                **_component(NAME, version, "application"),
                "properties": [{"name": "pinchpoint:commit", "value": commit}],
                **({"externalReferences": [{"type": "vcs", "url": URL}]} if URL else {}),
            },
        },
        "components": [_component(name, metadata.version(name), "library") for name in needs if name != NAME],
        "dependencies": [
            {"ref": _purl(name, version), "dependsOn": [_purl(other, version) for other in needs[name]]}
            for name in needs
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version if name == NAME else metadata.version(name)}"


def _component(name: str, version: str, kind: str) -> Mapping[str, Any]:
    about = metadata.metadata(name).json
    licence = str(about.get("license_expression") or about.get("license") or "")
    known = licence if len(licence) < 60 and SPDX.fullmatch(licence) else ""
    return {
        "type": kind,
        "bom-ref": _purl(name, version),
        "name": name,
        "version": version,
        "purl": _purl(name, version),
        **({"licenses": [_licence(known)]} if known else {}),
    }


def _licence(text: str) -> Mapping[str, Any]:
    return {"expression": text} if " " in text else {"license": {"name": text}}
