"""The program of the pause container."""

from __future__ import annotations

from shoal.node.runtime.docker import pause


def test_the_pause_program_is_an_executable_for_its_machine() -> None:
    for architecture, machine in (("amd64", 62), ("arm64", 183)):
        content = pause.program(architecture)
        assert content is not None and content[:4] == b"\x7fELF"
        assert int.from_bytes(content[18:20], "little") == machine
        entry = int.from_bytes(content[24:32], "little") - 0x400000
        assert content[entry:] and entry == 120
    assert pause.program("mips") is None and pause.archive("mips") is None
