"""The list of hosts that may be called for a workspace."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.base.destinations import kind_of_address
from shoal.control.domain.outbound import OutboundRules, entry_fault

LIST = OutboundRules.of(
    ["hooks.example.com", "*.corp.example", "metrics.example.com:9090", "10.1.2.0/24:9090", "[fd00::/64]:443"]
)


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.com/x", "http://HOOKS.example.com:81/", "https://a.corp.example", "https://a.b.corp.example",
        "http://metrics.example.com:9090/", "http://10.1.2.7:9090/", "https://[fd00::1]/",
    ],
)  # fmt: skip
def test_what_the_list_names_may_be_called(url: str) -> None:
    assert LIST.url_fault(url) == ""


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com", "https://hooks.example.com.evil.example", "https://hooks.example.com./",
        "https://xhooks.example.com", "https://corp.example", "https://evilcorp.example", "http://metrics.example.com/",
        "http://10.1.2.7/", "http://10.1.3.7:9090/", "http://8.8.8.8/", "https://[fd00::1]:444/",
        "http://[::ffff:10.1.3.7]:9090/",
    ],
)  # fmt: skip
def test_everything_else_is_refused_with_the_list_and_the_fix(url: str) -> None:
    fault = LIST.url_fault(url)
    assert "may not call" in fault and "allowed: hooks.example.com" in fault
    assert "`shoal workspaces set NAME --outbound" in fault


@pytest.mark.parametrize("host", ["167837959", "0x0a010207", "10.66055", "012.1.2.7", "0xa.0x1.0x2.0x7"])
def test_an_address_in_an_unusual_form_is_refused_even_where_its_network_is_allowed(host: str) -> None:
    assert "unusual form" in LIST.url_fault(f"http://{host}:9090/")


@given(st.ip_addresses())
def test_a_name_of_the_list_leads_to_public_addresses_only_and_to_networks_of_the_list(address: object) -> None:
    plain = ip_address(str(address))
    fault = LIST.address_fault("hooks.example.com", 9090, plain)
    listed = OutboundRules.of(["10.1.2.0/24"]).entries[0].has_address(plain, 9090)
    assert (fault == "") == (not kind_of_address(plain) or listed)


def test_a_network_is_allowed_at_its_port_only() -> None:
    inside = IPv4Address("10.1.2.7")
    assert LIST.address_fault("a.corp.example", 9090, inside) == ""
    fault = LIST.address_fault("a.corp.example", 443, inside)
    assert "a.corp.example (10.1.2.7) has a private address" in fault and "--outbound 10.1.2.7:443" in fault


def test_nothing_is_allowed_by_default() -> None:
    assert "(allowed: none)" in OutboundRules.of([]).url_fault("https://hooks.example.com")


@pytest.mark.parametrize(
    "text",
    ["*", "*.com", "Hooks.example.com", "https://a.example", "a.example:0", "a.example:x", "10.1.2.3/24", "0.0.0.0/0",
     "::/0", "[fd00::/64", "127.1", "2130706433", "", "a b", "a.example/path"],
)  # fmt: skip
def test_entries_that_cannot_be_one_are_refused_with_the_form(text: str) -> None:
    assert "use " in entry_fault(text)


@pytest.mark.parametrize(
    "text",
    [
        "hooks.example.com",
        "localhost",
        "*.corp.example:8443",
        "10.1.2.3",
        "10.0.0.0/8:80",
        "fd00::/64",
        "[::1]:80",
        "::1",
    ],
)
def test_entries_as_documented_are_taken(text: str) -> None:
    assert entry_fault(text) == ""
