"""Request bodies and options of writes: decoded, checked against the URL, unknown and duplicate fields reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.apiserver import negotiate
from shoal.apiserver.context import Call
from shoal.apiserver.negotiate import Query, body_type
from shoal.apiserver.objects import meta
from shoal.apiserver.registry import Served
from shoal.errors import BadRequest, Invalid, invalid, not_supported, required, too_long
from shoal.kube import jsonutil
from shoal.kube.decode import normalize
from shoal.kube.objects import Obj

MAX_WARNINGS = 50


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Query parameters of every write."""

    dry_run: bool
    field_manager: str
    validation: str  # Ignore, Warn or Strict


_DEFAULTS: dict[tuple[str, str, str], WriteOptions] = {}


def write_options(call: Call, kind: str = "CreateOptions") -> WriteOptions:
    query = call.query
    key = (query.get("dryRun", ""), query.get("fieldManager", ""), query.get("fieldValidation", ""))
    known = _DEFAULTS.get(key)
    if known is not None:
        return known
    dry_run, manager, validation = key
    errors = []
    if dry_run not in ("", "All"):
        errors.append(not_supported("dryRun", [dry_run], ["All"]))
    if len(manager) > 128:
        errors.append(too_long("fieldManager", 128))
    elif not manager.isprintable():
        errors.append(invalid("fieldManager", manager, "should only contain printable characters"))
    if validation not in ("", "Ignore", "Warn", "Strict"):
        errors.append(not_supported("fieldValidation", validation, ["Ignore", "Strict", "Warn"]))
    if errors:
        raise Invalid.of(kind, "meta.k8s.io", "", errors)
    made = WriteOptions(dry_run == "All", manager, validation or "Warn")
    if len(_DEFAULTS) < 1000:
        _DEFAULTS[key] = made
    return made


def manager_of(call: Call, options: WriteOptions) -> str:
    """The field manager of this write: ``fieldManager``, else the program that the User-Agent names."""
    if options.field_manager:
        return options.field_manager
    agent = call.request.headers.get(b"user-agent", b"").partition(b"/")[0].decode("latin-1")
    return agent[:128] or "unknown"


def read_object(call: Call, options: WriteOptions) -> Obj:
    """The object in the body: of the kind the URL names, pruned and canonical."""
    obj, faults = read_raw(call, options)
    report_faults(call, options, tidy(obj, call.served) + faults)
    return obj


def read_raw(call: Call, options: WriteOptions) -> tuple[Obj, list[str]]:
    """The decoded object of the body, of the kind in the URL, and the errors of strict decoding."""
    body = call.request.body
    if not body:
        raise BadRequest("the request has no body: send the object")
    media = body_type(call.request.headers.get(b"content-type"))
    faults: list[str] = []
    obj = decode(body, media, faults, options.validation)
    check_type(obj, call.served)
    return obj, faults


def tidy(obj: Obj, served: Served) -> list[str]:
    """Prune and canonicalise in place; return the strict decoding errors."""
    found = obj.get("metadata")
    if found is None:
        obj["metadata"] = {}
    elif not isinstance(found, dict):
        raise BadRequest("metadata must be an object")
    if served.crd is not None:
        unknown: list[str] = served.crd.normalize(obj)
    else:
        unknown = normalize(obj, served.type)
    return unknown


def decode(body: bytes, media: str, faults: list[str], validation: str) -> Obj:
    if media == negotiate.JSON:
        obj = jsonutil.loads_object(body)
        if validation != "Ignore":
            faults.extend(f'duplicate field "{path}"' for path in jsonutil.find_duplicate_fields(body, obj))
        return obj
    if media == negotiate.PROTOBUF:
        from shoal.kube import protobuf

        return protobuf.decode(body)
    from shoal.kube import yamlcodec

    return yamlcodec.loads_object(body, faults if validation != "Ignore" else None)


def report_faults(call: Call, options: WriteOptions, faults: list[str]) -> None:
    """Unknown and duplicate fields: an error when strict, warnings by default, nothing when ignored."""
    if not faults or options.validation == "Ignore":
        return
    if options.validation == "Strict":
        resource = call.served.resource
        listed = ", ".join(faults)
        raise BadRequest(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"strict decoding error: {listed}"
        )
    call.warnings.extend(faults[:MAX_WARNINGS])


def check_type(obj: Obj, served: Served) -> None:
    """apiVersion and kind of the body: filled in from the URL, or checked against it."""
    resource = served.resource
    api_version, kind = obj.get("apiVersion"), obj.get("kind")
    if not api_version:
        obj["apiVersion"] = resource.api_version
    elif api_version != resource.api_version:
        raise BadRequest(
            f"the API version in the data ({api_version}) does not match the expected API version "
            f"({resource.api_version})"
        )
    if not kind:
        obj["kind"] = resource.kind
    elif kind != resource.kind:
        raise BadRequest(
            f"the kind in the data ({kind}) does not match the expected kind ({resource.kind}) of this path"
        )


