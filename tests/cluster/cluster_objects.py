"""A valid object of every kind there is, and ways to break it: what the tests of bad input start from."""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from shoal.app.pki import Pki
from shoal.kube.objects import Obj
from shoal.kube.resources import BUILTIN, Resource
from shoal.kube.schema import Type, type_of_kind
from shoal.kube.schema.model import Form

Place = tuple[Any, Any, Type | None]  # a container, a key or an index in it, and the type of what is there

_EXAMPLES = Path(__file__).parents[1] / "unit" / "kube" / "kinds" / "examples.yaml"
_OWN = Path(__file__).parent / "core_objects.yaml"
BACKUPS = "/apis/shop.example/v1/namespaces/default/backups"

TEXTS = (
    "", " ", "a", "A", "-", ".", "..", "a/b", "/", "*", "é", "日本", "\x00", "a\nb", "\ufeff", "\u202e", "🌊", "x" * 64, "x" * 254,
    "y" * 70_000, "None", "null", "true", "0", "-1", "1e400", "25%", "10.0.0.1", "::1", "10.96.0.1/33", "1Ei", "1m",
    "999999999999999999Ei", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2030-02-30T00:00:00Z", "%s%n", "${A}",
    "{{.}}", "../../etc/passwd", "kubernetes.io/x", "Always", "Never", "ClusterIP", "ExternalName", "LoadBalancer",
    "Headless", "self.x == ", "[" * 100, "(a+)+$", "foregroundDeletion", "orphan", "LS0t", "====",
)  # fmt: skip
NUMBERS = (
    0,
    -1,
    1,
    2,
    7,
    255,
    65536,
    2**31 - 1,
    2**31,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64,
    10**30,
    -(2**63),
    0.5,
    1e308,
    -0.0,
)


@cache
def _loaded() -> tuple[Obj, ...]:
    found = [each for path in (_OWN, _EXAMPLES) for each in yaml.safe_load_all(path.read_text())]
    return tuple(found)


@cache
def _signing_request(encoding: serialization.Encoding = serialization.Encoding.PEM) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "web")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return base64.b64encode(request.public_bytes(encoding)).decode()


@cache
def _authority() -> str:
    with TemporaryDirectory() as folder:
        return Pki(Path(folder), now=datetime.now(UTC)).ensure_ca().cert.read_text()


def resources() -> list[Resource]:
    """Every built-in resource that clients can create objects of."""
    return [r for r in BUILTIN if r.stored and "create" in r.verbs]


def example(api_version: str, kind: str) -> Obj:
    """A valid object; namespaced ones are in ``default``."""
    for each in _loaded():
        if (each["apiVersion"], each["kind"]) == (api_version, kind):
            obj = copy.deepcopy(each)
            break
    else:
        raise LookupError(f"no example of {kind} in {api_version}")
    metadata = obj["metadata"]
    if metadata.pop("namespace", None):
        metadata["namespace"] = "default"
    for reference in ("regarding", "involvedObject"):
        if reference in obj:
            obj[reference]["namespace"] = "default"
    metadata.pop("uid", None)
    if kind == "CertificateSigningRequest":
        obj["spec"]["request"] = _signing_request()
    if kind == "PodCertificateRequest":
        obj["spec"]["stubPKCS10Request"] = _signing_request(serialization.Encoding.DER)
    if kind == "ClusterTrustBundle":
        obj["spec"]["trustBundle"] = _authority()
    return obj


def collection(resource: Resource) -> str:
    prefix = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    return f"{prefix}/namespaces/default/{resource.plural}" if resource.namespaced else f"{prefix}/{resource.plural}"


def places(value: Any, kind: Type | None) -> Iterator[Place]:
    """Every field and element below ``value``, deepest last."""
    if isinstance(value, dict):
        for name, child in value.items():
            type_ = _type_of(kind, name)
            yield value, name, type_
            yield from places(child, type_)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            type_ = kind.element if kind is not None and kind.form is Form.LIST else None
            yield value, index, type_
            yield from places(child, type_)


def _type_of(kind: Type | None, name: str) -> Type | None:
    if kind is None:
        return None
    if kind.form is Form.STRUCT:
        field = kind.fields.get(name)
        return None if field is None else field.type
    return kind.element if kind.form is Form.MAP else None


