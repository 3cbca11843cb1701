"""Which requests with a cookie are trusted: rebinding, pages of other sites, changes without our header."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.dashboard.gate import PageGate, cookie_name, session_cookie
from shoal.errors import ApiError, BadRequest, Forbidden
from shoal.rest.request import RestRequest

GATE = PageGate(["localhost", "127.0.0.1", "::1", "fleet.example.com"])


async def nothing() -> Any:
    return {"type": "http.disconnect"}


def asked(method: str = "GET", scheme: str = "https", **headers: str) -> RestRequest:
    given = {"host": "fleet.example.com:7400", **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": "http", "method": method, "path": "/api/v1", "scheme": scheme, "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in given.items() if value],
    }  # fmt: skip
    return RestRequest(scope, nothing)


COOKIE = {"cookie": "other=1; shoal-session-7400=abc; shoal-session-7401=def"}
LOCAL = {"cookie": "shoal-session-7480=abc", "host": "127.0.0.1:7480", "scheme": "http"}


def test_the_cookie_of_this_port_is_taken() -> None:
    assert GATE.session_text(asked(**COOKIE)) == "abc"
    assert (
        GATE.session_text(asked(**COOKIE, sec_fetch_site="same-origin", origin="https://fleet.example.com:7400"))
        == "abc"
    )
    assert GATE.session_text(asked(**COOKIE, sec_fetch_site="none")) == "abc", "typed in"
    assert GATE.session_text(asked(**LOCAL)) == "abc"
    assert GATE.session_text(asked(cookie="shoal-session-443=abc", host="fleet.example.com")) == "abc"
    assert GATE.session_text(asked(cookie="shoal-session-7400=abc", host="[::1]:7400")) == "abc"
    assert GATE.session_text(asked()) == ""


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:7400"},  # a name of somebody else that leads here
        {"host": "fleet.example.com.evil.example:7400"},
        {"host": "fleet.example.com:7400@evil.example"},
        {"host": ""},
        {"host": "fleet.example.com:port"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://fleet.example.com:7400"},  # without TLS it is another origin
        {"origin": "https://fleet.example.com:7401"},
        {"origin": "https://fleet.example.com"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"method": "POST"},
        {"method": "DELETE", "x_shoal_page": "0"},
        {"method": "PUT", "x_shoal_page": "1", "origin": "https://evil.example"},
        {"method": "POST", "x_shoal_page": "1", "sec_fetch_site": "cross-site"},
        {"scheme": "http"},  # a name of the network without TLS
        {"scheme": "http", "host": "192.168.1.7:7480"},
        {"scheme": "http", "host": "rebound.example:7480"},
    ],
)
def test_requests_that_another_site_may_have_made_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Forbidden):
        GATE.session_text(asked(**{**COOKIE, **headers}))


def test_a_change_that_a_page_of_ours_made_is_taken() -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        good = asked(method, **COOKIE, x_shoal_page="1", origin="https://fleet.example.com:7400")
        assert GATE.session_text(good) == "abc"


def test_names_that_are_not_known_here_say_how_to_make_them_known() -> None:
    with pytest.raises(Forbidden, match=r"--advertise-url https://balancer\.example"):
        GATE.host(asked(host="balancer.example"))
    with pytest.raises(Forbidden, match=r"http://127\.0\.0\.1"):
        GATE.host(asked(host="box.example:7480", scheme="http"))


def test_a_token_goes_before_a_cookie_and_needs_no_header_of_ours() -> None:
    assert (
        GATE.credential(asked("POST", **COOKIE, authorization="Bearer shoal_user_x", host="10.0.0.1:1"))
        == "shoal_user_x"
    )
    assert GATE.credential(asked(**COOKIE)) == "abc"
    assert GATE.credential(asked()) == ""


def test_without_tls_no_token_is_taken() -> None:
    with pytest.raises(BadRequest, match="only taken over https"):
        GATE.credential(asked(authorization="Bearer shoal_user_x", host="127.0.0.1:7480", scheme="http"))
    assert GATE.credential(asked(**LOCAL)) == "abc"


def test_the_cookie_is_for_this_server_alone() -> None:
    secure, plain = GATE.host(asked()), GATE.host(asked(host="localhost:7480", scheme="http"))
    assert (cookie_name(secure), cookie_name(plain)) == ("shoal-session-7400", "shoal-session-7480")
    assert session_cookie(secure, "abc", age_s=60) == (
        "shoal-session-7400=abc; Path=/; Max-Age=60; HttpOnly; SameSite=Strict; Secure"
    )
    assert "Secure" not in session_cookie(plain, "abc", age_s=60)
    assert "Domain" not in session_cookie(secure, "abc", age_s=60)


@pytest.mark.parametrize("host", ["a" * 300, "[::1", "::1", ":", "127.0.0.1:99999999", "\x7f"])
def test_odd_hosts_are_refused_and_nothing_worse(host: str) -> None:
    with pytest.raises(ApiError):
        GATE.host(asked(host=host, scheme="http"))
