"""``shoal completion``: static completion scripts for commands, options and kinds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Annotated, Any

import typer

from shoal.cli.apps import new_app
from shoal.cli.fleet.kinds import KINDS

app = new_app("Print the completion script of a shell.")

_TAKE_KIND = ("get", "describe", "delete", "history", "events")
_FORMATS = ("table", "json", "yaml")


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@dataclass(frozen=True, slots=True)
class Words:
    """Completions of one command: ``path`` is its words, ``next`` its subcommands or kinds."""

    path: tuple[str, ...]
    summary: str
    next: tuple[tuple[str, str], ...]
    options: tuple[tuple[str, str], ...]


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish")]) -> None:
    """Print a script for a shell: `source <(shoal completion bash)`, the same with zsh, or
    `shoal completion fish | source`."""
    words = catalog_words()
    scripts = {Shell.BASH: bash_script, Shell.ZSH: zsh_script, Shell.FISH: fish_script}
    typer.echo(scripts[shell](words), nl=False)


def catalog_words() -> list[Words]:
    """The completions of every command; the first entry is ``shoal`` itself."""
    from shoal.app.main import COMMANDS

    top = tuple((command.name, command.summary) for command in COMMANDS)
    found = [Words((), "", top, (("--help", "list the commands"), ("--version", "print the version")))]
    for command in COMMANDS:
        module, _, attribute = command.target.partition(":")
        made: Any = typer.main.get_command(getattr(import_module(module), attribute))
        found += _words((command.name,), command.summary, made)
    return found


def _words(path: tuple[str, ...], summary: str, command: Any) -> list[Words]:
    below = getattr(command, "commands", {})
    following = tuple((name, _summary(each)) for name, each in below.items())
    if path[0] in _TAKE_KIND:
        following += tuple((kind.word, f"a {kind.name}") for kind in KINDS)
    options = tuple(
        (option, (parameter.help or "").partition(";")[0])
        for parameter in command.params
        if getattr(parameter, "opts", ()) and not getattr(parameter, "hidden", False)
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--")
    )
    own = Words(path, summary, following, (*options, ("--help", "show the options")))
    return [own, *(each for name, sub in below.items() for each in _words((*path, name), _summary(sub), sub))]


def _summary(command: Any) -> str:
    return str(command.get_short_help_str(80))


def bash_script(words: Iterable[Words]) -> str:
    cases = "\n".join(
        f"    {_pattern(each)}) words={_quoted(' '.join(name for name, _ in (*each.next, *each.options)))} ;;"
        for each in words
    )
    return f"""# bash completion of shoal
_shoal() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} path="" words="" word i
  COMPREPLY=()
  case $before in
    -f|--filename|--dir|--kubeconfig|--join|--ca|--config|--to) COMPREPLY=($(compgen -f -- "$current")); return ;;
    -o|--output) COMPREPLY=($(compgen -W "{" ".join(_FORMATS)}" -- "$current")); return ;;
  esac
  for ((i = 1; i < COMP_CWORD && i < 3; i++)); do
    word=${{COMP_WORDS[i]}}
    [[ $word == -* ]] && break
    path="${{path:+$path }}$word"
  done
  while :; do
    case $path in
{cases}
    esac
    [[ -n $words || -z $path ]] && break
    [[ $path == *" "* ]] && path=${{path% *}} || path=""
    [[ -z $path ]] && break
  done
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _shoal shoal
"""


def zsh_script(words: Iterable[Words]) -> str:
    """The bash script, run by zsh's bashcompinit."""
    return "#compdef shoal\nautoload -U +X bashcompinit && bashcompinit\n" + bash_script(words)


def fish_script(words: Iterable[Words]) -> str:
    lines = ["# fish completion of shoal", "complete -c shoal -f"]
    for each in words:
        if each.path:
            seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in each.path)
            names = " ".join(name for name, _ in each.next)
            follows = f"{seen}; and not __fish_seen_subcommand_from {names}" if names else seen
        else:
            seen = follows = "__fish_use_subcommand"
        for name, help_ in each.next:
            lines.append(f"complete -c shoal -n {_quoted(follows)} -a {name} -d {_quoted(help_)}")
        for option, help_ in each.options:
            lines.append(f"complete -c shoal -n {_quoted(seen)} -l {option.removeprefix('--')} -d {_quoted(help_)}")
    lines.append("complete -c shoal -s f -l filename -r -F")
    lines.append(f"complete -c shoal -s o -l output -x -a {_quoted(' '.join(_FORMATS))}")
    return "\n".join(lines) + "\n"


def _pattern(words: Words) -> str:
    return _quoted(" ".join(words.path))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
