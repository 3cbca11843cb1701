"""``shoal completion``: completion scripts for commands, options, kinds, and names that the server lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Annotated, Any

import typer

from shoal.cli.apps import new_app
from shoal.cli.fleet.kinds import KINDS

app = new_app("Print the completion script of a shell.")

_TAKE_KIND = ("get", "describe", "delete", "history", "events", "wait", "edit")
_ANY_KIND = "KIND"  # names of the kind that was typed before
_APPS = "get apps"
# By the words of a command, what lists the names that it takes.
_NAMES = {
    **dict.fromkeys(_TAKE_KIND, _ANY_KIND),
    **dict.fromkeys(
        ("status", "logs", "scale", "rollback", "move", "stop", "start", "restart", "why", "set image", "set env"),
        _APPS,
    ),
    **dict.fromkeys(
        ("scale app", "rollback app", "move app", "stop app", "start app", "restart app", "why app"), _APPS
    ),
    "why environment": "get environments",
    **{f"rollout {verb}": _APPS for verb in "status history pause resume skip promote abort retry undo".split()},
    **dict.fromkeys(("sentinels forget", "gateways forget"), "get sentinels"),
    "agents confirm": "agents list",
    **dict.fromkeys(("token revoke", "token rotate"), "token list"),
    **dict.fromkeys(("workspaces quotas", "workspaces set", "workspaces delete"), "workspaces list"),
    **dict.fromkeys(("checks run", "checks remove"), "checks list"),
    "config use-context": "config get-contexts",
    **{f"navigator edges {verb}": "navigator edges get" for verb in ("get", "set", "unset")},
}
_OPTION_NAMES = {
    ("-p", "--project"): "get projects",
    ("-e", "--environment"): "get environments",
    ("--context",): "config get-contexts",
    ("--region",): "get regions",
    ("--cluster",): "get clusters",
}
_FORMATS = ("table", "wide", "json", "yaml", "name", "jsonpath=")
_LISTED = '{range .items[*]}{.metadata.name}{"\\n"}{end}'  # of objects, without their project


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@dataclass(frozen=True, slots=True)
class Words:
    """Completions of one command: ``path`` is its words, ``next`` its subcommands or kinds, ``names`` the command that
    lists the names that it takes, if it takes some."""

    path: tuple[str, ...]
    summary: str
    next: tuple[tuple[str, str], ...]
    options: tuple[tuple[str, str], ...]
    names: str = ""


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

    top = tuple((name, command.summary) for command in COMMANDS for name in (command.name, *command.aliases))
    found = [Words((), "", top, (("--help", "list the commands"), ("--version", "print the version")))]
    for command in COMMANDS:
        module, _, attribute = command.target.partition(":")
        made: Any = typer.main.get_command(getattr(import_module(module), attribute))
        for name in (command.name, *command.aliases):
            found += _words((name,), command.summary, made)
    return found


def _words(path: tuple[str, ...], summary: str, command: Any) -> list[Words]:
    below = {name: each for name, each in getattr(command, "commands", {}).items() if not each.hidden}
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
    own = Words(path, summary, following, (*options, ("--help", "show the options")), _NAMES.get(" ".join(path), ""))
    return [own, *(each for name, sub in below.items() for each in _words((*path, name), _summary(sub), sub))]


def _summary(command: Any) -> str:
    return str(command.get_short_help_str(80))


def bash_script(words: Sequence[Words]) -> str:
    names = "\n".join(f"    {_pattern(each)}) names={_quoted(each.names)} ;;" for each in words if each.names)
    after = "\n".join(f"    {'|'.join(options)}) names={_quoted(names)} ;;" for options, names in _OPTION_NAMES.items())
    cases = "\n".join(
        f"    {_pattern(each)}) words={_quoted(' '.join(name for name, _ in (*each.next, *each.options)))} ;;"
        for each in words
    )
    return f"""# bash completion of shoal
_shoal_names() {{
  local words=($1 -o name) limit=""
  [[ $1 == "get "* ]] && words=($1 -o {_quoted(f"jsonpath={_LISTED}")})
  command -v timeout >/dev/null && limit="timeout 3"
  $limit shoal "${{words[@]}}" 2>/dev/null
}}
_shoal() {{
  local names="" current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} path="" words="" word i
  COMPREPLY=()
  case $before in
    -f|--filename|--dir|--kubeconfig|--join|--ca|--config|--to) COMPREPLY=($(compgen -f -- "$current")); return ;;
    -o|--output) COMPREPLY=($(compgen -W "{" ".join(_FORMATS)}" -- "$current")); return ;;
{after}
  esac
  if [[ -n $names ]]; then COMPREPLY=($(compgen -W "$(_shoal_names "$names")" -- "$current")); return; fi
  for ((i = 1; i < COMP_CWORD && i < 4; i++)); do
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
  case $path in
{names}
  esac
  if [[ $names == {_ANY_KIND} ]]; then
    names=""
    ((COMP_CWORD > 2)) && [[ ${{COMP_WORDS[2]}} != -* ]] && names="get ${{COMP_WORDS[2]}}" words=${{words#*" --"}}
  fi
  [[ -n $names && $current != -* ]] && words="$words $(_shoal_names "$names")"
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _shoal shoal
"""


def zsh_script(words: Sequence[Words]) -> str:
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
        if each.names and each.names != _ANY_KIND:
            lines.append(f"complete -c shoal -n {_quoted(seen)} -a {_quoted(_fish_names(each.names))}")
        for option, help_ in each.options:
            lines.append(f"complete -c shoal -n {_quoted(seen)} -l {option.removeprefix('--')} -d {_quoted(help_)}")
    takers = " ".join(_TAKE_KIND)
    for kind in KINDS:
        seen = f"__fish_seen_subcommand_from {takers}; and __fish_seen_subcommand_from {kind.word} {kind.plural}"
        lines.append(f"complete -c shoal -n {_quoted(seen)} -a {_quoted(_fish_names(f'get {kind.plural}'))}")
    for options, names in _OPTION_NAMES.items():
        long = options[-1].removeprefix("--")
        lines.append(f"complete -c shoal -l {long} -x -a {_quoted(_fish_names(names))}")
    lines.append("complete -c shoal -s f -l filename -r -F")
    lines.append(f"complete -c shoal -s o -l output -x -a {_quoted(' '.join(_FORMATS))}")
    return "\n".join(lines) + "\n"


def _fish_names(command: str) -> str:
    listed = _quoted(f"jsonpath={_LISTED}") if command.startswith("get ") else "name"
    return f"(shoal {command} -o {listed} 2>/dev/null)"


def _pattern(words: Words) -> str:
    return _quoted(" ".join(words.path))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
