from __future__ import annotations

import pytest

from pinchpoint.benchmarks.units import base


@pytest.mark.parametrize(
    ("unit", "factor", "name"),
    [
        ("GiB/s", 2**30, "bytes_per_second"),
        ("MiB/sec", 2**20, "bytes_per_second"),
        ("KiB/s", 2**10, "bytes_per_second"),
        ("MB/s", 1e6, "bytes_per_second"),
        ("kB/s", 1e3, "bytes_per_second"),
        ("GBps", 1e9, "bytes_per_second"),
        ("bytes/second", 1, "bytes_per_second"),
        ("Gbit/s", 1e9 / 8, "bytes_per_second"),
        ("Mbps", 1e6 / 8, "bytes_per_second"),
        ("Mb/s", 1e6 / 8, "bytes_per_second"),
        ("Kbits/sec", 1e3 / 8, "bytes_per_second"),
        ("IOPS", 1, "operations_per_second"),
        ("iops", 1, "operations_per_second"),
        ("kIOPS", 1e3, "operations_per_second"),
        ("KIOPS", 1e3, "operations_per_second"),
        ("kiops", 1e3, "operations_per_second"),
        ("ops/s", 1, "operations_per_second"),
        ("Mops/sec", 1e6, "operations_per_second"),
        ("requests/second", 1, "operations_per_second"),
        ("tps", 1, "operations_per_second"),
        ("files/s", 1, "operations_per_second"),
        ("s", 1, "seconds"),
        ("ms", 1e-3, "seconds"),
        ("usec", 1e-6, "seconds"),
        ("\N{MICRO SIGN}s", 1e-6, "seconds"),
        ("\N{GREEK SMALL LETTER MU}s", 1e-6, "seconds"),
        ("ns", 1e-9, "seconds"),
        ("min", 60, "seconds"),
        ("MiB", 2**20, "bytes"),
        ("GB", 1e9, "bytes"),
        ("ops", 1, "operations"),
        ("packets", 1, "packets"),
        ("%", 0.01, "ratio"),
        (" GiB/s ", 2**30, "bytes_per_second"),
        ("", 1, "ratio"),
    ],
)
def test_a_unit_stands_for_so_much_of_its_base_unit(unit: str, factor: float, name: str) -> None:
    found = base(3.0, unit)

    assert found is not None
    assert found[0] == pytest.approx(3 * factor)
    assert found[1] == name


@pytest.mark.parametrize("unit", ["parsecs", "MB/S", "gib/s", "b", "B/h", "/s", "io ps"])
def test_other_units_are_not_known(unit: str) -> None:
    assert base(3.0, unit) is None
