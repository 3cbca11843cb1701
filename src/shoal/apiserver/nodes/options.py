"""Options of logs and streams: from the query to an options object and to the kubelet's parameters. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, urlencode

from shoal.apiserver.negotiate import Query, flag, integer
from shoal.errors import BadRequest, FieldError, Invalid, forbidden, invalid, not_supported
from shoal.kube.objects import Obj
from shoal.kube.times import parse_epoch

Parameters = list[tuple[str, str]]

_STREAMS: Final = ("All", "Stdout", "Stderr")
_NEGATIVE = "must be greater than or equal to 0"
_NOT_POSITIVE = "must be greater than 0"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """A request for a log; ``parameters`` is the query for the kubelet."""

    container: str
    insecure: bool  # do not verify the kubelet's certificate
    parameters: Parameters


def log_options(asked: Query, name: str) -> LogOptions:
    """Parse the query; raise BadRequest or Invalid."""
    parameters: Parameters = [(key, "true") for key in ("follow", "previous", "timestamps") if flag(asked, key)]
    numbers = {key: integer(asked, key) for key in ("sinceSeconds", "tailLines", "limitBytes")}
    since, stream = asked.get("sinceTime", ""), asked.get("stream", "")
    if since:
        try:
            parse_epoch(since)
        except ValueError as error:
            raise BadRequest(f"invalid value for query parameter sinceTime: {error}") from None
    errors = list(_log_errors(numbers, since, stream))
    if errors:
        raise Invalid.of("PodLogOptions", "", name, errors)
    parameters += [(key, str(number)) for key, number in numbers.items() if number is not None]
    parameters += [(key, text) for key, text in (("sinceTime", since), ("stream", stream)) if text]
    return LogOptions(asked.get("container", ""), flag(asked, "insecureSkipTLSVerifyBackend"), sorted(parameters))


def _log_errors(numbers: dict[str, int | None], since: str, stream: str) -> list[FieldError]:
    errors = []
    tail, limit, seconds = numbers["tailLines"], numbers["limitBytes"], numbers["sinceSeconds"]
    if tail is not None and tail < 0:
        errors.append(invalid("tailLines", tail, _NEGATIVE))
    if limit is not None and limit < 1:
        errors.append(invalid("limitBytes", limit, _NOT_POSITIVE))
    if seconds is not None and since:
        errors.append(forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    elif seconds is not None and seconds < 1:
        errors.append(invalid("sinceSeconds", seconds, _NOT_POSITIVE))
    if stream and stream not in _STREAMS:
        errors.append(not_supported("stream", stream, _STREAMS))
    elif stream not in ("", "All") and tail is not None:
        errors.append(forbidden("", "`tailLines` and specific `stream` are mutually exclusive for now"))
    return errors


_SWITCHES: Final = (("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty"))


def connect_options(kind: str, asked: Query, query: str, tail: str) -> Obj:
    """The options object of a connection, for admission: PodExecOptions, PodProxyOptions and so on."""
    made: Obj = {"kind": kind, "apiVersion": "v1"}
    if kind in ("PodExecOptions", "PodAttachOptions"):
        made |= {name: True for name, _ in _SWITCHES if flag(asked, name)}
        if container := asked.get("container"):
            made["container"] = container
        if kind == "PodExecOptions":
            made["command"] = parse_qs(query, keep_blank_values=True).get("command", [])
    elif kind == "PodPortForwardOptions":
        if ports := _ports(query):
            made["ports"] = ports
    elif tail:
        made["path"] = tail
    return made


def _ports(query: str) -> list[int]:
    ports = []
    for text in parse_qs(query).get("ports", []):
        for part in text.split(","):
            if not (part.isascii() and part.isdigit() and len(part) < 10):
                raise BadRequest(f'invalid value for query parameter ports: "{part[:100]}" is not a number')
            ports.append(int(part))
    return ports


def kubelet_parameters(options: Obj) -> str:
    """The query under which the kubelet knows a connection's options."""
    parameters: Parameters = [(theirs, "1") for ours, theirs in _SWITCHES if options.get(ours)]
    parameters += [("command", each) for each in options.get("command") or ()]
    if ports := options.get("ports"):
        parameters.append(("port", ",".join(map(str, ports))))
    return urlencode(parameters)
