"""The ``shoal`` command. Knows every command by name and summary and imports only the one that runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from shoal import __version__
from shoal.cli.catalog import Command
from shoal.cli.dispatch import run

_START = "Start and stop"
_STATE = "Look after the state"
_HELP = "Find out"

COMMANDS = (
    Command(
        name="up",
        group=_START,
        summary="start everything there is, with its state in one directory; Ctrl-C ends it",
        target="shoal.app.commands.up:app",
    ),
    Command(
        name="down",
        group=_START,
        summary="stop what `shoal up` or `shoal cluster start` runs in a directory",
        target="shoal.app.commands.down:app",
    ),
    Command(
        name="cluster",
        group=_START,
        summary="run one Kubernetes-compatible cluster",
        target="shoal.app.commands.cluster:app",
    ),
    Command(
        name="token",
        group=_STATE,
        summary="make, list and revoke the bearer tokens of a cluster",
        target="shoal.app.commands.token:app",
    ),
    Command(
        name="store",
        group=_STATE,
        summary="move a cluster's objects between SQLite and PostgreSQL",
        target="shoal.app.commands.store:app",
    ),
    Command(
        name="explain",
        group=_HELP,
        summary="say why a pod is on its node, or on none",
        target="shoal.app.commands.explain:app",
    ),
    Command(
        name="doctor",
        group=_HELP,
        summary="check this machine for what Shoal needs",
        target="shoal.app.commands.doctor:app",
    ),
    Command(
        name="version",
        group=_HELP,
        summary="print the versions of Shoal and of what it runs on",
        target="shoal.app.commands.version:app",
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    return run(sys.argv[1:] if argv is None else argv, COMMANDS, version=__version__)
