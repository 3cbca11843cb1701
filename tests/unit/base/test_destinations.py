"""Which addresses are of the public internet, whatever form they are written in."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.base.destinations import OutboundRefused, OutboundUrl, kind_of_address, plain_address, read_networks
from shoal.errors import ConfigError

V4 = st.integers(0, 2**32 - 1).map(IPv4Address)
V6 = st.integers(0, 2**128 - 1).map(IPv6Address)
_NAT64 = int(IPv6Address("64:ff9b::"))


@given(V4)
def test_an_address_of_ipv4_inside_one_of_ipv6_counts_as_itself(address: IPv4Address) -> None:
    assert plain_address(f"::ffff:{address}") == address
    assert plain_address(str(IPv6Address(_NAT64 + int(address)))) == address


@given(V4 | V6)
def test_what_python_knows_as_local_is_never_public(address: IPv4Address | IPv6Address) -> None:
    plain = plain_address(str(address))
    local = plain.is_loopback or plain.is_link_local or plain.is_multicast or plain.is_unspecified or plain.is_private
    assert not (local or plain.is_reserved) or kind_of_address(plain)


@given(st.data())
def test_every_address_of_a_special_network_is_found(data: st.DataObject) -> None:
    text, kind = data.draw(
        st.sampled_from(
            [
                ("127.0.0.0/8", "loopback"), ("10.0.0.0/8", "private"), ("172.16.0.0/12", "private"),
                ("192.168.0.0/16", "private"), ("100.64.0.0/10", "carrier-grade NAT"), ("224.0.0.0/4", "multicast"),
                ("0.0.0.0/8", "unspecified"), ("240.0.0.0/4", "reserved"), ("fe80::/10", "link-local"),
                ("fc00::/7", "private"), ("ff00::/8", "multicast"), ("2002::/16", "reserved"),
                ("64:ff9b:1::/48", "reserved"), ("::/96", ""), ("169.254.0.0/16", "link-local"),
            ]
        )
    )  # fmt: skip
    network = ip_network(text)
    number = data.draw(st.integers(int(network.network_address), int(network.broadcast_address)))
    found = kind_of_address(plain_address(str(type(network.network_address)(number))))
    assert found == kind or found == "metadata" or (not kind and found)


@pytest.mark.parametrize("text", ["169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254", "168.63.129.16"])
def test_metadata_of_clouds_is_named(text: str) -> None:
    assert kind_of_address(plain_address(text)) == "metadata"


@pytest.mark.parametrize("text", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "11.0.0.1", "172.32.0.1"])
def test_public_addresses_are_public(text: str) -> None:
    assert kind_of_address(plain_address(text)) == ""


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://a.example", "use http"), ("https://", "use http"), ("https://a.example:99999/", "use http"),
        ("https://[::1/", "use http"), ("https://me:secret@a.example/", "a user before the host"),
        ("https://a.example/x y", "printable ASCII"), ("https://a.example/\r\nx: y", "printable ASCII"),
        ("https://ä.example/", "printable ASCII"), ("//a.example", "use http"), ("", "use http"),
    ],
)  # fmt: skip
def test_urls_that_cannot_be_called_are_refused_with_the_form(url: str, why: str) -> None:
    with pytest.raises(OutboundRefused, match=why) as refused:
        OutboundUrl.parse(url)
    assert "secret" not in str(refused.value)


def test_a_url_has_its_parts() -> None:
    assert OutboundUrl.parse("https://Hooks.Example.com/a?b=c") == OutboundUrl(
        "https", "hooks.example.com", 443, "/a?b=c", "Hooks.Example.com"
    )
    assert OutboundUrl.parse("http://[2001:db8::7]:81").port == 81


def test_networks_are_cidr_and_the_setting_is_named() -> None:
    assert [str(each) for each in read_networks(["127.0.0.0/8", "::1/128"], "webhook_networks")] == [
        "127.0.0.0/8",
        "::1/128",
    ]
    with pytest.raises(ConfigError, match="webhook_networks.*use CIDR notation"):
        read_networks(["localhost"], "webhook_networks")
