"""The shapes of what goes in and comes out, as JSON schemas for the OpenAPI document.

They describe; ``shoal.control.domain`` decides. The fields of every spec here are those that it reads: a test compares.
"""

from __future__ import annotations

from typing import Any

from shoal.control.domain.kinds.checks import MAX_NAME
from shoal.control.domain.model import API_VERSION
from shoal.control.domain.specs import KINDS

Schema = dict[str, Any]

NAME_PATTERN = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
WORDS = {200: "Done", 201: "Created", 207: "Some of it was done"}

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
NAME: Schema = {"type": "string", "pattern": NAME_PATTERN, "maxLength": MAX_NAME}
TOKEN_ID: Schema = {"type": "string", "pattern": "^tok_[a-z0-9]{20}$"}
TEXTS: Schema = {"type": "array", "items": TEXT}
NAMES: Schema = {"type": "array", "items": NAME}
MAPPING: Schema = {"type": "object", "additionalProperties": TEXT}
ANYTHING: Schema = {"type": "object"}
QUANTITY: Schema = {"type": ["string", "number"], "description": "A quantity, such as 500m or 128Mi"}


def whole(low: int, high: int) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high}


def choice(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def closed(properties: dict[str, Schema], *required: str) -> Schema:
    """An object without other fields."""
    found: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": list(required)} if required else found


def shown(properties: dict[str, Schema]) -> Schema:
    """An object of an answer: more may come to it."""
    return {"type": "object", "properties": properties}


def many(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


RESOURCES = closed({"cpu": QUANTITY, "memory": QUANTITY, "ephemeralStorage": QUANTITY})
SIZES = closed({"cpu": QUANTITY, "memory": QUANTITY})
AUTOSCALING = closed(
    {"min": whole(1, 10_000), "max": whole(1, 10_000), "cpu": whole(1, 1000), "memory": whole(1, 1000)}
)
PORT = whole(1, 65535)
HEALTHCHECK = closed(
    {
        "http": closed({"path": TEXT, "port": PORT}),
        "tcp": closed({"port": PORT}),
        "grpc": closed({"port": PORT}),
        "exec": closed({"command": TEXTS}, "command"),
        "initialDelay": whole(0, 3600),
        "period": whole(1, 3600),
        "timeout": whole(1, 3600),
        "failures": whole(1, 100),
    }
)
TOLERATION = closed(
    {
        "key": TEXT,
        "operator": choice("Equal", "Exists"),
        "value": TEXT,
        "effect": choice("NoSchedule", "PreferNoSchedule", "NoExecute"),
    }
)
OVERRIDES = closed({"env": MAPPING, "resources": RESOURCES, "image": TEXT})
REGION_OF_APP = closed(
    {"region": NAME, "replicas": whole(0, 10_000), "autoscaling": AUTOSCALING, "overrides": OVERRIDES}, "region"
)

NOTHING = closed({})
_TEXT_MATCH: dict[str, Schema] = {"exact": TEXT, "prefix": TEXT, "regex": TEXT, "ignoreCase": FLAG}
NAMED_MATCH = closed({"name": TEXT, "present": FLAG, **_TEXT_MATCH}, "name")
MATCH = closed({"path": closed(_TEXT_MATCH), "method": TEXTS, "header": NAMED_MATCH, "query": NAMED_MATCH})
POLICIES: dict[str, Schema] = {
    "keyAuth": closed(
        {
            "locations": many(closed({"bearer": NOTHING, "header": TEXT, "query": TEXT, "stripPrefix": TEXT})),
            "permissions": TEXTS,
        }
    ),
    "jwt": closed(
        {
            **dict.fromkeys(("jwksUri", "oidcIssuer", "pem", "issuer", "subjectClaim"), TEXT),
            **dict.fromkeys(("audiences", "algorithms"), TEXTS),
            "anonymous": FLAG,
            "clockSkew": whole(0, 3600),
            "cache": whole(1, 86400),
        }
    ),
    "rateLimit": closed(
        {
            "limit": whole(1, 10**9),
            "window": whole(1, 31 * 86400),
            "scope": choice("local", "cluster", "strict"),
            "identifier": closed(
                {"remoteIp": NOTHING, "header": TEXT, "path": NOTHING, "subject": NOTHING, "principal": TEXT}
            ),
            "cost": whole(1, 10**6),
        },
        "limit",
    ),
    "firewall": closed({"action": choice("deny", "allow"), "cidrs": TEXTS, "headers": TEXTS, "paths": TEXTS}),
    "requestSize": closed({"maxBytes": QUANTITY}, "maxBytes"),
    "cors": closed(
        {
            **dict.fromkeys(("origins", "methods", "headers", "exposeHeaders"), TEXTS),
            "credentials": FLAG,
            "maxAge": whole(0, 86400),
        },
        "origins",
    ),
}

SPECS: dict[str, Schema] = {
    "Region": closed(
        {
            "platform": TEXT,
            "canSchedule": FLAG,
            "distances": {"type": "object", "additionalProperties": whole(0, 1_000_000)},
            "gateways": closed({"service": choice("ClusterIP", "NodePort", "LoadBalancer"), "entries": many(TEXT)}),
        }
    ),
    "Cluster": closed(
        {
            "region": NAME,
            "shards": NAMES,
            "taints": many(
                closed({"key": TEXT, "value": TEXT, "effect": choice("NoSchedule", "PreferNoSchedule")}, "key")
            ),
            "capacity": closed({"cpu": QUANTITY, "memory": QUANTITY, "deployments": whole(0, 10**9)}),
            "canSchedule": FLAG,
        },
        "region",
    ),
    "Project": closed({"description": TEXT}),
    "Environment": closed(
        {
            "description": TEXT,
            "sentinel": closed({"image": TEXT, "replicas": whole(1, 100), "resources": SIZES, "shared": FLAG}),
        }
    ),
    "Secret": closed(
        {
            "values": {**MAPPING, "writeOnly": True, "description": "Sealed at once; never shown again"},
            "variables": {**TEXTS, "description": "The names of the values"},
        }
    ),
    "App": closed(
        {
            "image": TEXT,
            "command": TEXTS,
            "args": TEXTS,
            "env": MAPPING,
            "secrets": {**NAMES, "description": "Secrets of the environment whose values become variables"},
            "resources": RESOURCES,
            "port": PORT,
            "protocol": choice("http1", "h2c"),
            "healthcheck": HEALTHCHECK,
            "autoscaling": AUTOSCALING,
            "shutdownSignal": choice("SIGTERM", "SIGINT", "SIGQUIT", "SIGKILL"),
            "terminationSeconds": whole(0, 3600),
            "git": closed({"sha": TEXT, "branch": TEXT, "repository": TEXT, "message": TEXT}),
            "drift": choice("correct", "report"),
            "desired": choice("running", "stopped"),
            "placement": closed(
                {
                    "labels": MAPPING,
                    "cel": TEXT,
                    "tolerations": many(TOLERATION),
                    "spread": choice("together", "apart"),
                }
            ),
            "nodeSelector": MAPPING,
            "topology": many(REGION_OF_APP),
            "readiness": closed({"regions": {"type": ["integer", "string"]}, "deadline": whole(1, 86400)}),
        },
        "image",
        "topology",
    ),
    "Policy": closed(
        {
            **POLICIES,
            "match": many(MATCH),
            "enabled": FLAG,
            "order": whole(0, 1_000_000),
            "failOpen": FLAG,
            "routes": NAMES,
        }
    ),
    "Route": closed(
        {
            "host": TEXT,
            "path": TEXT,
            "headers": many(NAMED_MATCH),
            "app": NAME,
            "backends": many(
                closed({"app": NAME, "weight": whole(0, 1_000_000), "deployment": TEXT}, "app"),
            ),
            "sticky": closed({"cookie": TEXT, "header": TEXT, "ttl": whole(0, 2**31)}),
            "mirror": closed({"app": NAME, "percent": {"type": "number"}}, "app"),
            "redirect": closed(
                {
                    "scheme": choice("http", "https"),
                    "host": TEXT,
                    "path": TEXT,
                    "prefix": TEXT,
                    "code": {"type": "integer", "enum": [301, 302, 303, 307, 308]},
                }
            ),
            "rewrite": closed({"prefix": TEXT, "host": TEXT}),
            "timeouts": closed({name: {"type": "number", "minimum": 0} for name in ("total", "idle", "header")}),
            "retries": whole(0, 10),
            "tls": closed({"secret": NAME}, "secret"),
            "policies": NAMES,
        },
        "host",
    ),
    "ApiKey": closed(
        {
            "permissions": TEXTS,
            "identity": TEXT,
            "meta": ANYTHING,
            "expiresAt": {"type": "string", "format": "date-time"},
            "enabled": FLAG,
        }
    ),
    "Sentinel": closed(
        {
            "region": NAME,
            "image": TEXT,
            "replicas": whole(1, 100),
            "resources": SIZES,
            "cluster": NAME,
            "desired": choice("running", "stopped"),
        },
        "region",
    ),
}


def _metadata() -> Schema:
    ours = {"id": TEXT, "version": {"type": "integer"}, "generation": {"type": "integer"}, "createdAt": TEXT,
            "updatedAt": TEXT, "namespace": TEXT, "workspace": TEXT}  # fmt: skip
    return closed(
        {
            "name": NAME,
            "project": NAME,
            "environment": NAME,
            "labels": MAPPING,
            "annotations": MAPPING,
            **{name: {**schema, "readOnly": True} for name, schema in ours.items()},
        }
    )


def _object(kind: str) -> Schema:
    return closed(
        {
            "apiVersion": {"type": "string", "const": API_VERSION},
            "kind": {"type": "string", "const": kind},
            "metadata": reference("Metadata"),
            "spec": reference(f"{kind}Spec"),
            "status": {**ANYTHING, "readOnly": True},
        }
    )


_EFFECT = shown(dict.fromkeys(("region", "cluster", "shard", "key", "action", "kind", "name"), TEXT))
_DIFF = shown({"path": TEXT, "before": {}, "after": {}})


def _applied(kind: str) -> Schema:
    return shown(
        {
            "object": reference(kind),
            "created": FLAG,
            "changed": many(_DIFF),
            "effects": many(_EFFECT),
            "warnings": TEXTS,
            "dryRun": FLAG,
        }
    )


def components() -> dict[str, Schema]:
    found: dict[str, Schema] = {"Metadata": _metadata()}
    for kind in KINDS:
        found[f"{kind}Spec"] = SPECS[kind]
        found[kind] = _object(kind)
        found[f"{kind}List"] = shown({"items": many(reference(kind)), "continue": TEXT})
        found[f"{kind}Applied"] = _applied(kind)
    found["Object"] = {"oneOf": [reference(kind) for kind in KINDS]}
    found["Documents"] = {"oneOf": [reference("Object"), many(reference("Object"))]}
    result = {**shown(_applied("Object")["properties"] | {"error": shown({})})}
    found["AppliedAll"] = shown({"items": many(result), "dryRun": FLAG})
    found["Patch"] = closed({"metadata": closed({"labels": ANYTHING, "annotations": ANYTHING}), "spec": ANYTHING})
    found["Deleted"] = shown(
        {"object": reference("Object"), "also": many(ANYTHING), "effects": many(_EFFECT), "dryRun": FLAG}
    )
    detail = shown({"field": TEXT, "message": TEXT})
    error = shown({"code": TEXT, "message": TEXT, "details": many(detail), "correlation": TEXT})
    found["Error"] = {**shown({"error": {**error, "required": ["code", "message", "details", "correlation"]}}),
                      "required": ["error"]}  # fmt: skip
    found["Items"] = shown({"items": many(ANYTHING), "continue": TEXT})
    found["Anything"] = ANYTHING
    found["EventStream"] = TEXT
    return found | _OTHERS


_OTHERS: dict[str, Schema] = {
    "Move": closed({"region": NAME, "cluster": NAME, "shard": NAME}, "region", "cluster"),
    "Scale": closed({"replicas": whole(0, 10_000), "region": NAME}, "replicas"),
    "NewToken": closed(
        {
            "kind": choice("user", "agent", "edge", "relay"),
            "name": {"type": "string", "minLength": 1, "maxLength": 63},
            "role": choice("viewer", "editor", "admin"),
            "workspace": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9_-]{0,62})$"},
            "cluster": NAME,
            "region": NAME,
            "shard": NAME,
            "ttlSeconds": {"type": "number", "minimum": 0},
        },
        "kind",
        "name",
    ),
    "RotateMasterKey": closed({"newKey": FLAG, "limit": whole(1, 10_000)}),
    "MasterKeys": shown(
        {"current": TEXT, "where": TEXT, "inUse": many(shown({"masterKey": TEXT, "secrets": whole(0, 1 << 53)}))}
    ),
    "MasterKeyRotation": shown(
        {
            "masterKey": TEXT,
            "moved": whole(0, 1 << 53),
            "remaining": whole(0, 1 << 53),
            "complete": FLAG,
            "unmoved": many(shown(dict.fromkeys(("database", "id", "name", "masterKey", "why"), TEXT))),
        }
    ),
    "Rotate": closed({"graceSeconds": {"type": "number", "minimum": 0, "maximum": 30 * 86400}}),
    "Token": shown(
        {
            **dict.fromkeys(("id", "kind", "name", "workspace", "role", "cluster", "region", "shard"), TEXT),
            "state": choice("active", "revoked", "expired"),
            "revoked": FLAG,
            **dict.fromkeys(("createdAt", "expiresAt", "revokedAt", "lastUsedAt"), TEXT),
        }
    ),
    "TokenOnce": shown(
        {
            "token": {**TEXT, "description": "Shown this once"},
            "info": reference("Token"),
            "join": {**ANYTHING, "description": "Of all but users: what it needs to join"},
        }
    ),
    "TokenList": shown({"items": many(reference("Token"))}),
}
