"""The API as one ASGI application: all operations, their access checks, and the documentation pages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from shoal.base.clock import Clock
from shoal.base.metrics import Metrics
from shoal.control.api.access import ApiAccess, ApiCaller, Credentials
from shoal.control.api.answers import public_message
from shoal.control.api.apply import Apply
from shoal.control.api.apps import Apps
from shoal.control.api.bodies import JSON_TYPES, YAML_TYPES, parse_documents
from shoal.control.api.events import Events
from shoal.control.api.health import Health
from shoal.control.api.idempotency import Answers
from shoal.control.api.master_keys import MasterKeyPaths
from shoal.control.api.objects import Objects
from shoal.control.api.operations import Operations
from shoal.control.api.parameters import PATH_TYPES, FleetHeaders
from shoal.control.api.rehearsals import RehearsalPaths
from shoal.control.api.rollouts import RolloutPaths
from shoal.control.api.sessions import PageUrl, SessionPaths
from shoal.control.api.spec_texts import SPEC_TEXTS
from shoal.control.api.tokens import TokenPaths
from shoal.control.api.workspaces import WorkspacePaths
from shoal.control.database.engine import Databases
from shoal.control.database.sessions import Sessions
from shoal.control.database.tokens import ApiTokens, Principal
from shoal.control.domain.access import OPERATORS
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.workspaces import Workspaces
from shoal.control.secrets.sealer import EnvelopeSealer
from shoal.errors import (
    BadRequest,
    Forbidden,
    InternalError,
    Invalid,
    ServiceUnavailable,
    TooLarge,
    Unauthorized,
    UnsupportedMediaType,
)
from shoal.rest.api import RestApi, RestApiDeps, RestMetrics
from shoal.rest.openapi import ApiDescription
from shoal.rest.request import RestRequest
from shoal.rest.streams import RestStreams

_ABOUT = """
Apps over many clusters, as objects: read them, change them, see what runs where.

**Tokens.** Every path below `/api` needs `Authorization: Bearer TOKEN` with the token of a user.

**Errors** have one shape: `{"error": {"code", "message", "details": [{"field", "message"}], "correlation"}}`. Codes are
stable. 503 carries `Retry-After`: the database is unavailable; nothing was changed unless the message says otherwise.

**Concurrency.** An object's ETag is its version. `If-Match` that does not hold is 412. A document that carries
`metadata.version` in a PUT must be of the current version, else 409. Without either the last write wins.

**Bodies** are JSON or YAML (`Content-Type: application/yaml`), up to 1 MiB. Unknown fields are refused (422) with their
paths. Values of secrets go in and never come out.
""".strip()


def make_api(
    fleet: Fleet,
    tokens: ApiTokens,
    databases: Databases,
    *,
    clock: Clock,
    metrics: Metrics,
    urls: Sequence[str],
    ca: Callable[[], str],
    version: str,
    operators: Collection[str] = OPERATORS,
    sealer: EnvelopeSealer | None = None,
    sessions: Sessions | None = None,
    credential: Callable[[RestRequest], str] = RestRequest.bearer,
    page_url: PageUrl = lambda _request: "",
) -> RestApi[Principal, ApiCaller]:
    """``urls`` and ``ca`` are for the join files of agents; ``operators`` must be those of ``fleet``.
    ``end_streams`` must be called before the process stops. Without ``sealer`` master keys cannot be rotated.
    ``credential`` finds the text of a token or of one of the ``sessions`` in a request."""
    counted = RestMetrics(metrics, "control")
    sessions = sessions or Sessions(databases, tokens, clock)
    authenticate = Credentials(tokens, sessions).authenticate
    streams = RestStreams(authenticate, clock, counted.streams, owner="the control plane")
    access = ApiAccess(databases, counted, operators)
    objects = Objects(fleet, Answers(databases, fleet.fingerprints))
    operations = [
        *Operations(fleet, databases, version=version).operations(),
        *Apply(fleet).operations(),
        *objects.operations(),
        *Apps(fleet, objects).operations(),
        *RolloutPaths(fleet, objects, databases, streams).operations(),
        *RehearsalPaths(fleet, clock).operations(),
        *Events(fleet, databases, streams).operations(),
        *MasterKeyPaths(databases, sealer).operations(),
        *WorkspacePaths(Workspaces(databases, tokens, fleet.hosts, operators)).operations(),
        *TokenPaths(fleet, tokens, urls=urls, ca=ca, operators=operators).operations(),
        *SessionPaths(sessions, page_url).operations(),
    ]
    deps = RestApiDeps(
        owner="control", clock=clock, new_id=databases.fleet.ids.new_uid, metrics=counted, streams=streams,
        authenticate=authenticate, admit=access.admit, authorize=access.authorize, credential=credential,
        documents=parse_documents, message_of=public_message,
    )  # fmt: skip
    about = ApiDescription(
        title="Shoal", version=version, text=_ABOUT, path_types=PATH_TYPES, headers=FleetHeaders,
        errors=(Unauthorized, Forbidden, Invalid, InternalError, ServiceUnavailable),
        body_errors=(BadRequest, TooLarge, UnsupportedMediaType), body_types=(JSON_TYPES[0], YAML_TYPES[0]),
        texts=SPEC_TEXTS,
    )  # fmt: skip
    return RestApi(deps, about, operations, Health(databases, metrics).pages())
