"""The list of commands as plain data, so that ``shoal --help`` imports none of the commands' dependencies.

A command names the module and attribute that runs it; ``shoal.cli.dispatch`` loads that one and no other.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # help is printed before anything else is imported
    from collections.abc import Iterable, Sequence

_PURPOSE = "Applications over many Kubernetes clusters, as if they were one."


class Command:
    """One first word after ``shoal``. ``target`` is ``module:attribute``, a typer application. ``extra`` names what its
    processes need beyond the base install (``shoal.cli.extras``), ``extra_of`` that of some subcommands. ``aliases``
    are further words for it, ``old_names`` those that it had, which go on with a hint. Not a dataclass: their import
    takes longer than everything else that help does."""

    __slots__ = ("aliases", "extra", "extra_of", "group", "name", "old_names", "summary", "target")

    def __init__(
        self, *, name: str, summary: str, group: str, target: str, extra: str = "",
        extra_of: tuple[tuple[str, str], ...] = (), aliases: tuple[str, ...] = (), old_names: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.name = name
        self.summary = summary
        self.group = group
        self.target = target
        self.extra = extra
        self.extra_of = extra_of
        self.aliases = aliases
        self.old_names = old_names

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases, *self.old_names)

    @property
    def shown(self) -> str:
        """Its names in the list of commands."""
        return ", ".join((self.name, *self.aliases))


def render_help(commands: Sequence[Command]) -> str:
    """The text of ``shoal --help``."""
    width = max(len("--version"), *(len(command.shown) for command in commands)) + 2
    lines = [
        "Usage: shoal COMMAND [OPTIONS]",
        "",
        _PURPOSE,
        "",
    ]
    for group in dict.fromkeys(command.group for command in commands):
        lines.append(f"{group}:")
        lines += [f"  {c.shown:<{width}}{c.summary}" for c in commands if c.group == group]
        lines.append("")
    lines += [
        "Options:",
        f"  {'--help':<{width}}show this help; `shoal COMMAND --help` for one command",
        f"  {'--version':<{width}}print the version",
        "",
    ]
    return "\n".join(lines)


def unknown_command(name: str, commands: Iterable[Command]) -> str:
    """The error message for an unknown command."""
    names = [name for command in commands for name in (command.name, *command.aliases)]
    from difflib import get_close_matches

    near = get_close_matches(name, names, n=1)
    hint = f"did you mean `shoal {near[0]}`?" if near else "`shoal --help` lists the commands"
    return f"unknown command {name!r}; {hint}"
