"""``shoal control``: runs the control plane of a fleet or the relay of a region, and exports credentials to share."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.app.commands.options import CertificateNames, LogLevel, ReloadedConfig, StopOnEof
from shoal.app.commands.rotate_ca import MONTH, Overlap, rotate_ca
from shoal.app.home import directory
from shoal.app.processes import run_until_signal, say_ready, start_logs, stop_when_stdin_ends
from shoal.app.settings import CONTROL, read_settings
from shoal.cli.apps import new_app

app = new_app("Run the control plane of a fleet.", group=True)
credentials_app = new_app("Share credentials between the control planes of one fleet.", group=True)
app.add_typer(credentials_app, name="credentials")


@app.command("start")
def start(
    dir: Annotated[
        Path | None, typer.Option(help="state directory; default `control` in $SHOAL_HOME, else in ~/.shoal")
    ] = None,
    config: ReloadedConfig = None,
    port: Annotated[
        int | None,
        typer.Option(
            help="port of the REST API and of agents; default: the last one used, else 7400 or the next free port"
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="address to listen on; default 127.0.0.1")] = None,
    page_port: Annotated[
        int | None,
        typer.Option(
            help="port of 127.0.0.1 on which the page is also served without TLS, to browsers of this machine; 0: the "
            "last one used, else 7480 or the next free port; default: none"
        ),
    ] = None,
    database: Annotated[
        list[str] | None,
        typer.Option(
            help="sqlite:///PATH or postgresql://USER@HOST/DATABASE; may be repeated as NAME=URL; default SQLite in "
            "the directory",
            envvar="SHOAL_DATABASE",
        ),
    ] = None,
    workspace: Annotated[
        list[str] | None, typer.Option(help="WORKSPACE=DATABASE: a workspace that is not in the first database")
    ] = None,
    events: Annotated[
        str | None,
        typer.Option(help="redis://HOST:PORT that carries wake-ups between control planes"),
    ] = None,
    master_key: Annotated[
        str | None,
        typer.Option(
            help="file:PATH, env:NAME or vault:https://HOST:8200/transit/NAME; default $SHOAL_MASTER_KEY, else a file "
            "in the directory"
        ),
    ] = None,
    credentials: Annotated[
        Path | None,
        typer.Option(help="file from `shoal control credentials export`, or state directory of another control plane"),
    ] = None,
    join_url: Annotated[
        list[str] | None,
        typer.Option(
            help="URL in the join files of agents, the preferred one first; may be repeated; default: --advertise-url, "
            "then those of the control planes that --credentials came from"
        ),
    ] = None,
    advertise_url: Annotated[
        list[str] | None,
        typer.Option(
            help="URL at which clusters and users reach it, in its certificate, in join files and contexts; may be "
            "repeated, preferred first; default: its address on this machine"
        ),
    ] = None,
    navigator: Annotated[
        Path | None,
        typer.Option(
            help="folder with url, ca.crt and tokens/WORKSPACE, for query checks of rollouts; default `navigator` in "
            "the directory"
        ),
    ] = None,
    tls_san: CertificateNames = None,
    relay: Annotated[
        str | None, typer.Option(metavar="URL", help="run a region's relay of the control plane at this URL")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="relay only: file with the output of `shoal token create --kind relay`")
    ] = None,
    ca: Annotated[
        Path | None, typer.Option(help="relay only: CA of the control plane's certificate; default: the join file's")
    ] = None,
    log_level: LogLevel = None,
    stop_on_eof: StopOnEof = False,
) -> None:
    """Start a control plane, or with --relay the relay of a region, and print `ready URL` when it serves requests.
    SIGTERM or Ctrl-C stops it; SIGHUP reads the settings again. SHOAL_CONTROL_* variables set them too."""
    from shoal.app.fleet.config import DYNAMIC, ControlOptions
    from shoal.app.fleet.reloading import Reloading

    flags: dict[str, Any] = {
        "dir": dir, "port": port, "host": host, "page_port": page_port,
        "database": tuple(database) if database else None,
        "workspace": tuple(workspace) if workspace else None, "events": events, "master_key": master_key,
        "credentials": credentials, "join_url": tuple(join_url) if join_url else None,
        "tls_san": tuple(tls_san) if tls_san else None, "relay": relay, "token_file": token_file, "ca": ca,
        "navigator": navigator, "log_level": log_level,
        "advertise_url": tuple(advertise_url) if advertise_url else None,
    }  # fmt: skip

    def read() -> ControlOptions:
        home = directory(None)
        found: ControlOptions = read_settings(CONTROL, flags, file=config, home=home)
        of_relay = bool(found.relay) and found.dir == home / "control"
        return replace(found, dir=home / "relay") if of_relay else found

    options = read()
    start_logs(options.log_level)
    if stop_on_eof:
        stop_when_stdin_ends()
    _run(options, Reloading(read, options, DYNAMIC), is_child=stop_on_eof)


def _run(options: Any, reloading: Any, *, is_child: bool) -> None:
    """A ``is_child`` belongs to `shoal up` or a test, which have contexts of their own."""
    from shoal.app.fleet.config import opened_config, opened_relay

    if options.relay:
        from shoal.app.fleet.relay import run_relay

        with opened_relay(options) as settings:

            def pass_on(stop: asyncio.Event) -> object:
                return run_relay(settings, stop, lambda: say_ready(settings.own_url))

            run_until_signal(pass_on, reloading, traced="shoal-relay")
        return
    from shoal.app.fleet.control import run_control

    with opened_config(options) as decided:

        def ready() -> None:
            say_ready(decided.url)
            if not is_child:
                _tell(decided)

        def serve(stop: asyncio.Event) -> object:
            return run_control(decided, stop, ready, reloading)

        run_until_signal(serve, reloading, traced="shoal-control")


def _tell(config: Any) -> None:
    """Write a context, and say how others get in: to people on a terminal, else to the log."""
    from shoal.app.fleet.context_file import guide, home_of, write_context
    from shoal.base.logs import get_logger
    from shoal.cli.contexts import FILE

    home = home_of(config.dir, "control")
    context = write_context(home) if home is not None else None
    path = home / FILE if home is not None and context is not None else None
    if sys.stdout.isatty():
        typer.echo("\n".join(guide(config.public_url, path)))
    else:
        get_logger("control").info(
            "the control plane is ready",
            url=config.public_url,
            joinUrls=list(config.join_urls),
            context=str(path or ""),
        )


@app.command("rotate-ca")
def rotate_authority(
    dir: Annotated[
        Path | None, typer.Option(help="state directory; default `control` in $SHOAL_HOME, else in ~/.shoal")
    ] = None,
    overlap: Overlap = MONTH,
) -> None:
    """Replace the certificate authority of the control plane, with a time in which both are trusted."""
    rotate_ca(directory(None) / "control" if dir is None else directory(dir), overlap)


@credentials_app.command("export")
def export(
    file: Annotated[Path, typer.Argument(help="file to write, which only your user can read; - prints it")],
    dir: Annotated[
        Path | None, typer.Option(help="state directory of the control plane; default `control` in $SHOAL_HOME")
    ] = None,
) -> None:
    """Write the CA, the administrator's token, the master key and the URLs of the fleet to a file, for another control
    plane on the same database. The file gives full access to the fleet: keep it secret."""
    from shoal.app.fleet.credentials import export_credentials, exported

    folder = dir.expanduser().absolute() if dir is not None else directory(None) / "control"
    if str(file) == "-":
        typer.echo(exported(folder), nl=False)
        return
    export_credentials(folder, file.expanduser().absolute())
    typer.echo(
        f"credentials written to {file}; start another control plane with `shoal control start --credentials {file}`"
    )