def check_place(obj: Obj, call: Call) -> Obj:
    """Namespace and name of the body against the URL; returns the metadata."""
    metadata = meta(obj)
    if call.served.resource.namespaced:
        given = metadata.get("namespace")
        if not given:
            metadata["namespace"] = call.namespace
        elif given != call.namespace:
            raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    elif metadata.get("namespace"):
        raise BadRequest("the namespace of the provided object must not be set: this kind is cluster-scoped")
    if call.name:
        given = metadata.get("name")
        if not given:
            metadata["name"] = call.name
        elif given != call.name:
            raise BadRequest(f"the name of the object ({given}) does not match the name on the URL ({call.name})")
    return metadata


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    grace_s: int | None = None
    propagation: str = ""
    orphan: bool | None = None
    uid: str = ""
    revision: str = ""
    dry_run: bool = False


_NO_DELETE_OPTIONS = DeleteOptions()


def delete_options(call: Call) -> DeleteOptions:
    """DeleteOptions from the body if there is one, else from the query."""
    body, query = call.request.body, call.query
    if not body and not query:
        return _NO_DELETE_OPTIONS
    if body:
        media = body_type(call.request.headers.get(b"content-type"))
        raw = decode(body, media, [], "Ignore")
        if raw.get("kind", "DeleteOptions") != "DeleteOptions":
            raise BadRequest(f"the body of a delete must be DeleteOptions, not {raw.get('kind')}")
    else:
        raw = _from_query(query)
    return check_delete_options(raw)


def _from_query(query: Query) -> Obj:
    raw: Obj = {}
    grace = negotiate.integer(query, "gracePeriodSeconds")
    if grace is not None:
        raw["gracePeriodSeconds"] = grace
    if query.get("propagationPolicy"):
        raw["propagationPolicy"] = query["propagationPolicy"]
    if "orphanDependents" in query:
        raw["orphanDependents"] = negotiate.flag(query, "orphanDependents")
    if query.get("dryRun"):
        raw["dryRun"] = [query["dryRun"]]
    return raw


def check_delete_options(raw: Obj) -> DeleteOptions:
    errors = []
    grace, policy, orphan = (
        raw.get("gracePeriodSeconds"),
        raw.get("propagationPolicy") or "",
        raw.get("orphanDependents"),
    )
    dry_run = raw.get("dryRun") or []
    preconditions = raw.get("preconditions") or {}
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
        raise BadRequest("gracePeriodSeconds must be a number")
    if not isinstance(preconditions, dict) or not isinstance(dry_run, list):
        raise BadRequest("preconditions must be an object and dryRun a list")
    if policy and orphan is not None:
        errors.append(
            invalid("propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set")
        )
    if policy not in ("", "Orphan", "Background", "Foreground"):
        errors.append(not_supported("propagationPolicy", policy, ["Background", "Foreground", "Orphan"]))
    if any(value != "All" for value in dry_run):
        errors.append(not_supported("dryRun", dry_run, ["All"]))
    if errors:
        raise Invalid.of("DeleteOptions", "meta.k8s.io", "", errors)
    return DeleteOptions(
        grace if grace is None or grace >= 0 else 1,
        policy,
        orphan,
        str(preconditions.get("uid") or ""),
        str(preconditions.get("resourceVersion") or ""),
        bool(dry_run),
    )


def options_object(options: DeleteOptions) -> Obj:
    """DeleteOptions as an object, as admission shows it."""
    shown: Obj = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
    if options.grace_s is not None:
        shown["gracePeriodSeconds"] = options.grace_s
    if options.propagation:
        shown["propagationPolicy"] = options.propagation
    if options.orphan is not None:
        shown["orphanDependents"] = options.orphan
    preconditions = {"uid": options.uid, "resourceVersion": options.revision}
    if any(preconditions.values()):
        shown["preconditions"] = {name: value for name, value in preconditions.items() if value}
    if options.dry_run:
        shown["dryRun"] = ["All"]
    return shown


def require_manager(options: WriteOptions) -> str:
    if not options.field_manager:
        errors = [required("fieldManager", "is required for apply patch")]
        raise Invalid.of("PatchOptions", "meta.k8s.io", "", errors)
    return options.field_manager


def is_object(value: Any, what: str) -> Obj:
    if not isinstance(value, dict):
        raise BadRequest(f"{what} must be a JSON object")
    return value
