"""Inputs of translations as hypothesis draws them: anything that objects of the cluster could say, sense or nonsense."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from shoal.sentinel.model import Inputs, InstanceEndpoint, PeerGateway, ServiceEndpoints, ServiceKey, Settings
from shoal.sentinel.translate.reading import policy_of, route_of

PEM = """-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEEVs/o5+uQbTjL3chynL4wXgUg2R9
q9UU8I5mEovUf86QZ7kOBIjJwqnzD1omageEHWwHdBO6B+dFabmdT9POxg==
-----END PUBLIC KEY-----
"""
DEPLOYMENTS = [f"d{number}" for number in range(6)]
ENVIRONMENTS = ["env_1", "env_2"]
_text = st.text("ab/.*?[](){}|+\\%\"' 0é-", max_size=8)
_regex = st.sampled_from(["a+", "(a|b)*", "[0-9]{2,3}", "(?i)x", "\\d+", "(", "(?=x)", "a{2000}", "(a)\\1", ".*%"])
_name = st.sampled_from(["x-a", "X-B", "authorization", ":path", "cookie"])
_path = st.sampled_from(["/", "/a", "/a/", "/a/b", "/%41", "/a b", "//", "a", "/a?b", "/ü", "/a.b+c"])
_maybe = st.one_of


def _some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


_match = _maybe(
    st.fixed_dictionaries({"exact": _text}),
    st.fixed_dictionaries({"prefix": _text}, optional={"ignoreCase": st.booleans()}),
    st.fixed_dictionaries({"regex": _regex}, optional={"ignoreCase": st.booleans()}),
    st.just({"present": True}),
)


def _named(match: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda name, rest: {"name": name, **rest}, _name, match)


_backend = st.fixed_dictionaries(
    {"deployment": st.sampled_from([*DEPLOYMENTS, ""]), "namespace": st.just("apps"), "service": st.just("svc")},
    optional={"weight": st.integers(0, 5), "protocol": st.sampled_from(["http1", "h2c"]), "port": st.integers(0, 3)},
).map(lambda made: {**made, "service": made["deployment"] or "none"})

route_specs = st.fixed_dictionaries(
    {
        "environment": st.sampled_from(ENVIRONMENTS),
        "host": st.sampled_from(
            ["a.example", "A.example", "*.example", "*", "b", "*.", "a:80", "x y", "ü.example", ""]
        ),
    },
    optional={
        "path": _path,
        "headers": st.lists(_named(_match), max_size=2),
        "backends": st.lists(_backend, max_size=3),
        "sticky": _maybe(st.just({"cookie": "c"}), st.just({"header": "X-H"})),
        "mirror": st.builds(lambda one, percent: {**one, "percent": percent}, _backend, st.floats(0, 100)),
        "redirect": _some(
            scheme=st.sampled_from(["http", "https"]),
            host=st.just("to.example"),
            path=_path,
            prefix=_path,
            code=st.sampled_from([301, 308, 300]),
        ),
        "rewrite": _some(prefix=_path, host=st.just("in.example")),
        "timeouts": _some(
            total=st.sampled_from([0, 0.5, 1e9]), idle=st.sampled_from([0, 5]), header=st.sampled_from([0, 0.001])
        ),
        "retries": st.integers(0, 10),
        "circuit": _some(connections=st.integers(0, 10), requests=st.integers(0, 10)),
        "tls": st.just({"secret": "missing"}),
        "policies": st.lists(st.sampled_from(["p0", "p1", "p2", "p3"]), max_size=3, unique=True),
    },
)
_rule = st.fixed_dictionaries({"name": _name, "value": _text})
_rollouts = _some(
    testers=st.lists(
        _maybe(
            st.fixed_dictionaries({"header": _rule, "target": _backend}),
            st.fixed_dictionaries({"cookie": _rule, "target": _backend}),
            st.fixed_dictionaries({"target": _backend}),
        ),
        max_size=2,
    ),
    mirrors=st.lists(
        st.builds(lambda one, percent: {**one, "percent": percent}, _backend, st.floats(0, 100)), max_size=2
    ),
    previews=st.lists(
        st.fixed_dictionaries({"host": st.sampled_from(["next.example", "a.example", "*", "x y"]), "target": _backend}),
        max_size=2,
    ),
    moons=st.just(2),
)
_condition = _maybe(
    st.fixed_dictionaries({"path": _match}),
    st.fixed_dictionaries({"method": st.lists(st.sampled_from(["GET", "POST", "g|t"]), min_size=1, max_size=2)}),
    st.fixed_dictionaries({"header": _named(_match)}),
    st.fixed_dictionaries({"query": _named(_match)}),
)
_identifier = st.sampled_from(
    [{"remoteIp": {}}, {"header": "X-U"}, {"path": {}}, {"subject": {}}, {"principal": "meta.team"}, {}]
)
_kinds = _maybe(
    st.builds(lambda made: {"firewall": made}, _some(
        action=st.sampled_from(["deny", "allow", "shrug"]), cidrs=st.lists(st.sampled_from(["10.0.0.0/8", "::1", "10.1.2.3/8", "x"]), max_size=2),
        headers=st.lists(_name, max_size=2), paths=st.lists(_path, max_size=2))),
    st.builds(lambda size: {"requestSize": {"maxBytes": size}}, st.sampled_from([0, 1, 2**40])),
    st.builds(lambda made: {"cors": made}, st.fixed_dictionaries(
        {"origins": st.lists(st.sampled_from(["*", "https://a.example"]), max_size=2)}, optional={"maxAge": st.integers(0, 9)})),
    st.builds(lambda made: {"rateLimit": made}, st.fixed_dictionaries(
        {"limit": st.integers(0, 5), "identifier": _identifier},
        optional={"window": st.integers(0, 100), "scope": st.sampled_from(["local", "cluster", "strict", "odd"]), "cost": st.integers(0, 3)})),
    st.builds(lambda made: {"keyAuth": made}, st.fixed_dictionaries(
        {"locations": st.lists(st.sampled_from([{"bearer": {}}, {"header": "X-Key"}, {"query": "key"}]), max_size=2)})),
    st.builds(lambda made: {"jwt": made}, _maybe(
        st.just({"pem": PEM, "algorithms": ["ES256"]}), st.just({"jwksUri": "https://keys.example/jwks", "issuer": "me"}),
        st.just({"jwksUri": "nonsense"}), st.just({"oidcIssuer": "https://known.example"}), st.just({"oidcIssuer": "https://new.example"}),
        st.just({"pem": "x"}), st.just({}))),
    st.just({"teleport": {}}),
)  # fmt: skip
policy_specs = st.builds(
    lambda about, kind: {**about, **kind},
    st.fixed_dictionaries(
        {"environment": st.sampled_from(ENVIRONMENTS)},
        optional={
            "order": st.integers(0, 3),
            "match": st.lists(_condition, max_size=2),
            "routes": st.lists(st.sampled_from(["r0", "r1"]), max_size=1),
            "failOpen": st.booleans(),
            "enabled": st.booleans(),
        },
    ),
    _kinds,
)
_endpoint = st.builds(
    InstanceEndpoint,
    address=st.sampled_from(["10.0.0.1", "10.0.0.2", "::1"]),
    port=st.sampled_from([80, 81]),
    zone=st.sampled_from(["", "a", "b"]),
    draining=st.booleans(),
)
services = st.lists(_endpoint, max_size=3, unique_by=lambda one: (one.address, one.port)).map(
    lambda found: ServiceEndpoints(endpoints=tuple(found))
)
_peer = st.builds(
    PeerGateway,
    region=st.sampled_from(["x", "y"]),
    addresses=st.lists(st.sampled_from(["10.9.0.1:8043", "name.example:1", "[::2]:9", "10.9.0.1"]), max_size=2).map(
        tuple
    ),
    distance=st.integers(0, 2),
    healthy=st.booleans(),
)
SETTINGS = Settings(limits_socket="/tmp/none/limits")


def _objects(prefix: str, parts: list[dict[str, Any]], read: Any) -> dict[str, Any]:
    named = [{"metadata": {"name": f"{prefix}{at}", "generation": 1}, **each} for at, each in enumerate(parts)]
    return {each["metadata"]["name"]: read(each) for each in named}


inputs = st.builds(
    lambda routes, policies, found, peers: Inputs(
        settings=SETTINGS,
        routes=_objects("r", routes, route_of),
        policies=_objects("p", [{"spec": spec} for spec in policies], policy_of),
        endpoints={ServiceKey("apps", name): one for name, one in zip(DEPLOYMENTS, found, strict=False)},
        peers=tuple(peers),
        issuers={"https://known.example": "https://known.example/keys"},
    ),
    st.lists(st.fixed_dictionaries({"spec": route_specs}, optional={"rollout": _rollouts}), max_size=6),
    st.lists(policy_specs, max_size=4),
    st.lists(services, max_size=6),
    st.lists(_peer, max_size=2),
)
