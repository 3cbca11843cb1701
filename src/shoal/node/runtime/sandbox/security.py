"""What a container's program may do: capabilities, new privileges, and the filter of system calls; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shoal.node.runtime.model import CreateFailure, Security
from shoal.node.runtime.sandbox.seccomp import default_filter

# The kernel's, in the order of their numbers
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
    "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
    "CHECKPOINT_RESTORE",
)  # fmt: skip
# Those that containers have without asking, as with other runtimes
USUAL = frozenset({
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW",
    "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
})  # fmt: skip
_ALL = "ALL"


@dataclass(frozen=True, slots=True)
class Rights:
    """For the helper. ``capabilities`` None: all."""

    capabilities: list[int] | None
    no_new_privileges: bool
    filter: bytes


def rights_of(security: Security, machine: str) -> Rights:
    """Raises ``CreateFailure`` for an unknown capability or profile."""
    if security.privileged:
        return Rights(None, False, b"")
    held = capabilities_of(security)
    profile = security.seccomp_profile or "RuntimeDefault"
    if profile not in ("RuntimeDefault", "Unconfined"):
        raise CreateFailure(
            f"seccompProfile {profile!r} is not available in sandboxes: use RuntimeDefault or Unconfined"
        )
    calls = default_filter(machine, held) if profile == "RuntimeDefault" else b""
    numbers = sorted(CAPABILITIES.index(name) for name in held)
    return Rights(numbers, security.allow_privilege_escalation is False, calls)


def capabilities_of(security: Security) -> frozenset[str]:
    """Dropping comes before adding, where one of them says ALL; a named one that is both added and dropped is held."""
    added, dropped = _names(security.added_capabilities), _names(security.dropped_capabilities)
    held = frozenset(CAPABILITIES) if _ALL in added else USUAL
    held = frozenset() if _ALL in dropped else held - dropped
    return held | (added - {_ALL})


def _names(given: Iterable[str]) -> frozenset[str]:
    names = frozenset(name.upper().removeprefix("CAP_") for name in given)
    unknown = sorted(names - {_ALL} - set(CAPABILITIES))
    if unknown:
        raise CreateFailure(f"unknown capability {unknown[0]!r}: the kernel has {', '.join(CAPABILITIES[:3])} and more")
    return names