class Breaker:
    """Changes objects at random, repeatably: ``broken`` of the same random state is the same object."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def broken(self, obj: Obj, kind: Type | None, *, changes: int = 0) -> Obj:
        made: Obj = copy.deepcopy(obj)
        for _ in range(changes or self.random.choice((1, 1, 1, 2, 3, 5))):
            # most changes below metadata and the type would only be refused by the same first check
            inner = [p for p in places(made, kind) if p[0] is not made or p[1] not in ("kind", "apiVersion")]
            if not inner:
                break
            self._change(*self.random.choice(inner))
        return made

    def _change(self, parent: Any, at: Any, kind: Type | None) -> None:
        random = self.random
        match random.randrange(10):
            case 0:
                del parent[at]
            case 1:
                parent[at] = None
            case 2:
                parent[at] = self.anything()
            case 3 | 4 if isinstance(parent[at], str):
                parent[at] = random.choice(TEXTS)
            case 3 | 4 if isinstance(parent[at], (int, float)):
                parent[at] = random.choice(NUMBERS)
            case 3 | 4 if isinstance(parent[at], list) and parent[at]:
                parent[at] = parent[at] * random.choice((2, 3, 40))
            case 5 if isinstance(parent, dict):
                parent[random.choice(TEXTS)] = parent.pop(at)
            case 6 if isinstance(parent, dict):
                parent[random.choice(TEXTS)[:300]] = self.anything()
            case _:
                self._extend(parent, at, kind)

    def _extend(self, parent: Any, at: Any, kind: Type | None) -> None:
        """Fill in a field that the type has, with a value of its type."""
        value = parent[at]
        if kind is not None and kind.form is Form.STRUCT and kind.fields and isinstance(value, dict):
            name = self.random.choice(sorted(kind.fields))
            value[name] = self.value_of(kind.fields[name].type, 0)
        elif kind is not None:
            parent[at] = self.value_of(kind, 0)

    def anything(self) -> Any:
        random = self.random
        deep: Any = random.choice(TEXTS)
        match random.randrange(7):
            case 0:
                return random.choice(
                    (True, False, None, [], {}, [[]], [None], {"": None}, ["a", 1, {}], {"a": {"b": [1]}})
                )
            case 1:
                return random.choice(NUMBERS)
            case 2:
                for _ in range(random.choice((3, 30, 150, 190))):
                    deep = {"a": deep} if random.random() < 0.5 else [deep]
                return deep
            case 3:
                return [random.choice(TEXTS) for _ in range(random.randrange(4))]
            case 4:
                return {random.choice(TEXTS)[:300]: random.choice(TEXTS) for _ in range(random.randrange(4))}
            case _:
                return deep

    def value_of(self, kind: Type, depth: int) -> Any:
        """A value of the right JSON type and nothing else right about it."""
        random = self.random
        match kind.form:
            case Form.STRUCT:
                names = [name for name in sorted(kind.fields) if random.random() < (0.5 if depth < 2 else 0.25)]
                return {} if depth > 8 else {n: self.value_of(kind.fields[n].type, depth + 1) for n in names}
            case Form.MAP if kind.element is not None:
                return {
                    random.choice(TEXTS)[:300]: self.value_of(kind.element, depth + 1)
                    for _ in range(random.randrange(3))
                }
            case Form.LIST if kind.element is not None:
                return [self.value_of(kind.element, depth + 1) for _ in range(random.randrange(3) if depth < 6 else 0)]
            case Form.STRING:
                return random.choice(TEXTS)
            case Form.INTEGER:
                return random.choice([n for n in NUMBERS if isinstance(n, int)])
            case Form.NUMBER:
                return random.choice(NUMBERS)
            case Form.BOOLEAN:
                return random.random() < 0.5
            case Form.BYTES:
                return random.choice(("", "YQ==", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t", "=", "é"))
            case Form.TIME | Form.MICRO_TIME:
                return random.choice(
                    ("2030-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999+14:00", "x", "")
                )
            case Form.QUANTITY:
                return random.choice(
                    ("0", "1", "-1", "100m", "1Gi", "1e400", "9" * 500, 3, 0.1, "1n", "999999999999Ei", "")
                )
            case Form.INT_OR_STRING:
                return random.choice((0, -1, 2**31, "0%", "200%", "-5%", "http", ""))
            case _:
                return self.anything()


def type_of(resource: Resource) -> Type:
    return type_of_kind(resource.group, resource.version, resource.kind)
