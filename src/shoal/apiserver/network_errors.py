"""Failures of connections in the words of Go's network library, which users of Kubernetes know from its API server."""

from __future__ import annotations

import socket
import ssl

from shoal.base.http1.errors import Disconnected, InvalidAnswer, Unreachable

_UNKNOWN_ISSUER = frozenset({2, 18, 19, 20, 21, 27})  # OpenSSL's codes for chains without a trusted root
_OUT_OF_DATE = frozenset({9, 10})
_WRONG_NAME = frozenset({62, 64})


def dial_failure(error: Unreachable, host: str, port: int, server_name: str) -> str:
    """The reason for a failed connection."""
    cause = error.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"tls: failed to verify certificate: x509: {_untrusted(cause, server_name)}"
    if isinstance(cause, ssl.SSLError):
        text = (cause.reason or str(cause)).lower().replace("_", " ")
        return f"remote error: tls: {text}" if "alert" in text else f"tls: {text}"
    if isinstance(cause, socket.gaierror):
        return f"dial tcp: lookup {host}: no such host"
    shown = f"[{host}]" if ":" in host else host
    if isinstance(cause, OSError):
        return _system_error(f"dial tcp {shown}:{port}: connect", cause)
    return f"dial tcp {shown}:{port}: {error}"


def answer_failure(error: Disconnected) -> str:
    """The reason for an incomplete response."""
    if isinstance(error, InvalidAnswer):
        return f"net/http: HTTP/1.x transport connection broken: malformed HTTP response: {error}"
    if isinstance(error.__cause__, OSError):
        return _system_error("read tcp", error.__cause__)
    return "unexpected EOF" if error.head_arrived else "EOF"


def _untrusted(error: ssl.SSLCertVerificationError, name: str) -> str:
    if error.verify_code in _UNKNOWN_ISSUER:
        return "certificate signed by unknown authority"
    if error.verify_code in _WRONG_NAME:
        return f"certificate is not valid for {name}"
    if error.verify_code in _OUT_OF_DATE:
        return "certificate has expired or is not yet valid"
    return error.verify_message


def _system_error(what: str, error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return f"{what}: connection refused"
    if isinstance(error, ConnectionResetError):
        return f"{what}: connection reset by peer"
    return f"{what}: {(error.strerror or str(error)).lower()}"
