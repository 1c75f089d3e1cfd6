from __future__ import annotations

import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.report.flame import MAX_CELLS, MAX_FLAMES, flames
from pinchpoint.session.stacks import SavedStack

SVG = "{http://www.w3.org/2000/svg}"


def stack(functions: str, samples: int, resource: str = "kv_sync of osd.0", phase: str = "write") -> SavedStack:
    return SavedStack(phase, "osd1", resource, tuple(functions.split(";")), samples)


STACKS = [stack("main;write;memcpy", 60), stack("main;write", 30), stack("main;crc32c", 10)]


def cells(picture: str) -> dict[str, tuple[float, float, float]]:
    """Return row, left end and width of each function of a picture."""
    found = {}
    for group in ElementTree.fromstring(picture).iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None
        assert rect is not None
        assert title.text
        place = float(rect.get("y", "")) / 17, float(rect.get("x", "")), float(rect.get("width", ""))
        found[title.text.partition(": ")[0]] = place
    return found


def test_a_function_is_as_wide_as_its_share_and_lies_below_its_caller() -> None:
    (flame,) = flames(STACKS, "write")

    assert (flame.title, flame.samples) == ("kv_sync of osd.0 on osd1", 100)
    assert cells(flame.picture) == {
        "main": (0, 0.0, 999.5),
        "crc32c": (1, 0.0, 99.5),
        "write": (1, 100.0, 899.5),
        "memcpy": (2, 100.0, 599.5),
    }
    assert "memcpy: 60.0%, 60 samples" in flame.picture


def test_few_samples_and_other_phases_have_no_picture() -> None:
    assert flames([stack("main", 99)], "write") == []
    assert flames(STACKS, "read") == []


def test_the_resources_with_most_samples_are_drawn() -> None:
    found = flames([stack("main", 100 + number, f"kv_sync of osd.{number}") for number in range(5)], "write")

    assert [flame.samples for flame in found] == [104, 103][:MAX_FLAMES]


def test_a_picture_has_a_bounded_number_of_functions() -> None:
    wide = [stack(";".join(f"f{one}_{row}" for row in range(100)), 1) for one in range(300)]

    (flame,) = flames(wide, "write")

    assert flame.picture.count("<g>") == MAX_CELLS


@given(st.lists(st.tuples(st.text(min_size=1), st.integers(0, 10**6)), min_size=1, max_size=20))
def test_any_names_make_a_picture_without_markup_of_theirs(named: list[tuple[str, int]]) -> None:
    found = flames([SavedStack("write", "<b>", "&", (name, "</svg><script>"), count) for name, count in named], "write")

    for flame in found:
        ElementTree.fromstring(flame.picture)
        assert "<script" not in flame.picture
        assert re.fullmatch(r"[^\x00-\x1f]*", flame.picture)
