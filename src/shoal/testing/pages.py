"""What a page in a browser makes of what its stream says. See ``shoal.dashboard.live.plan``."""

from __future__ import annotations

from shoal.dashboard.live.plan import Patch, Row, Rows


def applied(rows: Rows, patch: Patch) -> dict[str, Row]:
    """The rows after a difference; what was there is left as it is."""
    found = {key: known for key, known in rows.items() if key not in patch.dropped}
    for key, fields in patch.changed.items():
        known = {**found.get(key, {}), **fields}
        found[key] = {name: value for name, value in known.items() if value is not None}
    return found
