"""The state of the runtime on disk, from which a later run restores it.

sandboxes/<id>            a ``KeptSandbox``
containers/<id>/kept      a ``KeptContainer``, as created
containers/<id>/config    the configuration of its shim
containers/<id>/state     the processes of the container, written by the shim
containers/<id>/exit      how the container exited
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from shoal.base.files import write_private
from shoal.node.runtime.model import Container, ContainerPhase, ExitReason, Sandbox, SandboxSpec
from shoal.node.runtime.process.shim import processes

_LOST = 137


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSandbox:
    """A sandbox and its spec. It is no longer ready after a reboot of the machine."""

    sandbox: Sandbox
    spec: SandboxSpec
    boot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptContainer:
    """A container as created, with what ``stop`` and ``attach`` need."""

    container: Container
    stop_signal: str = ""
    tty: bool = False
    stdin: bool = False


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Identifies a process uniquely: pids are reused, a pid with start time and boot id is not."""

    pid: int
    start: int
    boot: str

    @property
    def alive(self) -> bool:
        return self.start > 0 and processes.boot_id() == self.boot and processes.start_time(self.pid) == self.start

    def __str__(self) -> str:
        return f"{self.pid}/{self.start}/{self.boot}"


def write(path: Path, data: bytes) -> None:
    """Replace a file atomically. No process that it describes outlives a power failure."""
    write_private(path, data, durable=False)


def save_sandbox(folder: Path, kept: KeptSandbox) -> None:
    write(folder / kept.sandbox.id, msgspec.json.encode(kept))


def load_sandboxes(folder: Path) -> list[KeptSandbox]:
    found = []
    for path in sorted(folder.iterdir()):
        if not path.name.startswith("."):  # those are being written
            found.append(msgspec.json.decode(path.read_bytes(), type=KeptSandbox))
    return found


def save_container(folder: Path, kept: KeptContainer) -> None:
    write(folder / "kept", msgspec.json.encode(kept))


def load_container(folder: Path) -> KeptContainer | None:
    """None if its creation was not completed."""
    try:
        return msgspec.json.decode((folder / "kept").read_bytes(), type=KeptContainer)
    except FileNotFoundError:
        return None


def facts(path: Path) -> dict[str, str]:
    """The content of a file written by a shim, one fact per line; empty if it does not exist."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return {}
    return {name: value for name, _, value in (line.partition(" ") for line in lines)}


def write_exit(folder: Path, *, code: int, reason: ExitReason, at: float, message: str = "") -> None:
    """Record the exit of a container that has no shim."""
    text = f"code {code}\nsignal {max(0, code - 128)}\nreason {reason.value}\nat {at}\nmessage {message}\n"
    write(folder / "exit", text.encode())


def shim_of(folder: Path) -> ProcessIdentity | None:
    state = facts(folder / "state")
    return ProcessIdentity(int(state["shim"]), int(state["shim_start"]), state["boot"]) if state else None


def inherited_bytes(folder: Path) -> int:
    """Memory that the container's program has from the process that forked it, and shares with others."""
    return int(facts(folder / "state").get("inherited", 0))


def main_of(folder: Path) -> ProcessIdentity | None:
    state = facts(folder / "state")
    return ProcessIdentity(int(state["pid"]), int(state["start"]), state["boot"]) if state else None


def being_started(folder: Path) -> bool:
    """Whether a shim is starting the container at the moment."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return not (folder / "state").exists() and not (folder / "exit").exists()
    finally:
        os.close(lock)
    return False


def as_it_is(folder: Path, made: Container, now: float) -> Container:
    """The container's current state, from disk. If its shim ended without recording an exit, the reason is UNKNOWN."""
    state = facts(folder / "state")
    started_at = float(state["at"]) if state else None
    shim = shim_of(folder)
    if shim is not None and shim.alive:  # a shim records the exit before it ends
        return replace(made, phase=ContainerPhase.RUNNING, started_at=started_at, identity=str(main_of(folder)))
    ended = facts(folder / "exit")
    if shim is None and not ended:
        return made
    if not ended:
        message = "the container's shim was killed, or the machine was restarted"
        write_exit(folder, code=_LOST, reason=ExitReason.UNKNOWN, at=now, message=message)
        ended = facts(folder / "exit")
    return replace(
        made,
        phase=ContainerPhase.EXITED,
        started_at=started_at,
        finished_at=float(ended["at"]),
        exit_code=int(ended["code"]),
        signal=int(ended["signal"]),
        reason=ExitReason(ended["reason"]),
        message=ended["message"],
    )
