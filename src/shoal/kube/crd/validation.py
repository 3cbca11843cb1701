"""Validates a CustomResourceDefinition: names, versions, schemas, subresources, columns, conversion.

Messages name fields as Kubernetes does: fields common to all versions directly under ``spec``
(``spec.validation.openAPIV3Schema``), others under ``spec.versions[i]``. A schema that an update does not change is not
checked again.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final

from shoal.errors import FieldError, duplicate, forbidden, invalid, not_supported, required, too_many
from shoal.kube import names as syntax
from shoal.kube.cel.formats import recognized
from shoal.kube.crd.conditions import approval_state, is_established, is_protected
from shoal.kube.crd.definition import (
    APPROVAL_ANNOTATION,
    schema_of,
    spec_of,
    versions_of,
)
from shoal.kube.crd.fieldpath import FieldPathError, resolve
from shoal.kube.crd.schema_rules import shape_errors, walk
from shoal.kube.crd.schema_validation import schema_errors
from shoal.kube.objects import Obj
from shoal.kube.webhooks import client_config_errors

Map = Mapping[str, Any]

MAX_SELECTABLE_FIELDS: Final = 8
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_REVIEW_VERSIONS: Final = ("v1", "v1beta1")
_ROOT_KEYWORDS: Final = {
    "description": "Description", "type": "Type", "format": "Format", "title": "Title", "maximum": "Maximum",
    "exclusiveMaximum": "ExclusiveMaximum", "minimum": "Minimum", "exclusiveMinimum": "ExclusiveMinimum",
    "maxLength": "MaxLength", "minLength": "MinLength", "pattern": "Pattern", "maxItems": "MaxItems",
    "minItems": "MinItems", "uniqueItems": "UniqueItems", "multipleOf": "MultipleOf", "required": "Required",
    "items": "Items", "properties": "Properties", "externalDocs": "ExternalDocs", "example": "Example",
    "x-kubernetes-preserve-unknown-fields": "XPreserveUnknownFields", "x-kubernetes-validations": "XValidations",
}  # fmt: skip


def validate_crd(crd: Obj, old: Obj | None = None) -> list[FieldError]:
    """All errors of a definition; with ``old``, also changes that an update may not make."""
    errors: list[FieldError] = []
    spec = spec_of(crd)
    names = spec.get("names") or {}
    meta = crd.get("metadata") or {}
    if old is None and meta.get("name") != f"{names.get('plural') or ''}.{spec.get('group') or ''}":
        errors.append(invalid("metadata.name", meta.get("name"), 'must be spec.names.plural+"."+spec.group'))
    errors += _spec_errors(crd, old)
    if old is not None:
        errors += _immutable_errors(crd, old)
    errors += validate_status(crd)
    errors += stored_version_errors(crd)
    errors += _approval_errors(crd, old)
    if spec.get("preserveUnknownFields") and not (old and spec_of(old).get("preserveUnknownFields")):
        text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        errors.append(invalid("spec.preserveUnknownFields", True, text))
    return errors


def validate_status(crd: Obj, old: Obj | None = None) -> list[FieldError]:
    accepted = (crd.get("status") or {}).get("acceptedNames") or {}
    return _name_errors(accepted, "status.acceptedNames")


def stored_version_errors(crd: Map) -> list[FieldError]:
    stored = list((crd.get("status") or {}).get("storedVersions") or ())
    path = "status.storedVersions"
    if not stored:
        return [invalid(path, stored, "must have at least one stored version")]
    errors = []
    left = {name: index for index, name in enumerate(stored)}
    for version in versions_of(crd):
        name = version.get("name")
        if version.get("storage") and name not in left:
            errors.append(invalid(path, stored, f"must have the storage version {name}"))
        left.pop(name or "", None)
    for name, index in left.items():
        text = (
            f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions "
            f"until a storage migration ensures no data remains persisted in {name} and removes {name} from "
            "status.storedVersions"
        )
        errors.append(invalid(f"{path}[{index}]", name, text))
    return errors


def _approval_errors(crd: Map, old: Map | None) -> list[FieldError]:
    if not is_protected(str(spec_of(crd).get("group") or "")):
        return []
    state, reason = approval_state(crd)
    if old is not None and approval_state(old)[0] == state:
        return []
    path = f"metadata.annotations[{APPROVAL_ANNOTATION}]"
    if state == "missing":
        return [required(path, reason)]
    if state == "invalid":
        return [invalid(path, crd["metadata"]["annotations"][APPROVAL_ANNOTATION], reason)]
    return []


def _immutable_errors(crd: Map, old: Map) -> list[FieldError]:
    new_spec, old_spec = spec_of(crd), spec_of(old)
    new_names, old_names = new_spec.get("names") or {}, old_spec.get("names") or {}
    pairs = [
        ("spec.group", new_spec.get("group"), old_spec.get("group")),
        ("spec.names.plural", new_names.get("plural"), old_names.get("plural")),
    ]
    if is_established(old):
        pairs[:0] = [
            ("spec.scope", new_spec.get("scope"), old_spec.get("scope")),
            ("spec.names.kind", new_names.get("kind"), old_names.get("kind")),
        ]
    return [invalid(path, new, "field is immutable") for path, new, was in pairs if new != was]


def _spec_errors(crd: Map, old: Map | None) -> list[FieldError]:
    spec = spec_of(crd)
    versions = versions_of(crd)
    errors = _group_errors(spec.get("group") or "")
    scope = spec.get("scope") or ""
    if not scope:
        errors.append(required("spec.scope"))
    elif scope not in ("Cluster", "Namespaced"):
        errors.append(not_supported("spec.scope", scope, ("Cluster", "Namespaced")))
    shared = {
        key for key in _PER_VERSION if versions and all(_part(v, key) == _part(versions[0], key) for v in versions)
    }
    for index, version in enumerate(versions):
        if schema_of(version) is None:
            errors.append(required(f"spec.versions[{index}].schema.openAPIV3Schema"))
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        if faults := syntax.is_dns1035_label(version.get("name") or ""):
            errors.append(invalid(f"{path}.name", version.get("name") or "", ",".join(faults)))
        errors += _deprecation_errors(version, path)
        errors += _part_errors(version, path, [key for key in _PER_VERSION if key not in shared], "schema", old)
    errors += _version_set_errors(versions)
    names = spec.get("names") or {}
    errors += (
        required(f"spec.names.{key}") for key in ("plural", "singular", "kind", "listKind") if not names.get(key)
    )
    errors += _name_errors(names, "spec.names")
    if versions:
        errors += _part_errors(versions[0], "spec", [key for key in _PER_VERSION if key in shared], "validation", old)
    return errors + _conversion_errors(spec.get("conversion"), old)


_PER_VERSION: Final = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")


def _part(version: Map, key: str) -> Any:
    return version.get(key) or None


def _part_errors(version: Map, path: str, keys: Sequence[str], schema_name: str, old: Map | None) -> list[FieldError]:
    errors: list[FieldError] = []
    if "schema" in keys:
        errors += _schema_errors(version, f"{path}.{schema_name}", old)
    if "subresources" in keys:
        errors += _subresource_errors(version.get("subresources") or {}, f"{path}.subresources")
    if "additionalPrinterColumns" in keys:
        for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
            errors += _column_errors(column, f"{path}.additionalPrinterColumns[{index}]")
    if "selectableFields" in keys and version.get("selectableFields"):
        errors += _selectable_errors(version, f"{path}.selectableFields")
    return errors


def _schema_errors(version: Map, path: str, old: Map | None) -> list[FieldError]:
    schema = schema_of(version)
    if schema is None:
        return []
    has_status = (version.get("subresources") or {}).get("status") is not None
    if old is not None and _unchanged(version, old):
        return []
    place = f"{path}.openAPIV3Schema"
    errors = shape_errors(schema, place)
    if errors:
        return errors
    if has_status:
        errors += _root_errors(schema, place)
    if schema.get("nullable"):
        errors.append(forbidden(f"{place}.nullable", "nullable cannot be true at the root"))
    return errors + schema_errors(schema, place)


def _unchanged(version: Map, old: Map) -> bool:
    return any(
        each.get("name") == version.get("name")
        and schema_of(each) == schema_of(version)
        and (each.get("subresources") or {}).keys() == (version.get("subresources") or {}).keys()
        for each in versions_of(old)
    )


def _root_errors(schema: Map, path: str) -> list[FieldError]:
    """With a status subresource, the schema of the status is used alone: keywords at the root would be lost."""
    if schema.get("type") and schema["type"] != "object":
        text = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
        return [invalid(f"{path}.type", schema["type"], text)]
    if any(value and key not in _ROOT_KEYWORDS for key, value in schema.items()):
        text = (
            f"only [{' '.join(_ROOT_KEYWORDS.values())}] fields are allowed at the root of the schema "
            "if the status subresource is enabled"
        )
        return [invalid(path, schema, text)]
    return []


def _group_errors(group: str) -> list[FieldError]:
    if not group:
        return [required("spec.group")]
    if faults := syntax.is_dns1123_subdomain(group):
        return [invalid("spec.group", group, ",".join(faults))]
    if "." not in group:
        return [invalid("spec.group", group, "should be a domain with at least one dot")]
    return []


def _version_set_errors(versions: Sequence[Map]) -> list[FieldError]:
    errors = []
    listed = [version.get("name") for version in versions]
    if len(set(listed)) < len(listed):
        errors.append(invalid("spec.versions", listed, "must contain unique version names"))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        errors.append(invalid("spec.versions", listed, text))
    return errors


def _deprecation_errors(version: Map, path: str) -> list[FieldError]:
    text = version.get("deprecationWarning")
    if text is None:
        return []
    place = f"{path}.deprecationWarning"
    if not version.get("deprecated"):
        return [invalid(place, text, "can only be set for deprecated versions")]
    errors = []
    if len(text.encode("utf-8", "surrogatepass")) > 256:
        errors.append(invalid(place, text, "must be <= 256 characters long"))
    if not text:
        errors.append(invalid(place, text, "must not be an empty string"))
    for index, char in enumerate(text):
        if not char.isprintable():
            fault = (
                "must only contain printable UTF-8 characters; "
                f"non-printable character found at index {len(text[:index].encode())}"
            )
            errors.append(invalid(place, text, fault))
            break
    return errors


def _name_errors(names: Map, path: str) -> list[FieldError]:
    errors: list[FieldError] = []

    def check(key: str, value: str, shown: str, lead: str = "") -> None:
        if faults := syntax.is_dns1035_label(value):
            errors.append(invalid(f"{path}.{key}", shown, lead + ",".join(faults)))

    for key in ("plural", "singular"):
        if names.get(key):
            check(key, names[key], names[key])
    for key in ("kind", "listKind"):
        if names.get(key):
            check(key, names[key].lower(), names[key], "may have mixed case, but should otherwise match: ")
    for index, name in enumerate(names.get("shortNames") or ()):
        check(f"shortNames[{index}]", name, name)
    if names.get("kind") and names["kind"] == names.get("listKind"):
        errors.append(invalid(f"{path}.listKind", names["kind"], "kind and listKind may not be the same"))
    for index, name in enumerate(names.get("categories") or ()):
        check(f"categories[{index}]", name, name)
    return errors


def _column_errors(column: Map, path: str) -> list[FieldError]:
    errors = []
    if not column.get("name"):
        errors.append(required(f"{path}.name"))
    kind, choices = column.get("type"), f"must be one of {','.join(_COLUMN_TYPES)}"
    if not kind:
        errors.append(required(f"{path}.type", choices))
    elif kind not in _COLUMN_TYPES:
        errors.append(invalid(f"{path}.type", kind, choices))
    shape = column.get("format")
    if shape and shape not in _COLUMN_FORMATS:
        errors.append(invalid(f"{path}.format", shape, f"must be one of {','.join(_COLUMN_FORMATS)}"))
    if not column.get("jsonPath"):
        errors.append(required(f"{path}.JSONPath"))
    else:
        errors += _simple_path_errors(column["jsonPath"], f"{path}.JSONPath")
    return errors


def _simple_path_errors(text: str, path: str) -> list[FieldError]:
    if not text:
        return [invalid(path, text, "must not be empty")]
    if text[0] != ".":
        return [invalid(path, text, "must be a simple json path starting with .")]
    return []


def _subresource_errors(subresources: Map, path: str) -> list[FieldError]:
    scale = subresources.get("scale")
    if scale is None:
        return []
    errors: list[FieldError] = []
    for key, under in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        value, place = scale.get(key) or "", f"{path}.scale.{key}"
        if not value:
            errors.append(required(place))
        elif faults := _simple_path_errors(value, place):
            errors += faults
        elif not value.startswith(under):
            errors.append(invalid(place, value, f"should be a json path under {under[:-1]}"))
    selector, place = scale.get("labelSelectorPath"), f"{path}.scale.labelSelectorPath"
    if selector:
        if faults := _simple_path_errors(selector, place):
            errors += faults
        elif not selector.startswith((".spec.", ".status.")):
            errors.append(invalid(place, selector, "should be a json path under either .spec or .status"))
    return errors


def _selectable_errors(version: Map, path: str) -> list[FieldError]:
    schema = schema_of(version)
    if schema is None:
        return [invalid(path, "", "may only be set when `version.schema.openAPIV3Schema` is not included")]
    if shape_errors(schema, path):
        return []
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, each in enumerate(version["selectableFields"]):
        place, given = f"{path}[{index}].jsonPath", each.get("jsonPath") or ""
        if not given:
            errors.append(required(place))
            continue
        try:
            found, target = resolve(given, schema, brackets=False)
        except FieldPathError as error:
            errors.append(invalid(place, given, f"is an invalid path: {error}"))
            continue
        if found.split(".")[0] == "metadata":
            errors.append(invalid(place, given, "must not point to fields in metadata"))
        if target.get("type") not in ("string", "boolean", "integer"):
            text = (
                "must point to a field of type string, boolean or integer. "
                "Enum string fields and strings with formats are allowed."
            )
            errors.append(invalid(place, given, text))
        if found in seen:
            errors.append(duplicate(place, given))
        seen.add(found)
    if len(seen) > MAX_SELECTABLE_FIELDS:
        errors.append(too_many(path, len(seen), MAX_SELECTABLE_FIELDS))
    return errors


def _conversion_errors(conversion: Map | None, old: Map | None) -> list[FieldError]:
    if not conversion:
        return []
    path, strategy = "spec.conversion", conversion.get("strategy") or ""
    webhook = conversion.get("webhook") or {}
    config, reviews = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    errors: list[FieldError] = []
    if not strategy:
        errors.append(required(f"{path}.strategy"))
    elif strategy not in ("None", "Webhook"):
        errors.append(not_supported(f"{path}.strategy", strategy, ("None", "Webhook")))
    if strategy != "Webhook":
        text = "should not be set when strategy is not set to Webhook"
        if config is not None:
            errors.append(forbidden(f"{path}.webhookClientConfig", text))
        if reviews:
            errors.append(forbidden(f"{path}.conversionReviewVersions", text))
        return errors
    place = f"{path}.webhookClientConfig"
    if config is None:
        errors.append(required(place, "required when strategy is set to Webhook"))
    else:
        errors += client_config_errors(config, place)
        bundle = config.get("caBundle")
        if bundle and old is not None and is_established(old) and not _is_bundle(bundle):
            text = "unable to load root certificates: unable to parse bytes as PEM block"
            errors.append(invalid(f"{place}.caBundle", bundle, text))
    return errors + _review_errors(reviews, f"{path}.conversionReviewVersions")


def _is_bundle(text: str) -> bool:
    try:
        return b"-----BEGIN CERTIFICATE-----" in base64.b64decode(text)
    except (binascii.Error, ValueError):
        return False


def _review_errors(versions: Sequence[str], path: str) -> list[FieldError]:
    if not versions:
        return [required(path)]
    errors: list[FieldError] = []
    for index, version in enumerate(versions):
        if version in versions[:index]:
            errors.append(invalid(f"{path}[{index}]", version, "duplicate version"))
            continue
        errors += (invalid(f"{path}[{index}]", version, fault) for fault in syntax.is_dns1035_label(version))
    if not any(version in _REVIEW_VERSIONS for version in versions):
        errors.append(invalid(path, list(versions), f"must include at least one of {', '.join(_REVIEW_VERSIONS)}"))
    return errors


def warnings(crd: Obj) -> list[str]:
    """Texts for Warning headers: unrecognized formats, and sets that apply cannot merge."""
    found: list[str] = []
    sets: set[str] = set()
    for version in versions_of(crd):
        schema = schema_of(version)
        if schema is None or shape_errors(schema, ""):
            continue
        for each in walk(schema):
            shape = each.get("format")
            if shape and not recognized(each.get("type") or "", shape):
                found.append(f'unrecognized format "{shape}"')
            kind = (each.get("items") or {}).get("type") if each.get("x-kubernetes-list-type") == "set" else None
            if kind in ("object", "array"):
                sets.add(
                    f'x-kubernetes-list-type: set for items of type "{kind}" is not supported by server-side apply '
                    "or CEL validation rules"
                )
    return found + sorted(sets)
