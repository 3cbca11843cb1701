"""``shoal whoami``: whom the token of the context stands for."""

from __future__ import annotations

from typing import Any

from shoal.cli.apps import new_app
from shoal.cli.fleet.kinds import ROOT
from shoal.cli.fleet.session import opened
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, facts, put

app = new_app("Show whom the token of the current context stands for.")


@app.command()
def whoami(output: Output = Format.TABLE, context: ContextName = "") -> None:
    """Show the name, the role and the workspace of the token of the context, and the control plane that knows it."""
    with opened(context) as session:
        answer = session.rest.get(ROOT)
        known = session.rest.context
    found: dict[str, Any] = {
        **answer["you"], "context": known.name, "url": known.url, "fleet": answer["fleet"],
        "version": answer["version"], "project": session.project, "environment": session.environment,
    }  # fmt: skip
    put(found, output, lambda: facts(list(found.items())), name=lambda one: str(one["name"]))
