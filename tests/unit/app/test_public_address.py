"""The public address of a server."""

from __future__ import annotations

import pytest

from shoal.app.public_address import check_url, gap, hosts_of
from shoal.errors import ConfigError


@pytest.mark.parametrize(
    "url",
    ["http://a:1", "a:7400", "https://", "https://a:99999", "https://a/path", "https://u@a", "https://0.0.0.0:7400"],
)
def test_a_url_that_others_cannot_use_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="advertise_url is"):
        check_url(url)


def test_its_host_is_for_the_certificate() -> None:
    urls = ("https://fleet.example:7400", "https://10.0.0.1", "https://fleet.example", "https://[2001:db8::1]:1")
    for url in urls:
        check_url(url)
    assert hosts_of(urls) == ("fleet.example", "10.0.0.1", "2001:db8::1")


@pytest.mark.parametrize(
    ("host", "urls", "found"),
    [
        ("0.0.0.0", ("https://127.0.0.1:7400",), True),
        ("10.0.0.1", ("https://localhost:7400",), True),
        ("127.0.0.1", ("https://127.0.0.1:7400",), False),
        ("0.0.0.0", ("https://fleet.example", "https://127.0.0.1:7400"), False),
    ],
)
def test_a_server_for_others_whose_join_files_name_loopback_is_found(
    host: str, urls: tuple[str, ...], found: bool
) -> None:
    assert bool(gap(host, urls)) == found
