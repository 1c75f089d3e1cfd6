from __future__ import annotations

import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.profile.demangle import MAX_CHARACTERS, short_name

NAMES = {
    "malloc": "malloc",
    "memcpy@@GLIBC_2.14": "memcpy",
    "do_work.isra.0.cold": "do_work",
    "_Z3foov": "foo",
    "_ZN7rocksdb8MemTable3AddEmNS_9ValueTypeERKNS_5SliceES4_": "rocksdb::MemTable::Add",
    "_ZNSt6vectorIiSaIiEE9push_backERKi": "std::vector::push_back",
    "_ZStlsISt11char_traitsIcEERSt13basic_ostreamIcT_ES5_PKc": "std::operator<<",
    "_ZNSolsEi": "std::ostream::operator<<",
    "_ZN3FooC2Ev": "Foo::Foo",
    "_ZN3FooD0Ev": "Foo::~Foo",
    "_ZThn16_N3Foo3barEv": "Foo::bar",
    "_ZN12_GLOBAL__N_13fooEv": "(anonymous namespace)::foo",
    "_ZZN3Foo3barEvENKUlvE_clEv": "Foo::bar::{lambda}::operator()",
    "_ZL3foov": "foo",
    "_ZN1AcvbEv": "A::operator (conversion)",
    "_ZNK10PGLSFilter5checkB5cxx11Ev": "PGLSFilter::check",
    "_ZN3FooIXadL_ZN3BarclEvEELi4EE3runEv": "Foo::run",
    "_ZN4core3fmt5Write9write_str17h0123456789abcdefE": "core::fmt::Write::write_str",
    "_ZTHN7rocksdb12perf_contextE": "rocksdb::perf_context",
    "_Znwm": "operator new",
}


@pytest.mark.parametrize(("mangled", "expected"), NAMES.items())
def test_parameters_and_template_arguments_are_left_out(mangled: str, expected: str) -> None:
    assert short_name(mangled) == expected


@pytest.mark.parametrize("name", ["_Z", "_ZN", "_ZN3fo", "_ZN999999999999999x", "_ZS", "_ZN1AILL", "_ZN1AI" + "N" * 99])
def test_what_cannot_be_read_is_shown_as_it_is(name: str) -> None:
    assert short_name(name) == name


def test_a_name_that_doubles_at_each_step_stays_short() -> None:
    bomb = (
        "_Z1fI"
        + "S_" * 10
        + "".join(f"St4pairIS{chr(65 + step % 26)}_S{chr(65 + step % 26)}_E" for step in range(150))
        + "Ev"
    )

    assert short_name(bomb) == "f"


def test_a_very_long_name_costs_little() -> None:
    began = time.thread_time()

    assert short_name("_ZN" + "1a" * 500_000 + "Ev").startswith("_ZN1a")
    assert len(short_name("_ZN" + "1a" * 500_000 + "Ev")) == MAX_CHARACTERS
    assert time.thread_time() - began < 5


@given(st.text(alphabet="_ZNSIEJLXFTDCUKlsta0123456789.", max_size=200))
def test_any_text_has_a_name_of_about_its_length(text: str) -> None:
    assert len(short_name("_Z" + text)) <= 30 * (len(text) + 2)


def test_the_names_of_libstdcpp_are_read() -> None:
    library = subprocess.run(["c++", "-print-file-name=libstdc++.so"], capture_output=True, text=True, check=False)
    if library.returncode:
        pytest.skip("needs c++")
    said = subprocess.run(
        ["readelf", "-W", "--dyn-syms", library.stdout.strip()], capture_output=True, text=True
    ).stdout
    names = {word.partition("@")[0] for word in said.split() if word.startswith("_ZN")}

    unread = [name for name in names if short_name(name) == name]

    assert len(names) > 1000
    assert len(unread) <= len(names) // 500, unread[:5]
