"""Hints printed below an error: the command or value that fixes it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.cli.fleet.session import FleetSession

_quoted = re.compile(r'Not found: "([^"]*)"')


def hints(session: FleetSession, details: Sequence[Mapping[str, str]], metadata: Mapping[str, Any]) -> list[str]:
    """One line per error that has a known fix."""
    found = [_hint(session, each, metadata) for each in details]
    return list(dict.fromkeys(each for each in found if each))


def _hint(session: FleetSession, fault: Mapping[str, str], metadata: Mapping[str, Any]) -> str:
    field, message = fault.get("field", ""), fault.get("message", "")
    missing = _quoted.search(message)
    if message.startswith("Required") and field.endswith(("metadata.project", "metadata.environment")):
        part = field.rpartition(".")[2]
        return f"set it in the document, or for all documents with --{part}, $SHOAL_{part.upper()} or the context"
    if missing is None:
        return ""
    name, project = missing[1], str(metadata.get("project") or "")
    environment = str(metadata.get("environment") or "")
    if field.endswith("metadata.project"):
        return _known(f"create it with `shoal create project {name}`", session.names("Project"))
    if field.endswith("metadata.environment"):
        fix = f"create it with `shoal create environment {name} --project {project}`"
        return _known(fix, session.names("Environment", project))
    if field.endswith("region"):
        return _known("use a region of the fleet", session.names("Region"))
    if field.endswith("cluster"):
        return _known("use a cluster of the fleet", session.names("Cluster"))
    if field.startswith("spec.rollout") and field.endswith(".secret"):
        fix = f"create it with `shoal create credential {name} --project {project} --environment {environment} …`"
        return _known(fix, session.names("Credential", project, environment))
    if ".secrets[" in field:
        fix = f"create it with `shoal create secret {name} --project {project} --environment {environment} …`"
        return _known(fix, session.names("Secret", project, environment))
    return ""


def _known(fix: str, names: Sequence[str]) -> str:
    return f"{fix} (existing: {', '.join(names[:10])})" if names else f"{fix} (none exist yet)"
