"""Shell completion."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from shoal.app.main import COMMANDS


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("shoal sta", {"status"}),
        ("shoal get en", {"environment"}),
        ("shoal token c", {"create"}),
        ("shoal apply --dry", {"--dry-run"}),
        ("shoal token create --ki", {"--kind"}),
        ("shoal get apps -o j", {"json"}),
    ],
)
def test_bash_completes_commands_kinds_and_options(line: str, expected: set[str], completion: Path) -> None:
    words = line.split(" ")
    script = (
        f"source {completion}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _shoal; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    shown = subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True).stdout
    assert expected <= set(shown.split())
    assert all(word.startswith(words[-1]) for word in shown.split())


@pytest.mark.parametrize(
    ("line", "asked", "expected"),
    [
        ("shoal describe app h", "get app", {"hello"}),
        ("shoal get routes ''", "get routes", {"hello", "web"}),
        ("shoal rollout status w", "get apps", {"web"}),
        ("shoal logs h", "get apps", {"hello"}),
        ("shoal token revoke h", "token list", {"hello"}),
        ("shoal navigator edges get w", "navigator edges get", {"web"}),
        ("shoal get apps -p h", "get projects", {"hello"}),
        ("shoal status --context w", "config get-contexts", {"web"}),
    ],
)
def test_bash_completes_names_that_the_server_lists(
    line: str, asked: str, expected: set[str], completion: Path, tmp_path: Path
) -> None:
    stub = tmp_path / "shoal"
    stub.write_text(f"#!/bin/sh\necho \"$@\" >> {tmp_path}/asked\nprintf 'hello\\nweb\\n'\n")
    stub.chmod(0o755)
    count = len(line.split(" "))
    script = (
        f"export PATH={tmp_path}:$PATH; source {completion}; COMP_WORDS=({line}); COMP_CWORD={count - 1}; _shoal; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    shown = subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True).stdout
    assert (tmp_path / "asked").read_text().startswith(f"{asked} -o ")
    assert {"hello", "web"} & set(shown.split()) == expected


def test_names_are_completed_for_every_command_that_is_listed() -> None:
    from shoal.app.commands.completion import catalog_words, fish_script

    words = catalog_words()
    known = {" ".join(each.path): each.names for each in words if each.names}
    assert {"get", "why app", "rollout abort", "config use-context", "gateways forget"} <= set(known)
    script = fish_script(words)
    assert "(shoal get apps -o " in script and "(shoal token list -o name 2>/dev/null)" in script


@pytest.fixture(scope="module")
def completion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from shoal.app.commands.completion import bash_script, catalog_words, fish_script, zsh_script

    words = catalog_words()
    assert all(command.name in fish_script(words) for command in COMMANDS)
    assert zsh_script(words).startswith("#compdef shoal\n")
    path = tmp_path_factory.mktemp("completion") / "shoal.bash"
    path.write_text(bash_script(words))
    return path
