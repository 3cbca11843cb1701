"""Query parameters and their parsing: moments, kinds, continue tokens, clusters."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated

import orjson
from msgspec import Meta, Struct, field

from shoal.errors import NotFound, invalid, not_supported
from shoal.navigator.answers.query.values import moment_s
from shoal.navigator.model import KINDS
from shoal.navigator.view import View
from shoal.rest.answers import bad_query

MAX_LIMIT = 1000

Limit = Annotated[int, Meta(ge=1, le=MAX_LIMIT, description="The largest number of items to return")]
Moment = Annotated[str, Meta(max_length=64)]
OfCluster = Annotated[str, Meta(description="Only of this cluster")]
OfNamespace = Annotated[str, Meta(description="Only of this namespace")]
OfKinds = Annotated[
    str, Meta(description=f"Only these kinds, separated by commas: {', '.join(KINDS)}")
]  # fmt: skip


class At(Struct, frozen=True, kw_only=True):
    at: Annotated[
        Moment, Meta(description="State at a moment: `2026-01-31T12:00:00Z`, or how long ago: `5m`, `2h`, `1d`")
    ] = ""  # fmt: skip


class Paged(At, frozen=True, kw_only=True):
    limit: Limit = 100
    position: Annotated[str, Meta(max_length=4096, description="The `continue` token of the previous page")] = field(
        name="continue", default=""
    )


class ListParameters(Paged, frozen=True, kw_only=True):
    cluster: OfCluster = ""
    namespace: OfNamespace = ""


def moment_of(parameter: str, text: str, now_s: float) -> float | None:
    """None for an empty text; never later than now."""
    if not text:
        return None
    at_s = moment_s(text, now_s)
    if at_s is None:
        hint = "must be a moment such as 2026-01-31T12:00:00Z, or how long ago: 5m, 2h, 1d"
        raise bad_query(invalid(parameter, text, hint))
    if at_s > now_s + 1:
        raise bad_query(invalid(parameter, text, "must not be in the future"))
    return at_s


def kinds_of(text: str) -> tuple[str, ...]:
    """Kinds by name, with commas between them."""
    found = tuple(part.strip().lower() for part in text.split(",") if part.strip())
    for kind in found:
        if kind not in KINDS:
            raise bad_query(not_supported("kind", kind, KINDS))
    return found


def known_cluster(view: View, name: str) -> str:
    """The name of a cluster that is known, or empty."""
    if name and view.cluster(name) is None:
        raise no_cluster(view, name)
    return name


def no_cluster(view: View, name: str) -> NotFound:
    known = [each.name for each in view.clusters()]
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return NotFound(f"cluster {name[:100]!r} not found; did you mean {near[0]}?")
    return NotFound(f"cluster {name[:100]!r} not found (existing clusters: {', '.join(known[:20]) or 'none'})")


def position_of(parts: Sequence[str]) -> str:
    """A continue token: the position at which a list continues."""
    return base64.urlsafe_b64encode(orjson.dumps(list(parts))).decode().rstrip("=")


def parts_of_position(text: str, count: int) -> tuple[str, ...] | None:
    """The position in a continue token; None at the beginning."""
    if not text:
        return None
    try:
        found = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, binascii.Error):
        found = None
    if not isinstance(found, list) or len(found) != count or not all(isinstance(part, str) for part in found):
        raise bad_query(invalid("continue", text[:64], "is not a valid token: use the one of the previous page"))
    return tuple(found)
