"""What ``shoal doctor`` finds in a state directory: space, readable keys, certificates, processes that are gone."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from shoal.app.findings import Finding, failed, ok, warning
from shoal.app.home import ENDPOINTS, UP_LOCK
from shoal.base.files import holder_of

_LOW_BYTES, _FULL_BYTES = 2_000_000_000, 200_000_000
_SOON = timedelta(days=14)  # running processes renew earlier
_SHOWN = 3


def state_checks(state: Path, now: datetime) -> Iterator[Finding]:
    """Every check of a state directory; of one that does not exist yet, only the space for it."""
    yield _space(state)
    if state.is_dir():
        yield _keys(state)
        yield _certificates(state, now)
        yield _processes(state)


def _space(state: Path) -> Finding:
    existing = next(path for path in (state, *state.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    shown = f"{free / 1e9:.1f} GB free at {existing}"
    if free < _FULL_BYTES:
        return failed("disk", shown, f"make room there: `du -sh {state}/*` shows what takes it; or choose --dir")
    if free < _LOW_BYTES:
        return warning("disk", shown, f"make room there: `du -sh {state}/*` shows what takes it")
    return ok("disk", shown)


def _keys(state: Path) -> Finding:
    """Keys and tokens that other users of the machine can read, unless they cannot enter the folder."""
    paths = [path for pattern in ("*.key", "*.token", "kubeconfig") for path in state.rglob(pattern) if path.is_file()]
    open_ = [path for path in sorted(paths) if path.stat().st_mode & 0o077 and _others_enter(path.parent)]
    if not open_:
        return ok("keys", f"{len(paths)} files that only their owner can read")
    more = f" and {len(open_) - _SHOWN} more" if len(open_) > _SHOWN else ""
    shown = ", ".join(str(path) for path in open_[:_SHOWN])
    return failed("keys", f"others can read {shown}{more}", f"run: chmod 600 {shown.replace(',', '')}")


def _others_enter(folder: Path) -> bool:
    return all(each.stat().st_mode & 0o011 for each in (folder, *folder.parents))


def _certificates(state: Path, now: datetime) -> Finding:
    from cryptography import x509  # takes as long as all other checks

    ends: list[tuple[datetime, Path]] = []
    for path in state.rglob("pki/*.crt"):
        try:
            found = x509.load_pem_x509_certificates(path.read_bytes())
        except (OSError, ValueError):
            return failed("certificates", f"{path} is no certificate", f"restore it from a backup, or remove {path}")
        ends += [(each.not_valid_after_utc, path) for each in found[:1]]
    if not ends:
        return ok("certificates", "none yet")
    end, path = min(ends)
    shown = f"{path} ends on {end:%Y-%m-%d}"
    rotate = "shoal control rotate-ca, or the same of cluster and navigator"
    fix = f"run: {rotate}" if path.stem == "ca" else "start its process again: it renews the certificate"
    if end <= now:
        return failed("certificates", f"{path} ended on {end:%Y-%m-%d}", fix)
    return warning("certificates", shown, fix) if end - now < _SOON else ok("certificates", f"the first, {shown}")


def _processes(state: Path) -> Finding:
    """Processes of `shoal up`."""
    path = state / ENDPOINTS
    try:
        known: Any = json.loads(path.read_text())
    except (OSError, ValueError):
        return ok("processes", "`shoal up` does not run")
    pids = {name: known[name]["pid"] for name in ("control", "navigator") if known.get(name)}
    pids |= {f"cluster {each['name']}": each["pid"] for each in known.get("clusters") or ()}
    gone = [f"{name} ({pid})" for name, pid in pids.items() if not _lives(pid)]
    if holder_of(state / UP_LOCK) is None:
        left = [f"{name} ({pid})" for name, pid in pids.items() if _lives(pid)]
        if left:
            fix = f"run: shoal down --dir {state}, then shoal up"
            return failed("processes", f"`shoal up` was killed, and left {', '.join(left)}", fix)
        return warning("processes", "`shoal up` was killed", f"run: shoal up --dir {state}; the state is kept")
    if gone:
        fix = f"look at their logs in {state}; `shoal up` starts them again, else run: shoal down, then shoal up"
        return failed("processes", f"ended: {', '.join(gone)}", fix)
    return ok("processes", f"{len(pids)} of `shoal up`")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
