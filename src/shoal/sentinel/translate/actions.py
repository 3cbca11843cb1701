"""The actions of routes: where a request goes, how long it may take, how often it is retried."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envoy.config.route.v3 import route_components_pb2 as route_pb2
from envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2
from envoy.extensions.retry.priority.previous_priorities.v3 import previous_priorities_config_pb2
from envoy.type.matcher.v3 import regex_pb2
from google.protobuf import wrappers_pb2

from shoal.crds.sentinel import Backend, Mirror, Redirect, RouteSpec, Sticky
from shoal.sentinel.headers import ERROR_HEADER, TARGET_HEADER
from shoal.sentinel.translate import envoy
from shoal.sentinel.translate.match import normal_path

ALWAYS = "connect-failure,refused-stream,reset-before-request"
"""For all requests: retry when the request certainly reached no instance."""
IF_IDEMPOTENT = "5xx"  # also resets, refused connections and late answers
_CODES = {
    301: route_pb2.RedirectAction.RedirectResponseCode.MOVED_PERMANENTLY,
    302: route_pb2.RedirectAction.RedirectResponseCode.FOUND,
    303: route_pb2.RedirectAction.RedirectResponseCode.SEE_OTHER,
    307: route_pb2.RedirectAction.RedirectResponseCode.TEMPORARY_REDIRECT,
    308: route_pb2.RedirectAction.RedirectResponseCode.PERMANENT_REDIRECT,
}
NO_INSTANCE = "no_instance"
_CHOICES = 10  # attempts to pick an instance that was not tried: a dead one is least busy and is picked repeatedly


def forward(
    spec: RouteSpec,
    *,
    idempotent: bool,
    chosen: str,
    peers: bool,
    brief: bool = False,
    mirrors: Sequence[Mirror] = (),
    local_copies: bool = False,
) -> route_pb2.RouteAction:
    """Forward to an instance. ``chosen``: the specifier that reads the deployment from the request; empty: by weights.
    ``brief``: for requests of the kind that ``is_brief`` describes. ``mirrors`` get copies besides the route's own.
    ``local_copies``: to instances of this region only, because a copy names the deployment of its request, and a peer
    would send it there."""
    made = route_pb2.RouteAction(
        timeout=envoy.duration(spec.timeouts.total),
        idle_timeout=envoy.duration(0 if brief else spec.timeouts.idle),
        retry_policy=_retries(spec, idempotent=idempotent, peers=peers),
        cluster_not_found_response_code=route_pb2.RouteAction.ClusterNotFoundResponseCode.NOT_FOUND,
    )
    if chosen:
        made.cluster_specifier_plugin = chosen
    else:
        _choose(made, spec.backends, sticky=spec.sticky is not None, peers=peers)
    if spec.sticky is not None:
        made.hash_policy.append(_hash(spec.sticky))
    for mirror in (*([spec.mirror] if spec.mirror is not None else ()), *mirrors):
        if mirror.deployment:
            cluster = (envoy.local_cluster if local_copies else envoy.deployment_cluster)(mirror.deployment)
            made.request_mirror_policies.add(cluster=cluster, runtime_fraction=envoy.fraction(mirror.percent))
    _rewrite(made, spec)
    return made


def is_brief(spec: RouteSpec) -> bool:
    """Whether a request without a body reaches its total timeout before it could reach its idle timeout. Then it needs
    no idle timer, which Envoy resets at every step. This does not end a GET that announces no body but sends one
    without an end; that ends with its connection, which TCP keep-alive probes."""
    return 0 < spec.timeouts.total <= spec.timeouts.idle


def _choose(made: route_pb2.RouteAction, backends: Sequence[Backend], *, sticky: bool, peers: bool) -> None:
    name = envoy.sticky_cluster if sticky else envoy.deployment_cluster
    sharing = [backend for backend in backends if backend.weight > 0]
    if len(sharing) < 2:
        made.cluster = name(sharing[0].deployment) if sharing else envoy.EMPTY_CLUSTER
        return
    made.weighted_clusters.clusters.extend(
        route_pb2.WeightedCluster.ClusterWeight(
            name=name(backend.deployment),
            weight=wrappers_pb2.UInt32Value(value=backend.weight),
            request_headers_to_add=[target_header(backend.deployment)] if peers else (),
        )
        for backend in sharing
    )
    if sticky:
        made.weighted_clusters.use_hash_policy.value = True


def target_header(deployment: str) -> object:
    """Tells peers which deployment was chosen; replaces what a client sent under that name."""
    return envoy.set_header(TARGET_HEADER, envoy.literal(deployment))


def only_target(spec: RouteSpec) -> str:
    """The deployment that all requests go to; empty if there are several or none."""
    sharing = [backend.deployment for backend in spec.backends if backend.weight > 0]
    return sharing[0] if len(sharing) == 1 else ""


def _retries(spec: RouteSpec, *, idempotent: bool, peers: bool) -> route_pb2.RetryPolicy:
    made = route_pb2.RetryPolicy(
        retry_on=IF_IDEMPOTENT if idempotent else ALWAYS,
        num_retries=wrappers_pb2.UInt32Value(value=spec.retries),
        host_selection_retry_max_attempts=_CHOICES,
    )
    made.retry_host_predicate.add(
        name="envoy.retry_host_predicates.previous_hosts",
        typed_config=envoy.packed(previous_hosts_pb2.PreviousHostsPredicate()),
    )
    if peers:  # two tries here, then the next region
        made.retry_priority.name = "envoy.retry_priorities.previous_priorities"
        made.retry_priority.typed_config.CopyFrom(
            envoy.packed(previous_priorities_config_pb2.PreviousPrioritiesConfig(update_frequency=2))
        )
        if not idempotent:  # a peer without an instance has not forwarded it; idempotent ones are retried anyway
            made.retry_on += ",retriable-headers"
            made.retriable_headers.add(name=ERROR_HEADER, string_match=envoy.exactly(NO_INSTANCE))
    if spec.timeouts.header:
        made.per_try_timeout.CopyFrom(envoy.duration(spec.timeouts.header))
    return made


def _hash(sticky: Sticky) -> route_pb2.RouteAction.HashPolicy:
    if sticky.header:
        return route_pb2.RouteAction.HashPolicy(
            header=route_pb2.RouteAction.HashPolicy.Header(header_name=sticky.header.lower())
        )
    return route_pb2.RouteAction.HashPolicy(
        cookie=route_pb2.RouteAction.HashPolicy.Cookie(name=sticky.cookie, ttl=envoy.duration(sticky.ttl), path="/")
    )


def _rewrite(made: route_pb2.RouteAction, spec: RouteSpec) -> None:
    rewrite = spec.rewrite
    if rewrite is None:
        return
    if rewrite.prefix:
        _new_prefix(made, spec.path, rewrite.prefix)
    if rewrite.host:
        made.host_rewrite_literal = rewrite.host
        made.append_x_forwarded_host = True


def _new_prefix(made: route_pb2.RouteAction | route_pb2.RedirectAction, old: str, new: str) -> None:
    """Replace whole segments: the rest of the path begins with a slash or is empty."""
    old, new = normal_path(old), normal_path(new)
    if old != "/" and new != "/":
        made.prefix_rewrite = new
        return
    pattern = "^/" if old == "/" else f"^{re.escape(old)}/?"
    with_slash = new if new == "/" else f"{new}/"
    made.regex_rewrite.CopyFrom(
        regex_pb2.RegexMatchAndSubstitute(pattern=envoy.regex(pattern), substitution=with_slash.replace("\\", "\\\\"))
    )


def redirect(spec: RouteSpec, given: Redirect) -> route_pb2.RedirectAction:
    made = route_pb2.RedirectAction(response_code=_CODES.get(given.code, _CODES[302]))
    if given.scheme:
        made.scheme_redirect = given.scheme
    if given.host:
        made.host_redirect = given.host
    if given.path:
        made.path_redirect = given.path
    elif given.prefix:
        _new_prefix(made, spec.path, given.prefix)
    return made
