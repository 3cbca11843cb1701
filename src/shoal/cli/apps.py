"""Sets up every typer application of ``shoal``.

Plain help and no shell probing: rich and the probe for the user's shell would cost more start-up time than most
commands take (docs/decisions/0008-lazy-cli.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class _ExampleCommand(TyperCommand):
    """A command whose help ends with its examples."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_examples(ctx, formatter)


class _ExampleGroup(TyperGroup):
    """A group of commands whose help ends with its examples."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_examples(ctx, formatter)


class ShoalTyper(typer.Typer):
    """An application whose commands show their examples."""

    def command(self, name: str | None = None, *, cls: Any = None, **more: Any) -> Any:
        return super().command(name, cls=cls or _ExampleCommand, **more)


def new_app(summary: str, *, group: bool = False, default: str = "", alone: bool = False) -> typer.Typer:
    """An application for one catalog entry. With ``group`` it has subcommands even when there is only one. With
    ``default`` that subcommand's word can be left out: ``shoal scale hello`` is ``shoal scale app hello``. With
    ``alone`` only before options and at the end: ``shoal agents -o json`` is ``shoal agents list -o json``."""
    app = ShoalTyper(
        help=summary,
        cls=_with_default(default, alone=alone) if default else _ExampleGroup,
        subcommand_metavar=f"[{default}] NAME [OPTIONS]" if default and not alone else None,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=group and not alone,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    if group:
        app.callback()(_group)
    return app


def moved(app: typer.Typer, name: str, *, to: str, target: typer.Typer, words: Sequence[str] = ()) -> None:
    """A subcommand that has another name now: it goes on, with a hint, and help does not list it."""

    @app.command(
        name, hidden=True, add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )  # fmt: skip
    def forward(context: typer.Context) -> None:
        typer.echo(f"note: `{context.command_path}` is now `{to}`", err=True)
        pass_on(target, [*words, *context.args], to)

    forward.__doc__ = f"Is now `{to}`."


def pass_on(target: typer.Typer, arguments: Sequence[str], name: str) -> None:
    """Run another application with these arguments."""
    code = target(args=list(arguments), prog_name=name, standalone_mode=False)
    if isinstance(code, int) and code:
        raise typer.Exit(code)


def _group() -> None:
    pass


def _write_examples(ctx: Any, formatter: Any) -> None:
    """The examples of the command, as comments and lines to type."""
    from shoal.cli.examples import EXAMPLES  # only the help shows them

    found = EXAMPLES.get(ctx.command_path.removeprefix("shoal "), ())
    if found:
        formatter.write("\nExamples:\n")
    for what, line in found:
        formatter.write(f"  # {what}\n  {line}\n")


def _with_default(name: str, *, alone: bool) -> type[TyperGroup]:
    """A group whose first word is taken as ``name`` unless it is a subcommand or asks for help."""

    class DefaultGroup(_ExampleGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            return super().parse_args(ctx, [name, *args] if self._leaves_out(args, ctx.help_option_names) else args)

        def _leaves_out(self, args: Sequence[str], helps: Sequence[str]) -> bool:
            if alone and (not args or args[0].startswith("-")):
                return not args or args[0] not in helps
            return not alone and bool(args) and args[0] not in self.commands and args[0] not in helps

    return DefaultGroup
