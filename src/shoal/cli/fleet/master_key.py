"""``shoal master-key``: shows and rotates the master keys that encrypt the secrets of a fleet."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from shoal.cli.apps import moved, new_app
from shoal.cli.fleet.kinds import ROOT
from shoal.cli.fleet.session import opened
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, put, put_rows
from shoal.cli.rest import CannotReach, Rest
from shoal.errors import ShoalError

app = new_app("Rotate the master key that encrypts the secrets, and show the keys in use.", group=True)

_PATH = f"{ROOT}/master-keys"
_COLUMNS = ("master_key", "seals", "secrets")


class NotMoved(ShoalError):
    """Some secrets are still encrypted with an older master key."""


@app.command("list")
def list_(output: Output = Format.TABLE, context: ContextName = "") -> None:
    """Show the master keys in use and how many secrets each encrypts. A key that is not listed can be deleted."""
    with opened(context) as session:
        found = session.rest.get(_PATH)
    counts = {each["masterKey"]: each["secrets"] for each in found["inUse"]}
    rows = [
        {"master_key": key, "seals": "yes" if key == found["current"] else "no", "secrets": count}
        for key, count in sorted(({found["current"]: 0} | counts).items(), key=lambda pair: pair[0] != found["current"])
    ]
    names = {"items": [{"name": row["master_key"]} for row in rows]}
    put_rows(rows, _COLUMNS, output, value=names if output == Format.NAME else found)


@app.command("rotate")
def rotate(
    new_key: Annotated[
        bool,
        typer.Option(
            "--new-key/--no-new-key",
            help="create a new master key first; turn it off if another system creates the keys",
        ),
    ] = True,
    output: Output = Format.TABLE,
    context: ContextName = "",
) -> None:
    """Create a new master key and re-encrypt every secret with it, without downtime. After an interruption, continue
    with --no-new-key."""
    with opened(context) as session:
        done = move_all(session.rest, new_key=new_key)
    put(done, output, lambda: f"{done['moved']} secrets re-encrypted with master key {done['masterKey']}\n")
    if done["unmoved"]:
        lines = [f"  {each['name']}: {each['why']}" for each in done["unmoved"]]
        raise NotMoved(
            "\n".join([f"{len(lines)} secrets are still encrypted with older master keys; keep those keys:", *lines])
        )


def move_all(rest: Rest, *, new_key: bool) -> dict[str, Any]:
    """Repeat the request until no secret is left; print progress to standard error."""
    moved, wanted = 0, new_key
    while True:
        try:
            done = rest.request("POST", f"{_PATH}/rotate", {"newKey": wanted}).body
        except CannotReach as error:
            hint = f"{moved} secrets were re-encrypted; continue with `shoal master-key rotate --no-new-key`"
            raise CannotReach(f"{error}\n{hint}") from None
        wanted = False
        moved += done["moved"]
        if done["complete"]:
            return {"masterKey": done["masterKey"], "moved": moved, "unmoved": list(done["unmoved"])}
        typer.echo(f"{moved} secrets re-encrypted, {done['remaining']} left", err=True)


moved(app, "keys", to="shoal master-key list", target=app, words=["list"])
