"""How every typer application of ``shoal`` is set up.

Plain help and no shell probing: rich and the probe for the user's shell would cost more start-up time than most
commands take (docs/decisions/0008-lazy-cli.md).
"""

from __future__ import annotations

import typer


def new_app(summary: str, *, group: bool = False) -> typer.Typer:
    """An application for one catalog entry. With ``group`` it has subcommands even when there is only one."""
    app = typer.Typer(
        help=summary,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=group,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    if group:
        app.callback()(_group)
    return app


def _group() -> None:
    pass
