"""The query and path parameters that operations have, described once for both versions of OpenAPI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    description: str
    type: str = "string"
    place: str = "query"
    choices: tuple[str, ...] = ()


PRETTY: Final = Parameter("pretty", "If 'true', the answer is indented for people to read.")
NAMESPACE: Final = Parameter("namespace", "Namespace the object is in.", place="path")
PATH_REST: Final = Parameter("path", "Path to ask for behind the proxy.", place="path")

_DRY_RUN = Parameter("dryRun", "With 'All' the request is checked in full but nothing is stored.", choices=("All",))
_FIELD_MANAGER = Parameter(
    "fieldManager",
    "Name under which the changed fields are recorded; at most 128 printable characters. Required for apply.",
)
_FIELD_VALIDATION = Parameter(
    "fieldValidation",
    "What becomes of unknown and duplicate fields: dropped silently (Ignore), dropped with a warning (Warn, the "
    "default), or refused (Strict).",
    choices=("Ignore", "Warn", "Strict"),
)
_FORCE = Parameter("force", "Take over fields that other managers own. Only for apply.", "boolean")

_LABEL_SELECTOR = Parameter("labelSelector", "Only objects whose labels match.")
_FIELD_SELECTOR = Parameter("fieldSelector", "Only objects whose fields match.")
_LIMIT = Parameter("limit", "At most so many objects in one answer; the rest follows with 'continue'.", "integer")
_CONTINUE = Parameter("continue", "Token from the previous answer, to get the next part of a list.")
_RESOURCE_VERSION = Parameter("resourceVersion", "State of the cluster that the answer is about.")
_RESOURCE_VERSION_MATCH = Parameter(
    "resourceVersionMatch",
    "How resourceVersion is meant.",
    choices=("Exact", "NotOlderThan"),
)
_SEND_INITIAL_EVENTS = Parameter(
    "sendInitialEvents",
    "Begin a watch with the objects there are, then a bookmark, then changes.",
    "boolean",
)
_TIMEOUT_SECONDS = Parameter("timeoutSeconds", "End the list or watch after so many seconds.", "integer")
_BOOKMARKS = Parameter("allowWatchBookmarks", "Send bookmarks from time to time during a watch.", "boolean")
_WATCH = Parameter("watch", "Stream the changes instead of answering with a list.", "boolean")

_GRACE_PERIOD = Parameter(
    "gracePeriodSeconds", "Seconds the object has to end by itself; 0 removes it at once.", "integer"
)
_ORPHAN_DEPENDENTS = Parameter("orphanDependents", "Old form of propagationPolicy.", "boolean")
_PROPAGATION_POLICY = Parameter(
    "propagationPolicy",
    "What becomes of objects that this one owns.",
    choices=("Orphan", "Background", "Foreground"),
)

CREATE: Final = (_DRY_RUN, _FIELD_MANAGER, _FIELD_VALIDATION)
UPDATE: Final = CREATE
PATCH: Final = (*CREATE, _FORCE)
LIST: Final = (
    _BOOKMARKS,
    _CONTINUE,
    _FIELD_SELECTOR,
    _LABEL_SELECTOR,
    _LIMIT,
    _RESOURCE_VERSION,
    _RESOURCE_VERSION_MATCH,
    _SEND_INITIAL_EVENTS,
    _TIMEOUT_SECONDS,
    _WATCH,
)
DELETE: Final = (_DRY_RUN, _GRACE_PERIOD, _ORPHAN_DEPENDENTS, _PROPAGATION_POLICY)
DELETE_COLLECTION: Final = (
    _CONTINUE,
    _FIELD_SELECTOR,
    _LABEL_SELECTOR,
    _LIMIT,
    _RESOURCE_VERSION,
    _RESOURCE_VERSION_MATCH,
    _TIMEOUT_SECONDS,
    *DELETE,
)

_CONTAINER = Parameter("container", "Container meant; may be left out if the pod has only one.")
_STDIN = Parameter("stdin", "Connect standard input.", "boolean")
_STDOUT = Parameter("stdout", "Connect standard output.", "boolean")
_STDERR = Parameter("stderr", "Connect standard error.", "boolean")
_TTY = Parameter("tty", "Give the process a terminal.", "boolean")
_PROXY_PATH = Parameter("path", "Path to ask for behind the proxy.")

# Parameters of subresources that are not objects.
OF_SUBRESOURCE: Final = {
    ("pods", "attach"): (_CONTAINER, _STDERR, _STDIN, _STDOUT, _TTY),
    ("pods", "exec"): (
        Parameter("command", "Program to run and its arguments, one parameter for each."),
        _CONTAINER,
        _STDERR,
        _STDIN,
        _STDOUT,
        _TTY,
    ),
    ("pods", "log"): (
        _CONTAINER,
        Parameter("follow", "Go on with new lines as they come.", "boolean"),
        Parameter("insecureSkipTLSVerifyBackend", "Do not check the certificate of the node.", "boolean"),
        Parameter("limitBytes", "At most so many bytes.", "integer"),
        Parameter("previous", "Lines of the container's previous run.", "boolean"),
        Parameter("sinceSeconds", "Only lines from the last so many seconds.", "integer"),
        Parameter("sinceTime", "Only lines after this time."),
        Parameter("stream", "Which stream.", choices=("All", "Stdout", "Stderr")),
        Parameter("tailLines", "Only so many of the last lines.", "integer"),
        Parameter("timestamps", "Begin each line with its time.", "boolean"),
    ),
    ("pods", "portforward"): (Parameter("ports", "Port to connect to.", "integer"),),
    ("pods", "proxy"): (_PROXY_PATH,),
    ("nodes", "proxy"): (_PROXY_PATH,),
    ("services", "proxy"): (_PROXY_PATH,),
}


def name_of(kind: str) -> Parameter:
    return Parameter("name", f"Name of the {kind}.", place="path")
