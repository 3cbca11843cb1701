"""The API as one ASGI application: its operations, authentication and permissions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from shoal import __version__
from shoal.base.clock import Clock
from shoal.base.ids import Ids
from shoal.base.metrics import PROCESS, Metrics
from shoal.errors import Forbidden, InternalError, Invalid, Unauthorized
from shoal.navigator.answers.api.analysis import Analysis
from shoal.navigator.answers.api.edges import EdgeOperations
from shoal.navigator.answers.api.live import Live
from shoal.navigator.answers.api.sources import Caller, Sources
from shoal.navigator.answers.api.state import State
from shoal.navigator.answers.api.watching import Watching
from shoal.navigator.answers.checks import CheckStore, MemoryChecks
from shoal.navigator.change_signal import ChangeSignal
from shoal.navigator.view import ClusterAdmin, EdgeAdmin, Edges, Fleet, History, View
from shoal.rest.api import RestApi, RestApiDeps, RestMetrics
from shoal.rest.openapi import ApiDescription
from shoal.rest.operations import RestCall
from shoal.rest.request import RestRequest
from shoal.rest.streams import RestStreams

_MAX_BODY_BYTES = 64 << 10
_ABOUT = """
All clusters in one view: query objects, services, workloads, the mesh, and their history.

**Tokens.** Every path below `/api` needs `Authorization: Bearer TOKEN`. A token may be limited to clusters, namespaces
and workspaces; then everything else does not exist for it.

**Time travel.** Where `at` is taken, the answer is as of that moment.

**Errors** have one shape, with a stable `code`; those of a query show the place with a caret.
"""


Authenticate = Callable[[str], Awaitable[Caller | None]]
"""Return the owner of a bearer token; None if it is unknown."""


def make_api(
    view: Callable[[], View],
    history: History,
    edges: Edges,
    fleet: Fleet,
    *,
    authenticate: Authenticate,
    clock: Clock,
    changes: ChangeSignal,
    admin: ClusterAdmin,
    options: EdgeAdmin,
    checks: CheckStore | None = None,
    metrics: Metrics = PROCESS,
    new_id: Callable[[], str] | None = None,
    version: str = __version__,
    goes_on: Authenticate | None = None,
) -> RestApi[Caller, Caller]:
    """``view`` gives the state now, and ``changes`` tells when it may have changed. ``checks`` is where saved checks
    are kept; in memory by default. ``goes_on`` tells whether a stream that was begun with a token goes on.
    ``end_streams`` must be called before the process stops."""
    counted = RestMetrics(metrics, "navigator")
    streams = RestStreams(goes_on or authenticate, clock, counted.streams, owner="the navigator")
    saved = MemoryChecks() if checks is None else checks
    everything = Sources(view, history, edges, fleet, saved, clock, changes, admin, options)

    def sources(call: RestCall[Caller]) -> Sources:
        return everything.limited(call.caller.access)

    state, analysis = State(sources), Analysis(sources)
    operations = [
        *state.operations(),
        *Live(sources, streams).operations(),
        *analysis.operations(),
        *EdgeOperations(sources).operations(),
        *Watching(changes, clock, state, analysis, streams).operations(),
    ]
    deps = RestApiDeps(
        owner="navigator", clock=clock, new_id=new_id or Ids().new_uid, metrics=counted, streams=streams,
        authenticate=authenticate, admit=_admit, authorize=_authorize, max_body_bytes=_MAX_BODY_BYTES,
    )  # fmt: skip
    about = ApiDescription(
        title="Shoal navigator", version=version, text=_ABOUT, errors=(Unauthorized, Invalid, InternalError)
    )
    return RestApi(deps, about, operations)


async def _admit(request: RestRequest, caller: Caller) -> Caller:
    return caller


def _authorize(caller: Caller, needs: str) -> None:
    if needs == "write" and not caller.may_write:
        raise Forbidden(f"{caller.name!r} may read, but not change anything")
