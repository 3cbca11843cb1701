"""The rules of one kind: defaults, preparation of writes, and validation.

The order of a write is always: prune and canonicalise (schema) → ``default`` → ``prepare_*`` → ``validate_*``.
Every function takes the decoded object and may change it in place only where its name says so. ``old`` is never
changed. Objects have ``metadata`` as a dict, and ``spec``/``status`` only where present.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from shoal.errors import FieldError
from shoal.kube.objects import Obj


def _nothing(obj: Obj) -> None:
    """The default hook: does nothing."""


def _nothing_on_update(new: Obj, old: Obj) -> None:
    """The default hook for updates: does nothing."""


def _valid(obj: Obj) -> list[FieldError]:
    return []


def _valid_update(new: Obj, old: Obj) -> list[FieldError]:
    return []


def _no_warnings(obj: Obj) -> list[str]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecAlone:
    """For kinds with many objects of the same spec (pods): rules that depend on the spec alone are evaluated once per
    spec, the others (``*_rest``) for each object."""

    applies: Callable[[Obj], bool]  # False if rules of this spec depend on the metadata
    validate_rest: Callable[[Obj], list[FieldError]]
    warnings_rest: Callable[[Obj], list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRules:
    """The rules of one kind in one version. The server does what all kinds have in common: it validates metadata, drops
    the status on create, keeps it on update, and counts the generation."""

    default: Callable[[Obj], None] = _nothing  # fill in absent fields, in place
    prepare_create: Callable[[Obj], None] = _nothing  # reset fields that clients may not set, derive fields, in place
    prepare_update: Callable[[Obj, Obj], None] = _nothing_on_update  # (new, old): restore kept fields, in place
    prepare_status: Callable[[Obj, Obj], None] = _nothing_on_update  # (new, old) on /status; spec is already old's
    validate_create: Callable[[Obj], list[FieldError]] = _valid
    validate_update: Callable[[Obj, Obj], list[FieldError]] = _valid_update  # (new, old)
    validate_status: Callable[[Obj, Obj], list[FieldError]] = _valid_update  # (new, old) on /status
    name_errors: Callable[[str], list[str]] | None = None  # syntax of metadata.name; None: DNS-1123 subdomain
    warnings: Callable[[Obj], list[str]] = _no_warnings  # texts for Warning headers
    selectable: dict[str, Callable[[Obj], str]] = field(default_factory=dict)  # field selectors beyond metadata.*
    all_fields: Callable[[Obj], dict[str, str]] | None = None  # every selectable field at once, where speed matters
    spec_alone: SpecAlone | None = None
    indexed_fields: tuple[str, ...] = ()  # selectable fields with an index (spec.nodeName)
    subresource_prepare: dict[str, Callable[[Obj, Obj], None]] = field(default_factory=dict)  # (new, old), in place
    subresource_validation: dict[str, Callable[[Obj, Obj], list[FieldError]]] = field(default_factory=dict)


GENERIC = KindRules()
