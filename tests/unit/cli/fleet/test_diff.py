"""``shoal diff``, against a real control plane."""

from __future__ import annotations

from pathlib import Path

from tests.unit.cli.conftest import Shoal, a_document, a_file, an_app


def test_differences_are_shown_as_a_unified_diff_and_nothing_is_changed(
    shoal: Shoal, project: str, tmp_path: Path
) -> None:
    file = a_file(tmp_path, an_app(project))
    new = shoal("diff", "-f", file)
    assert new.code == 1
    assert f"+++ file app {project}/production/web\n" in new.out and "\n+  image: shoal/echo\n" in new.out
    assert shoal("get", "app", f"{project}/production/web").code == 1
    shoal("apply", "-f", file)
    same = shoal("diff", "-f", file)
    assert (same.code, same.out, same.err) == (0, "", "")
    changed = shoal("diff", "-f", a_file(tmp_path, an_app(project, image="shop/web:2")))
    assert changed.code == 1
    assert [line for line in changed.out.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")] == [
        "-  image: shoal/echo",
        "+  image: shop/web:2",
    ]


def test_values_of_secrets_are_not_shown(shoal: Shoal, project: str, tmp_path: Path) -> None:
    secret = a_document("Secret", "db", {"values": {"PASSWORD": "hunter22"}}, project=project, environment="production")
    ran = shoal("diff", "-f", a_file(tmp_path, secret))
    assert ran.code == 1 and "PASSWORD" in ran.out and "hunter22" not in ran.out + ran.err


def test_what_cannot_be_found_out_is_more_than_a_difference(shoal: Shoal, project: str, tmp_path: Path) -> None:
    assert shoal("diff", "-f", str(tmp_path / "none.yaml")).code == 2
    far = shoal("diff", "-f", a_file(tmp_path, an_app(project, topology=[{"region": "mars"}])))
    assert far.code == 2 and "use a region of the fleet" in far.err
