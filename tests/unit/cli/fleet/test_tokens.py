"""The join files that `shoal token create` and `rotate` write."""

from __future__ import annotations

from typing import Any, cast

import pytest

from shoal.cli.fleet.tokens import JoinAddresses, TokenOptions, create, rotate
from shoal.cli.rest import Rest, RestReply
from shoal.errors import ConfigError

PEM = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"
URLS = ("https://relay.example:7400", "https://control.example:7400")


class TokenRest:
    """A control plane with the token of a relay."""

    def __init__(self) -> None:
        self.made = 0

    def get(self, path: str, **query: str) -> dict[str, Any]:
        return {"items": [{"id": "tok_1", "name": "relay-eu", "kind": "relay", "state": "active"}]}

    def request(self, method: str, path: str, body: Any = None) -> RestReply:
        self.made += 1
        join = {"url": "https://control.example:7400", "ca": "own\n", "token": "t"}
        return RestReply(201, {"token": "t", "info": {}, "join": join})


def options(kind: str, addresses: JoinAddresses) -> TokenOptions:
    return TokenOptions(kind=kind, cluster="eu-1", region="eu", addresses=addresses)


def test_the_join_file_has_the_given_urls_and_the_certificates_of_all() -> None:
    rest = cast(Rest, TokenRest())
    join = create(rest, options("agent", JoinAddresses(urls=URLS, ca=PEM)))["join"]
    assert (join["url"], join["urls"], join["ca"]) == (URLS[0], list(URLS), f"own\n{PEM}")
    assert "urls" not in create(rest, options("agent", JoinAddresses()))["join"]


def test_wrong_addresses_are_refused_before_anything_is_created() -> None:
    rest = TokenRest()
    for kind in ("relay", "edge"):
        with pytest.raises(ConfigError, match="--url and --ca out for kind"):
            create(cast(Rest, rest), options(kind, JoinAddresses(urls=URLS)))
    with pytest.raises(ConfigError, match="out for kind 'relay'"):
        rotate(cast(Rest, rest), "relay-eu", 0, JoinAddresses(ca=PEM))
    with pytest.raises(ConfigError, match="url is 'relay:7400': use https://HOST:PORT"):
        JoinAddresses(urls=("relay:7400",))
    with pytest.raises(ConfigError, match="ca has no certificate"):
        JoinAddresses(ca="key")
    assert rest.made == 0
