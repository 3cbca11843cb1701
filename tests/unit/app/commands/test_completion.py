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


@pytest.fixture(scope="module")
def completion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from shoal.app.commands.completion import bash_script, catalog_words, fish_script, zsh_script

    words = catalog_words()
    assert all(command.name in fish_script(words) for command in COMMANDS)
    assert zsh_script(words).startswith("#compdef shoal\n")
    path = tmp_path_factory.mktemp("completion") / "shoal.bash"
    path.write_text(bash_script(words))
    return path
