"""``rotate-ca`` of a cluster, a control plane and a navigator: replaces the authority of its certificates."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from shoal.base.clock import RealClock
from shoal.cli.durations import seconds_of
from shoal.errors import ConfigError

Overlap = Annotated[
    str, typer.Option(help="how long both authorities are trusted before the new one signs, and again after that")
]
MONTH = "30d"


def rotate_ca(folder: Path, overlap: str) -> None:
    """Begin the rotation of the authority in ``folder/pki`` and print what happens when."""
    from shoal.app.pki import Pki, changing

    if not (folder / "pki" / "ca.crt").exists():
        raise ConfigError(f"dir is {str(folder)!r}: no authority found there; choose another with --dir")
    lasts = timedelta(seconds=seconds_of("overlap", overlap))
    with changing(folder / "pki"):
        pki = Pki(folder / "pki", now=RealClock().now())
        rotation = pki.rotate_ca(lasts)
    typer.echo(f"a new authority is trusted from now on; {pki.ca_cert} has both")
    typer.echo(
        f"it signs from {rotation.switch_at:%Y-%m-%d %H:%M:%S} UTC on: replace kubeconfigs and join files before"
    )
    typer.echo(f"the old one is forgotten at {rotation.drop_at:%Y-%m-%d %H:%M:%S} UTC")
    typer.echo("running processes follow; nothing has to be restarted")
