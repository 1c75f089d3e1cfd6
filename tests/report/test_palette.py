from __future__ import annotations

from itertools import combinations

import pytest

from pinchpoint.diagnosis.verdict import Kind
from pinchpoint.report.palette import KINDS, WAIT_WORDS, WAITS, wait_colour

# Machado, Oliveira, Fernandes: A Physiologically-based Model for Simulation of Color Vision Deficiency (2009),
# severity 1.
VISION = {
    "normal": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}
NOTICED = 2.0
"""Distance in hundredths of Oklab above which two adjacent colours look different."""
Colour = tuple[float, float, float]


def linear(colour: str) -> Colour:
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return red, green, blue


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def oklab(colour: Colour) -> Colour:
    """Return a colour in Björn Ottosson's Oklab, where distances correspond to perceived differences."""
    red, green, blue = colour
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    middle = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


def seen(colour: str, vision: str) -> Colour:
    parts = linear(colour)
    red, green, blue = (
        min(1.0, max(0.0, sum(factor * part for factor, part in zip(row, parts, strict=True))))
        for row in VISION[vision]
    )
    return oklab((red, green, blue))


@pytest.mark.parametrize("vision", VISION)
def test_any_two_wait_classes_are_told_apart_by_eyes_of_every_kind(vision: str) -> None:
    for one, other in combinations(WAITS, 2):
        apart = sum((a - b) ** 2 for a, b in zip(seen(WAITS[one], vision), seen(WAITS[other], vision), strict=True))

        assert 100 * apart**0.5 > 5 * NOTICED, (one, other)


@pytest.mark.parametrize("paper", ["#ffffff", "#161b22"])
def test_each_wait_class_stands_out_on_light_and_on_dark_paper(paper: str) -> None:
    for wait, colour in WAITS.items():
        light, dark = sorted((luminance(colour), luminance(paper)), reverse=True)

        assert (light + 0.05) / (dark + 0.05) > 1.4, wait


def test_every_wait_class_of_the_design_has_a_colour_and_words() -> None:
    classes = "cpu runqueue mds osd client writeback disk network memory lock other idle ceph"

    assert set(WAITS) == set(WAIT_WORDS) == set(classes.split())
    assert wait_colour("of a later release") == WAITS["other"]


def test_every_kind_of_verdict_has_a_colour() -> None:
    assert set(KINDS) == {str(kind) for kind in Kind}
