"""The query and path parameters of operations, for both versions of OpenAPI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class OpenApiParameter:
    name: str
    description: str
    type: str = "string"
    place: str = "query"
    choices: tuple[str, ...] = ()


PRETTY: Final = OpenApiParameter("pretty", "If 'true', the response is indented.")
NAMESPACE: Final = OpenApiParameter("namespace", "Namespace the object is in.", place="path")
PATH_REST: Final = OpenApiParameter("path", "Path of the request behind the proxy.", place="path")

_DRY_RUN = OpenApiParameter(
    "dryRun", "With 'All', the request is fully checked and nothing is stored.", choices=("All",)
)
_FIELD_MANAGER = OpenApiParameter(
    "fieldManager",
    "Name under which the changed fields are recorded; at most 128 printable characters. Required for apply.",
)
_FIELD_VALIDATION = OpenApiParameter(
    "fieldValidation",
    "What happens to unknown and duplicate fields: dropped silently (Ignore), dropped with a warning (Warn, the "
    "default), or refused (Strict).",
    choices=("Ignore", "Warn", "Strict"),
)
_FORCE = OpenApiParameter("force", "Take over fields that other managers own. Only for apply.", "boolean")

_LABEL_SELECTOR = OpenApiParameter("labelSelector", "Only objects whose labels match.")
_FIELD_SELECTOR = OpenApiParameter("fieldSelector", "Only objects whose fields match.")
_LIMIT = OpenApiParameter("limit", "Maximum number of objects in the response; 'continue' returns the rest.", "integer")
_CONTINUE = OpenApiParameter("continue", "Token of the previous response, for the next part of a list.")
_RESOURCE_VERSION = OpenApiParameter("resourceVersion", "Revision of the cluster that the response shows.")
_RESOURCE_VERSION_MATCH = OpenApiParameter(
    "resourceVersionMatch",
    "How resourceVersion is applied.",
    choices=("Exact", "NotOlderThan"),
)
_SEND_INITIAL_EVENTS = OpenApiParameter(
    "sendInitialEvents",
    "Start a watch with the existing objects and a bookmark, followed by changes.",
    "boolean",
)
_TIMEOUT_SECONDS = OpenApiParameter("timeoutSeconds", "End the list or watch after this many seconds.", "integer")
_BOOKMARKS = OpenApiParameter("allowWatchBookmarks", "Send bookmarks from time to time during a watch.", "boolean")
_WATCH = OpenApiParameter("watch", "Stream changes instead of returning a list.", "boolean")

_GRACE_PERIOD = OpenApiParameter(
    "gracePeriodSeconds", "Seconds before the object is removed; 0 removes it at once.", "integer"
)
_ORPHAN_DEPENDENTS = OpenApiParameter("orphanDependents", "Old form of propagationPolicy.", "boolean")
_PROPAGATION_POLICY = OpenApiParameter(
    "propagationPolicy",
    "What happens to the dependents of the object.",
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

_CONTAINER = OpenApiParameter("container", "Name of the container; may be omitted if the pod has only one.")
_STDIN = OpenApiParameter("stdin", "Connect standard input.", "boolean")
_STDOUT = OpenApiParameter("stdout", "Connect standard output.", "boolean")
_STDERR = OpenApiParameter("stderr", "Connect standard error.", "boolean")
_TTY = OpenApiParameter("tty", "Give the process a terminal.", "boolean")
_PROXY_PATH = OpenApiParameter("path", "Path of the request behind the proxy.")

# Parameters of subresources that are not objects.
OF_SUBRESOURCE: Final = {
    ("pods", "attach"): (_CONTAINER, _STDERR, _STDIN, _STDOUT, _TTY),
    ("pods", "exec"): (
        OpenApiParameter("command", "Program to run and its arguments, one parameter each."),
        _CONTAINER,
        _STDERR,
        _STDIN,
        _STDOUT,
        _TTY,
    ),
    ("pods", "log"): (
        _CONTAINER,
        OpenApiParameter("follow", "Continue with new lines as they are written.", "boolean"),
        OpenApiParameter("insecureSkipTLSVerifyBackend", "Do not check the certificate of the node.", "boolean"),
        OpenApiParameter("limitBytes", "Maximum number of bytes.", "integer"),
        OpenApiParameter("previous", "The log of the previous instance of the container.", "boolean"),
        OpenApiParameter("sinceSeconds", "Only lines that are at most this many seconds old.", "integer"),
        OpenApiParameter("sinceTime", "Only lines after this time."),
        OpenApiParameter("stream", "Stream to return.", choices=("All", "Stdout", "Stderr")),
        OpenApiParameter("tailLines", "Number of lines to return, counted from the end.", "integer"),
        OpenApiParameter("timestamps", "Start each line with its time.", "boolean"),
    ),
    ("pods", "portforward"): (OpenApiParameter("ports", "Port to connect to.", "integer"),),
    ("pods", "proxy"): (_PROXY_PATH,),
    ("nodes", "proxy"): (_PROXY_PATH,),
    ("services", "proxy"): (_PROXY_PATH,),
}


def name_of(kind: str) -> OpenApiParameter:
    return OpenApiParameter("name", f"Name of the {kind}.", place="path")
