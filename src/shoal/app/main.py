"""The ``shoal`` command. Knows every command by name and summary and imports only the one that runs."""

from __future__ import annotations

import sys

from shoal import __version__
from shoal.cli.catalog import Command
from shoal.cli.dispatch import run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_APPS = "Run applications"
_SEE = "See all clusters at once"
_FLEET = "Look after the fleet"
_START = "Start and stop"
_STATE = "Look after the state"
_HELP = "Find out"

COMMANDS = (
    Command(
        name="apply",
        group=_APPS,
        summary="create or change the objects that files describe",
        target="shoal.cli.fleet.apply:app",
    ),
    Command(
        name="diff",
        group=_APPS,
        summary="show what applying files would change",
        target="shoal.cli.fleet.diff:app",
    ),
    Command(
        name="create",
        group=_APPS,
        summary="create a project, an environment or a secret without a file",
        target="shoal.cli.fleet.create:app",
    ),
    Command(
        name="edit",
        group=_APPS,
        summary="change an object in an editor",
        target="shoal.cli.fleet.changing:edit_app",
    ),
    Command(
        name="set",
        group=_APPS,
        summary="change the image or the variables of an app",
        target="shoal.cli.fleet.changing:set_app",
    ),
    Command(
        name="get",
        group=_APPS,
        summary="show objects",
        target="shoal.cli.fleet.get:app",
    ),
    Command(
        name="describe",
        group=_APPS,
        summary="show one object in full",
        target="shoal.cli.fleet.describe:app",
    ),
    Command(
        name="status",
        group=_APPS,
        summary="show the desired and the actual state, and why they differ",
        target="shoal.cli.fleet.status:app",
    ),
    Command(
        name="why",
        group=_APPS,
        summary="say why an app, gateways or a pod are where they are, and what they lack",
        target="shoal.app.commands.why:app",
        extra="cluster",
    ),
    Command(
        name="wait",
        group=_APPS,
        summary="wait until an app is ready, a rollout is done or an object is gone",
        target="shoal.cli.fleet.wait:app",
    ),
    Command(
        name="events",
        group=_APPS,
        summary="show events",
        target="shoal.cli.fleet.events:app",
    ),
    Command(
        name="history",
        group=_APPS,
        summary="show the revisions of an app, and the changes of an object with their authors",
        target="shoal.cli.fleet.history:app",
    ),
    Command(
        name="scale",
        group=_APPS,
        summary="change how many instances of an app run",
        target="shoal.cli.fleet.scale:app",
    ),
    Command(
        name="stop",
        group=_APPS,
        summary="stop an app everywhere, and keep everything else of it",
        target="shoal.cli.fleet.running:stop",
    ),
    Command(
        name="start",
        group=_APPS,
        summary="start an app that was stopped",
        target="shoal.cli.fleet.running:start",
    ),
    Command(
        name="restart",
        group=_APPS,
        summary="replace all instances of an app",
        target="shoal.cli.fleet.running:restart",
    ),
    Command(
        name="rollback",
        group=_APPS,
        summary="go back to an earlier revision of an app",
        target="shoal.cli.fleet.rollback:app",
    ),
    Command(
        name="rollout",
        group=_APPS,
        summary="show and steer how a new revision of an app replaces the old one",
        target="shoal.cli.fleet.rollouts:app",
    ),
    Command(
        name="import",
        group=_APPS,
        summary="write an App for a Deployment that runs in a cluster",
        target="shoal.cli.fleet.import_app:app",
    ),
    Command(
        name="move",
        group=_APPS,
        summary="move an app to another cluster of its region",
        target="shoal.cli.fleet.move:app",
    ),
    Command(
        name="delete",
        group=_APPS,
        summary="delete objects",
        target="shoal.cli.fleet.delete:app",
    ),
    Command(
        name="sentinels",
        group=_APPS,
        summary="end the wait for a gateway that does not take its routes",
        target="shoal.cli.fleet.sentinels:app",
        aliases=("gateways",),
    ),
    Command(
        name="query",
        group=_SEE,
        summary="query objects: \"pods where image ~ 'v2' and region = 'eu' and not ready\"",
        target="shoal.cli.navigator.query:app",
    ),
    Command(
        name="services",
        group=_SEE,
        summary="show services with their endpoints, ready or not",
        target="shoal.cli.navigator.services:app",
    ),
    Command(
        name="mesh",
        group=_SEE,
        summary="show the Istio resources of a workload, and the service graph",
        target="shoal.cli.navigator.mesh:app",
    ),
    Command(
        name="logs",
        group=_SEE,
        summary="show the logs of an app's pods",
        target="shoal.cli.navigator.logs:app",
    ),
    Command(
        name="search",
        group=_SEE,
        summary="find objects of any kind by text",
        target="shoal.cli.navigator.search:app",
    ),
    Command(
        name="lint",
        group=_SEE,
        summary="show mistakes in the mesh configuration, and how to fix them",
        target="shoal.cli.navigator.lint:app",
    ),
    Command(
        name="changes",
        group=_SEE,
        summary="show the differences between two points in time or two clusters",
        target="shoal.cli.navigator.changes:app",
    ),
    Command(
        name="checks",
        group=_SEE,
        summary="save queries as checks, and show their results",
        target="shoal.cli.navigator.checks:app",
    ),
    Command(
        name="agents",
        group=_FLEET,
        summary="show the agents of the clusters, and confirm deletions that they hold back",
        target="shoal.cli.fleet.agents:app",
    ),
    Command(
        name="token",
        group=_FLEET,
        summary="create, list, rotate and revoke the tokens of a control plane or a cluster",
        target="shoal.app.commands.token:app",
        extra="cluster",
    ),
    Command(
        name="workspaces",
        group=_FLEET,
        summary="list, create and delete the workspaces of the fleet",
        target="shoal.cli.fleet.workspaces:app",
    ),
    Command(
        name="audit",
        group=_FLEET,
        summary="show who changed what in the workspace",
        target="shoal.cli.fleet.audit:app",
    ),
    Command(
        name="master-key",
        group=_FLEET,
        summary="rotate the master key that encrypts the secrets, and show the keys in use",
        target="shoal.cli.fleet.master_key:app",
        old_names=("secrets",),
    ),
    Command(
        name="config",
        group=_FLEET,
        summary="choose the control plane that commands talk to; check and show the settings of processes",
        target="shoal.app.commands.config:app",
    ),
    Command(
        name="open",
        group=_SEE,
        summary="print a link that logs a browser in to the page",
        target="shoal.cli.fleet.open_page:app",
    ),
    Command(
        name="whoami",
        group=_FLEET,
        summary="show whom the token of the current context stands for",
        target="shoal.cli.fleet.whoami:app",
    ),
    Command(
        name="up",
        group=_START,
        summary="start the whole system on this machine, with its state in one directory; Ctrl-C stops it",
        target="shoal.app.commands.up:app",
        extra="all",
    ),
    Command(
        name="down",
        group=_START,
        summary="stop the processes of a state directory",
        target="shoal.app.commands.down:app",
        extra="cluster",
    ),
    Command(
        name="cluster",
        group=_START,
        summary="let a Kubernetes cluster join the fleet or leave it; run one Kubernetes-compatible cluster",
        target="shoal.app.commands.cluster:app",
        extra="cluster",
    ),
    Command(
        name="control",
        group=_START,
        summary="run the control plane of a fleet",
        target="shoal.app.commands.control:app",
        extra="server",
    ),
    Command(
        name="krane",
        group=_START,
        summary="run the agent that applies the control plane's desired state to a cluster",
        target="shoal.app.commands.krane:app",
        extra="agent",
        aliases=("agent",),
    ),
    Command(
        name="sentinel",
        group=_START,
        summary="run a gateway",
        target="shoal.app.commands.sentinel:app",
        extra="gateway",
        aliases=("gateway",),
    ),
    Command(
        name="shard",
        group=_START,
        summary="run the manager, a worker or a proxy of a sharded controller",
        target="shoal.app.commands.shard:app",
        extra="agent",
    ),
    Command(
        name="navigator",
        group=_START,
        summary="run the navigator, the live view of all clusters: its manager, or the edge of a cluster",
        target="shoal.app.commands.navigator:app",
        extra="server",
        extra_of=(("edge", "agent"),),
    ),
    Command(
        name="store",
        group=_STATE,
        summary="move a cluster's objects between SQLite and PostgreSQL",
        target="shoal.app.commands.store:app",
        extra="cluster",
    ),
    Command(
        name="image",
        group=_STATE,
        summary="load, list and remove the images of a cluster with sandboxes",
        target="shoal.app.commands.image:app",
        extra="cluster",
    ),
    Command(
        name="backup",
        group=_STATE,
        summary="back up and restore clusters, the control plane and the navigator",
        target="shoal.app.commands.backup:app",
        extra="server",
    ),
    Command(
        name="explain",
        group=_HELP,
        summary="say what a field of an object means",
        target="shoal.app.commands.explain:app",
    ),
    Command(
        name="completion",
        group=_HELP,
        summary="print the completion script of a shell",
        target="shoal.app.commands.completion:app",
    ),
    Command(
        name="examples",
        group=_HELP,
        summary="write the files that the guides apply to a folder",
        target="shoal.app.commands.examples:app",
    ),
    Command(
        name="doctor",
        group=_HELP,
        summary="check this machine, its state, Envoy and the fleet, and name the fix of each problem",
        target="shoal.app.commands.doctor:app",
    ),
    Command(
        name="support-bundle",
        group=_HELP,
        summary="collect logs, versions, settings and metrics in one file, without secrets",
        target="shoal.app.commands.support_bundle:app",
    ),
    Command(
        name="version",
        group=_HELP,
        summary="print the versions of Shoal, Python and SQLite",
        target="shoal.app.commands.version:app",
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    return run(sys.argv[1:] if argv is None else argv, COMMANDS, version=__version__)
