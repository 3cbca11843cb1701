"""`shoal up` hands a changed certificate authority to what it has set up: the join files of agents and edges, which
they read at each connection, and the context of the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shoal.base.clock import Clock
from shoal.base.files import write_private
from shoal.base.logs import get_logger
from shoal.cli.contexts import Contexts, read_contexts, write_contexts

log = get_logger("authorities")

_LOOK_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trusting:
    """Who trusts the authorities of a control plane and a navigator, in these directories."""

    control: Path
    navigator: Path
    agents: Sequence[Path]  # join files
    edges: Sequence[Path]
    home: Path  # of the command line
    context: str


async def follow_authorities(who: Trusting, clock: Clock) -> None:
    """Until cancelled."""
    seen: tuple[str, str] | None = None
    while True:
        found = _authorities(who.control), _authorities(who.navigator)
        if found != seen:
            hand_out_authorities(who)
            seen = found
        await clock.sleep(_LOOK_S)


def hand_out_authorities(who: Trusting) -> None:
    """Write what is trusted now to every file that has something else."""
    control, navigator = _authorities(who.control), _authorities(who.navigator)
    for authorities, paths in ((control, who.agents), (navigator, who.edges)):
        for path in paths:
            if authorities and path.exists():
                _update(path, authorities)
    contexts = read_contexts(who.home)
    known = contexts.known.get(who.context)
    if known is not None:
        new = replace(known, ca=control or known.ca, navigator_ca=navigator or known.navigator_ca)
        if new != known:
            write_contexts(who.home, Contexts({**contexts.known, who.context: new}, contexts.current))


def _update(path: Path, authorities: str) -> None:
    held = json.loads(path.read_bytes())
    if held.get("ca") != authorities:
        write_private(path, json.dumps({**held, "ca": authorities}, indent=2).encode())
        log.info("a join file has the new authorities", path=str(path))


def _authorities(folder: Path) -> str:
    try:
        return (folder / "pki" / "ca.crt").read_text()
    except FileNotFoundError:
        return ""
