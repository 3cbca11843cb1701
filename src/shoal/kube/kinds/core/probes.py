"""Probes and lifecycle hooks of containers."""

from __future__ import annotations

from shoal.errors import forbidden, invalid, not_supported, required
from shoal.kube.kinds.checks import NEGATIVE, Errors, check_enum, check_port_or_name
from shoal.kube.names import is_http_header_name
from shoal.kube.objects import Obj

_SCHEMES = frozenset({"HTTP", "HTTPS"})
_HTTP_PROTOCOLS = frozenset({"HTTP1", "HTTP2"})
_GRPC_MODES = frozenset({"Plaintext", "TLS"})
_PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_WINDOWS_SIGNALS = frozenset({"SIGKILL", "SIGTERM"})
_LINUX_SIGNALS = frozenset({
    "SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP", "SIGILL", "SIGINT", "SIGIO",
    "SIGIOT", "SIGKILL", "SIGPIPE", "SIGPOLL", "SIGPROF", "SIGPWR", "SIGQUIT", "SIGSEGV", "SIGSTKFLT", "SIGSTOP",
    "SIGSYS", "SIGTERM", "SIGTRAP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1", "SIGUSR2", "SIGVTALRM",
    "SIGWINCH", "SIGXCPU", "SIGXFSZ", "SIGRTMIN", "SIGRTMAX",
    *(f"SIGRTMIN+{n}" for n in range(1, 16)), *(f"SIGRTMAX-{n}" for n in range(1, 15)),
})  # fmt: skip


def check_probes(container: Obj, grace_s: int | None, path: str, errors: Errors) -> None:
    """The three probes of a container."""
    probe = container.get("livenessProbe")
    if probe is not None:
        _check_probe(probe, grace_s, f"{path}.livenessProbe", errors)
        _check_success_once(probe, f"{path}.livenessProbe", errors)
    probe = container.get("readinessProbe")
    if probe is not None:
        _check_probe(probe, grace_s, f"{path}.readinessProbe", errors)
        grace = probe.get("terminationGracePeriodSeconds")
        if grace is not None:
            where = f"{path}.readinessProbe.terminationGracePeriodSeconds"
            errors.append(invalid(where, grace, "must not be set for readinessProbes"))
    probe = container.get("startupProbe")
    if probe is not None:
        _check_probe(probe, grace_s, f"{path}.startupProbe", errors)
        _check_success_once(probe, f"{path}.startupProbe", errors)


def _check_success_once(probe: Obj, path: str, errors: Errors) -> None:
    threshold = probe.get("successThreshold", 0)
    if threshold != 1:
        errors.append(invalid(f"{path}.successThreshold", threshold, "must be 1"))


def _check_probe(probe: Obj, grace_s: int | None, path: str, errors: Errors) -> None:
    _check_handler(probe, _PROBE_HANDLERS, grace_s, path, errors)
    get = probe.get
    for field in _COUNTS:
        value = get(field)
        if value is not None and value < 0:
            errors.append(invalid(f"{path}.{field}", value, NEGATIVE))
    grace = get("terminationGracePeriodSeconds")
    if grace is not None and grace <= 0:
        errors.append(invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0"))


def _check_handler(owner: Obj, kinds: tuple[str, ...], grace_s: int | None, path: str, errors: Errors) -> None:
    """A probe or hook must have exactly one handler."""
    found = False
    for kind in kinds:
        handler = owner.get(kind)
        if handler is None:
            continue
        if found:
            errors.append(forbidden(f"{path}.{kind}", "may not specify more than 1 handler type"))
            continue
        found = True
        if kind == "httpGet":
            _check_http_get(handler, f"{path}.httpGet", errors)
        elif kind == "exec":
            if not handler.get("command"):
                errors.append(required(f"{path}.exec.command"))
        elif kind == "sleep":
            _check_sleep(handler, grace_s, f"{path}.sleep", errors)
        else:
            check_port_or_name(handler.get("port", 0), f"{path}.{kind}.port", errors)
            if kind == "grpc" and handler.get("mode") is not None:
                check_enum(handler["mode"], _GRPC_MODES, f"{path}.grpc.mode", errors)
    if not found:
        errors.append(required(path, "must specify a handler type"))


def _check_http_get(http: Obj, path: str, errors: Errors) -> None:
    if not http.get("path"):
        errors.append(required(f"{path}.path"))
    check_port_or_name(http.get("port", 0), f"{path}.port", errors)
    scheme = http.get("scheme", "")
    if scheme not in _SCHEMES:
        errors.append(not_supported(f"{path}.scheme", scheme, _SCHEMES))
    for header in http.get("httpHeaders") or ():
        for text in is_http_header_name(header.get("name", "")):
            errors.append(invalid(f"{path}.httpHeaders", header.get("name", ""), text))
    protocol = http.get("protocol")
    if protocol is not None:
        _check_http_protocol(protocol, http, path, errors)


def _check_http_protocol(protocol: str, http: Obj, path: str, errors: Errors) -> None:
    if protocol not in _HTTP_PROTOCOLS:
        errors.append(not_supported(f"{path}.protocol", protocol, _HTTP_PROTOCOLS))
    elif protocol == "HTTP2" and http.get("scheme") != "HTTP":
        errors.append(invalid(f"{path}.protocol", protocol, "is only supported with HTTP (H2C)"))
    elif protocol == "HTTP2" and http.get("host"):
        errors.append(invalid(f"{path}.host", http["host"], 'must be empty when `protocol` is "HTTP2"'))


def _check_sleep(sleep: Obj, grace_s: int | None, path: str, errors: Errors) -> None:
    seconds = sleep.get("seconds", 0)
    if grace_s is not None and not 0 <= seconds <= grace_s:
        detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_s})"
        errors.append(invalid(path, seconds, detail))


def check_lifecycle(lifecycle: Obj, grace_s: int | None, os_name: str | None, path: str, errors: Errors) -> None:
    """The hooks after start and before stop of a container, and the signal that stops it."""
    for hook in ("postStart", "preStop"):
        handler = lifecycle.get(hook)
        if handler is not None:
            _check_handler(handler, _HOOK_HANDLERS, grace_s, f"{path}.{hook}", errors)
    signal = lifecycle.get("stopSignal")
    if signal is None:
        return
    if os_name is None:
        errors.append(forbidden(f"{path}.stopSignal", "may not be set for containers with empty `spec.os.name`"))
    elif os_name == "windows":
        check_enum(signal, _WINDOWS_SIGNALS, f"{path}.stopSignal", errors)
    elif os_name == "linux":
        check_enum(signal, _LINUX_SIGNALS, f"{path}.stopSignal", errors)
