from __future__ import annotations

import struct

import pytest

from shoal.node.runtime.sandbox.seccomp import ARCHITECTURES, default_filter

ALLOWED, EPERM, ENOSYS, KILLED = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
INTEL = ARCHITECTURES["x86_64"].audit


def run(program: bytes, number: int, *words: int, audit: int = INTEL) -> int:
    """What the kernel would do with a call: the few instructions that filters here have."""
    data = struct.pack("=IIQ6Q", number, audit, 0, *[*words, *([0] * (6 - len(words)))])
    at, loaded = 0, 0
    while True:
        code, yes, no, value = struct.unpack_from("=HBBI", program, at * 8)
        at += 1
        match code:
            case 0x20:
                (loaded,) = struct.unpack_from("=I", data, value)
            case 0x06:
                return int(value)
            case 0x15:
                at += yes if loaded == value else no
            case 0x35:
                at += yes if loaded >= value else no
            case 0x45:
                at += yes if loaded & value else no
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


@pytest.mark.parametrize(
    ("number", "words", "result"),
    [
        pytest.param(0, (), ALLOWED, id="read"),
        pytest.param(165, (), EPERM, id="mount"),
        pytest.param(321, (), EPERM, id="bpf"),
        pytest.param(435, (), ENOSYS, id="clone3"),
        pytest.param(468, (), ENOSYS, id="newer than known"),
        pytest.param(0x40000000, (), ENOSYS, id="x32"),
        pytest.param(56, (0x11,), ALLOWED, id="fork by clone"),
        pytest.param(56, (0x3D0F00,), ALLOWED, id="thread by clone"),
        pytest.param(56, (0x10000011,), EPERM, id="clone with a user namespace"),
        pytest.param(272, (0x400,), ALLOWED, id="unshare files"),
        pytest.param(272, (0x20000,), EPERM, id="unshare mounts"),
        pytest.param(272, (0x80,), EPERM, id="unshare time"),
        pytest.param(41, (2, 1, 0), ALLOWED, id="socket of IPv4"),
        pytest.param(41, (40, 1, 0), 0x00050061, id="socket to the hypervisor"),
        pytest.param(135, (0xFFFFFFFF,), ALLOWED, id="ask for the personality"),
        pytest.param(135, (0x0040000,), EPERM, id="personality without random addresses"),
        pytest.param(231, (), ALLOWED, id="exit after all rules"),
    ],
)
def test_what_a_call_meets(number: int, words: tuple[int, ...], result: int) -> None:
    assert run(default_filter("x86_64"), number, *words) == result


def test_calls_of_another_architecture_end_the_program() -> None:
    assert run(default_filter("x86_64"), 0, audit=0x40000003) == KILLED
    assert run(default_filter("aarch64"), 0, audit=INTEL) == KILLED


def test_a_capability_brings_its_calls_back() -> None:
    given = default_filter("x86_64", frozenset({"SYS_ADMIN"}))
    assert [run(given, number, 0x10000000) for number in (165, 272, 435)] == [ALLOWED] * 3
    assert run(given, 250) == EPERM  # keyctl


def test_a_machine_whose_calls_are_unknown_has_no_filter() -> None:
    assert default_filter("riscv64") == b""
