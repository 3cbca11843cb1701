"""Names are accepted and refused as in Kubernetes, with the same messages."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.kube import names
from shoal.kube.names import Faults

GOOD: dict[Callable[[str], Faults], list[str]] = {
    names.is_dns1123_label: ["a", "0", "a-b", "a" * 63],
    names.is_dns1123_subdomain: ["a", "a.b", "1.2.3", "a-b.c-d", "a" * 253],
    names.is_dns1123_subdomain_with_underscore: ["_a.b_c", "a"],
    names.is_dns1035_label: ["a", "a1", "a-1"],
    names.is_wildcard_dns1123_subdomain: ["*.a.b", "*.x"],
    names.is_qualified_name: ["a", "A_b.c-d", "x.io/A", "1", "a" * 63, "a" * 253 + "/" + "b" * 63],
    names.is_prefixed_label_key: ["x.io/a"],
    names.is_label_value: ["", "a", "A_b.c-d", "1" * 63],
    names.is_annotation_key: ["X.IO/a", "a"],
    names.is_finalizer_name: ["kubernetes", "x.io/a"],
    names.is_c_identifier: ["_", "a1", "A_B"],
    names.is_port_name: ["http", "a-1", "1-a", "a" * 15],
    names.is_percent: ["1%", "100%"],
    names.is_http_header_name: ["X-A", "1"],
    names.is_http_path: ["/a/b%20c", "a"],
    names.is_env_var_name_strict: ["A", "a.b-c", "_", ".a"],
    names.is_env_var_name: ["A B", "1", "a:b", ".."],
    names.is_config_map_key: ["a", "..a"[1:], "A_b-c.d", "1"],
    names.is_path_segment_name: ["a:b", "system:x", "..."],
    names.is_ip: ["10.0.0.1", "::1", "2001:db8::1", "0.0.0.0"],
    names.is_ip_legacy: ["10.0.0.1", "2001:DB8::1", "2001:db8:0:0::1"],
    names.is_cidr: ["10.0.0.0/8", "::/0", "10.0.0.1/32", "0.0.0.0/0"],
    names.is_cidr_legacy: ["2001:DB8::/32"],
}
BAD: dict[Callable[[str], Faults], list[str]] = {
    names.is_dns1123_label: ["", "A", "-a", "a-", "a.b", "a_b", "a\n", "é", "a" * 64],
    names.is_dns1123_subdomain: ["", "A", ".a", "a.", "a..b", "a.-b", "a\n", "a" * 254],
    names.is_dns1123_subdomain_with_underscore: ["", "A", "a_"],
    names.is_dns1035_label: ["", "1a", "a-", "A", "a" * 64],
    names.is_wildcard_dns1123_subdomain: ["*", "a.b", "*.*.a", "*a.b", "*." + "a" * 252],
    names.is_qualified_name: ["", "/a", "a/", "a/b/c", "-a", "a b", "X.io/a", "a" * 64, "a" * 254 + "/b"],
    names.is_prefixed_label_key: ["a", "-/a"],
    names.is_label_value: ["-", "a b", "a" * 64, "a\n", "é"],
    names.is_annotation_key: ["a b", "x_y/a"],
    names.is_c_identifier: ["", "1a", "a-b"],
    names.is_port_name: ["", "1", "a--b", "-a", "a-", "A", "a" * 16],
    names.is_percent: ["", "1", "1.5%", "-1%", "1%\n"],
    names.is_http_header_name: ["", "a b", "a:"],
    names.is_http_path: ["", "a b", "a?b", "a\n"],
    names.is_env_var_name_strict: ["", "1a", "a b", "..", "..a"],
    names.is_env_var_name: ["", "a=b", "é", "a\t"],
    names.is_config_map_key: ["", ".", "..", "..a", "a/b", "a" * 254],
    names.is_path_segment_name: [".", "..", "a/b", "a%b"],
    names.is_ip: ["", "10.0.0", "10.0.0.256", "2001:DB8::1", "::ffff:1.2.3.4", "010.0.0.1", "fe80::1%eth0", "1.2.3.4\n"],
    names.is_ip_legacy: ["x", "::ffff:1.2.3.4", "1.2.3.04"],
    names.is_cidr: ["10.0.0.0", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/08", "2001:DB8::/32", "::ffff:1.2.3.0/120", "/8", "a/8"],
    names.is_cidr_legacy: ["10.0.0.1/8", "010.0.0.0/8", "10.0.0.0/-1", "10.0.0.0/²"],
}  # fmt: skip


@pytest.mark.parametrize(("check", "value"), [(check, value) for check, values in GOOD.items() for value in values])
def test_accepted(check: Callable[[str], Faults], value: str) -> None:
    assert check(value) == ()


@pytest.mark.parametrize(("check", "value"), [(check, value) for check, values in BAD.items() for value in values])
def test_refused(check: Callable[[str], Faults], value: str) -> None:
    assert check(value)


def test_wordings() -> None:
    assert names.is_dns1123_label("A") == (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
        "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
    )
    assert names.is_dns1123_label("a.b") == ("must not contain dots",)
    assert names.is_dns1123_label("a" * 64) == ("must be no more than 63 characters",)
    assert names.is_qualified_name("/") == (
        "prefix part must be non-empty",
        "name part must be non-empty",
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
        "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
        "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
    )
    assert names.is_port_number(0) == ("must be between 1 and 65535, inclusive",)
    assert names.is_port_number(65535) == ()
    assert names.is_ip("010.0.0.1") == ("must not have leading 0s",)
    assert names.is_ip("2001:DB8::1") == ('must be in canonical form ("2001:db8::1")',)
    assert names.is_ip("x") == ("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",)
    assert names.is_cidr_legacy("010.0.0.0/8") == ("must not have leading 0s in IP or prefix length",)
    assert names.is_cidr_legacy("10.0.0.1/8") == ("must not have bits set beyond the prefix length",)
    assert names.is_port_name("--") == (
        "must contain at least one letter (a-z)",
        "must not contain consecutive hyphens",
        "must not begin or end with a hyphen",
    )


def test_long_hostile_names_are_refused_quickly() -> None:
    for check in (names.is_dns1123_label, names.is_dns1123_subdomain, names.is_qualified_name, names.is_label_value):
        assert check("a-" * 50_000 + "!")
        assert check("a." * 50_000)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=40))
def test_every_check_answers_for_any_text(value: str) -> None:
    for check in GOOD:
        assert isinstance(check(value), tuple)
