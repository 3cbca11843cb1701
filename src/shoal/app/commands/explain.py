"""``shoal explain``: what a field of an object means; with a name, what ``shoal why`` says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.app.commands.why import why_app, why_pod
from shoal.cli.apps import new_app
from shoal.cli.fleet.field_docs import field_at, fields_below, text_of
from shoal.cli.fleet.kinds import is_kind, kind_called
from shoal.cli.fleet.session import Environment, Project, opened
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, put
from shoal.errors import ConfigError

app = new_app("Say what a field of an object means.")


@app.command()
def explain(
    field: Annotated[
        str, typer.Argument(metavar="FIELD", help="KIND or KIND.FIELD.FIELD, for example app.spec.rollout")
    ],
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="an app or a pod: the same as `shoal why KIND NAME`")
    ] = "",
    recursive: Annotated[bool, typer.Option("--recursive", help="also the fields of fields, without texts")] = False,
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="for a pod; default: the kubeconfig's")] = "",
    dir: Annotated[Path | None, typer.Option(help="for a pod: state directory of a cluster on this machine")] = None,
    kubeconfig: Annotated[str, typer.Option(help="for a pod: kubeconfig of any Kubernetes cluster")] = "",
    context: ContextName = "",
) -> None:
    """Say what a field of an object means, and which fields it has: `shoal explain app.spec.rollout`. With a name, say
    why that app or pod is where it is, as `shoal why` does."""
    if name and field == "pod":
        why_pod(name, namespace, output, dir, kubeconfig, context)
    elif name and field == "app":
        why_app(name, output, project, environment, context)
    elif name:
        raise ConfigError(f"kind is {field!r}: `shoal why` knows app and pod; `shoal describe {field} {name}` shows it")
    elif not is_kind(field.partition(".")[0]):  # the name of an app, as it was before there were fields
        typer.echo(f"note: `shoal explain {field}` is now `shoal why {field}`", err=True)
        why_app(field, output, project, environment, context)
    else:
        word, _, path = field.partition(".")
        with opened(context) as session:
            document = session.rest.get("/openapi.json")
        found = field_at(document, kind_called(word).name, tuple(path.split(".")) if path else ())
        put(fields_below(document, found), output, lambda: text_of(document, found, recursive=recursive))
