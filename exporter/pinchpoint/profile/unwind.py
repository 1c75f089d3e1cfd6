"""Walks up a copied user stack, from a sample's registers to the thread's first function (x86-64).

Registers are numbered as in DWARF (System V ABI, AMD64 supplement, figure 3.36).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from pinchpoint.profile.cfi import Budget, CfiError, Row, Rule

__all__ = ["RIP", "RSP", "MissingError", "Stack", "Unwound", "evaluate", "unwind"]

RBP, RSP, RIP = 6, 7, 16
REGISTERS = 17
MAX_USER_FRAMES = 96
MAX_OPERATIONS = 64
"""Operations of one expression."""
MAX_OPERANDS = 16
WORD = struct.Struct("<Q")
MASK = (1 << 64) - 1

End = Literal["start", "cut", "unknown", "damaged", "deep"]
"""How the walk ended: at the thread's start; where the copy ends; in code without a row; at values that make no sense;
at `MAX_USER_FRAMES`."""


class Unwound(NamedTuple):
    """The frames of a stack."""

    frames: tuple[int, ...]
    """Addresses, innermost first; those of callers lie within the instruction that called."""
    end: End


class Stack:
    """The copied part of a stack."""

    def __init__(self, address: int, raw: bytes) -> None:
        self._address = address
        self._raw = raw

    def word(self, address: int) -> int | None:
        """Return the 8 bytes at an address, None if they are not in the copy."""
        offset = (address & MASK) - self._address
        if 0 <= offset <= len(self._raw) - 8:
            return int(WORD.unpack_from(self._raw, offset)[0])
        return None


class MissingError(Exception):
    """A value lies outside of the copy."""


def unwind(
    registers: Sequence[int],
    stack: bytes,
    row_of: Callable[[int, Budget], Row | None],
    is_code: Callable[[int], bool],
) -> Unwound:
    """Return the frames of a sample.

    `registers` has the 17 registers in DWARF's order, `stack` the bytes from the stack pointer on. `row_of` returns
    the row of an address and may raise CfiError; `is_code` says whether an address can be executed.
    """
    values = list(registers)
    memory = Stack(values[RSP], stack)
    budget = Budget()
    frames = [values[RIP]]
    address = values[RIP]
    while len(frames) < MAX_USER_FRAMES:
        before = values[RSP]
        interrupted = False
        try:
            row = row_of(address, budget)
            if row is not None:
                interrupted = row.signal
                values = _step(values, memory, row)
            elif (found := _by_frame_pointer(values, memory, is_code)) is not None:
                values = found
            else:
                return Unwound(tuple(frames), "unknown")
        except CfiError:
            return Unwound(tuple(frames), "damaged")
        except MissingError:
            return Unwound(tuple(frames), "cut")
        if not values[RIP]:
            return Unwound(tuple(frames), "start")
        if values[RSP] <= before or not is_code(values[RIP]):
            return Unwound(tuple(frames), "damaged")
        # A return address is behind the call, which may be the last instruction of a function that never returns.
        address = values[RIP] if interrupted else values[RIP] - 1
        frames.append(address)
    return Unwound(tuple(frames), "deep")


def _step(values: list[int], memory: Stack, row: Row) -> list[int]:
    """Return the registers of the caller."""
    if row.cfa.kind == "register":
        if row.base >= REGISTERS:
            raise CfiError("a frame address in an unknown register")
        cfa = (values[row.base] + row.cfa.value) & MASK
    else:
        cfa = evaluate(row.cfa.code, values, memory, None)
    found = list(values)
    found[RSP] = cfa
    for register, rule in row.rules:
        if register < REGISTERS:
            found[register] = _value(rule, values, memory, cfa)
    if row.return_register != RIP:
        raise CfiError("the return address is in an unknown register")
    return found


def _value(rule: Rule, values: Sequence[int], memory: Stack, cfa: int) -> int:
    if rule.kind == "offset":
        return _word(memory, cfa + rule.value)
    if rule.kind == "value":
        return (cfa + rule.value) & MASK
    if rule.kind == "register":
        if rule.value >= REGISTERS:
            raise CfiError("a value in an unknown register")
        return values[rule.value]
    if rule.kind == "expression":
        return _word(memory, evaluate(rule.code, values, memory, cfa))
    if rule.kind == "value_expression":
        return evaluate(rule.code, values, memory, cfa)
    return 0  # undefined: as a return address it marks the start of a thread


def _word(memory: Stack, address: int) -> int:
    found = memory.word(address)
    if found is None:
        raise MissingError
    return found


def _by_frame_pointer(values: list[int], memory: Stack, is_code: Callable[[int], bool]) -> list[int] | None:
    """Return the registers of the caller of code that was made at run time, if it keeps a frame pointer."""
    link, back = memory.word(values[RBP]), memory.word(values[RBP] + 8)
    if link is None or back is None or not is_code(back):
        return None
    found = list(values)
    found[RSP], found[RBP], found[RIP] = values[RBP] + 16, link, back
    return found


def evaluate(code: bytes, values: Sequence[int], memory: Stack, cfa: int | None) -> int:
    """Return the value of a DWARF expression (DWARF 5, 2.5).

    Raises CfiError for one with other operations, MissingError where it needs what was not copied.
    """
    stack: list[int] = [] if cfa is None else [cfa]
    at = 0
    try:
        for _ in range(MAX_OPERATIONS):
            if at >= len(code):
                return stack.pop() & MASK
            operation = code[at]
            at += 1
            if 0x30 <= operation <= 0x4F:  # DW_OP_lit
                stack.append(operation - 0x30)
            elif 0x70 <= operation <= 0x80:  # DW_OP_breg
                number, at = _sleb(code, at)
                stack.append(values[operation - 0x70] + number)
            elif operation == 0x06:  # DW_OP_deref
                stack.append(_word(memory, stack.pop()))
            elif operation in (0x08, 0x09):  # DW_OP_const1u, const1s
                number = code[at] - 256 if operation == 0x09 and code[at] > 127 else code[at]
                stack.append(number)
                at += 1
            elif operation in (0x11, 0x23):  # DW_OP_consts, DW_OP_plus_uconst
                number, at = _sleb(code, at) if operation == 0x11 else _uleb(code, at)
                stack.append(number if operation == 0x11 else stack.pop() + number)
            elif operation == 0x12:  # DW_OP_dup
                stack.append(stack[-1])
            else:
                second, first = stack.pop(), stack.pop()
                stack.append(_binary(operation, first, second))
            if len(stack) > MAX_OPERANDS:
                break
    except IndexError as error:
        raise CfiError("a damaged expression") from error
    raise CfiError("a long expression")


def _binary(operation: int, first: int, second: int) -> int:
    if operation == 0x22:  # DW_OP_plus
        return (first + second) & MASK
    if operation == 0x1C:  # DW_OP_minus
        return (first - second) & MASK
    if operation == 0x1A:  # DW_OP_and
        return first & second & MASK
    if operation == 0x24 and second < 64:  # DW_OP_shl
        return (first << second) & MASK if second >= 0 else 0
    if operation == 0x2A:  # DW_OP_ge
        return int(first >= second)
    raise CfiError("an unknown operation")


def _uleb(code: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while shift <= 63:
        byte = code[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
        shift += 7
    raise CfiError("a number without an end")


def _sleb(code: bytes, at: int) -> tuple[int, int]:
    found, end = _uleb(code, at)
    return found - (1 << 7 * (end - at)) if code[end - 1] & 0x40 else found, end
