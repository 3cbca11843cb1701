"""The files by which a control plane reaches the navigator."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.app.fleet.navigator_folder import NavigatorFolder
from shoal.control.checks.navigator import NavigatorAccess
from shoal.errors import ConfigError


async def test_files_are_read_at_each_call_and_each_workspace_has_its_own_token(tmp_path: Path) -> None:
    folder = NavigatorFolder(tmp_path / "navigator")
    with pytest.raises(ConfigError, match="the file url of the control plane's navigator folder is missing"):
        await folder.of("team")
    (tmp_path / "navigator" / "tokens").mkdir(parents=True)
    (tmp_path / "navigator" / "url").write_text("https://nav.example:7500\n")
    with pytest.raises(ConfigError, match=r"tokens/team .* `shoal navigator token create .* workspace=team`"):
        await folder.of("team")
    (tmp_path / "navigator" / "tokens" / "team").write_text("one\n")
    assert await folder.of("team") == NavigatorAccess("https://nav.example:7500", "one", "")
    (tmp_path / "navigator" / "ca.crt").write_text("PEM")
    (tmp_path / "navigator" / "tokens" / "team").write_text("two\n")
    assert await folder.of("team") == NavigatorAccess("https://nav.example:7500", "two", "PEM")
    with pytest.raises(ConfigError, match="tokens/other"):
        await folder.of("other")


@pytest.mark.parametrize("workspace", ["../url", "..", "a/b", ""])
async def test_the_name_of_a_workspace_leads_to_no_other_file(tmp_path: Path, workspace: str) -> None:
    (tmp_path / "url").write_text("https://nav.example")
    with pytest.raises(ConfigError, match="cannot be the name of a file"):
        await NavigatorFolder(tmp_path).of(workspace)
