from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pinchpoint

PACKAGE = Path(pinchpoint.__file__).parent
FIRST_DECODES = """
import sys, threading, types
from pinchpoint.typedjson import decoder

sys.setswitchinterval(1e-6)
for number in range(300):
    module = types.ModuleType(f"types{number}")
    sys.modules[module.__name__] = module
    exec('''
from __future__ import annotations
import msgspec
class Inner(msgspec.Struct):
    a: int
    b: dict[str, list[int]] = {}
class Outer(msgspec.Struct):
    inner: Inner | None = None
    many: list[Inner] = []
''', module.__dict__)
    known = decoder(module.Outer)
    barrier = threading.Barrier(4)

    def decode():
        barrier.wait()
        known.decode(b'{"inner": {"a": 1}}')

    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


def test_threads_may_decode_a_type_for_the_first_time_at_once() -> None:
    """With `msgspec.json.decode` this program died of SIGSEGV in 8 of 8 runs."""
    assert subprocess.run([sys.executable, "-c", FIRST_DECODES]).returncode == 0


def test_nothing_is_decoded_in_another_way() -> None:
    others = [str(file.relative_to(PACKAGE)) for file in PACKAGE.rglob("*.py") if "json.decode(" in file.read_text()]

    assert others == ["typedjson.py"], "which names it in a comment"
