"""Tokens that are believed without a look-up: only while somebody looks for those that end."""

from __future__ import annotations

from shoal.base.ids import token_digest
from shoal.control.database.tokens import Principal
from shoal.control.service.agents.token_cache import TokenCache


def a_principal(token_id: str) -> Principal:
    return Principal(
        kind="agent", workspace_id="fleet", role="", cluster="c", region="r", shard="", token_id=token_id, name=token_id
    )


def test_a_token_is_believed_only_while_the_guard_looks() -> None:
    believed = TokenCache()
    believed.looked(10.0, set())
    believed.put(token_digest("text"), a_principal("t1"), 10.1)
    assert believed.get("text", 10.5) is not None and believed.get("other", 10.5) is None
    assert believed.get("text", 11.0) is None, "the guard has not looked for 0.9 s"
    believed.looked(11.0, set())
    assert believed.get("text", 11.1) is not None
    believed.looked(70.0, set())
    assert believed.get("text", 70.2) is None, "after a minute it is looked up again"


def test_a_token_that_ended_or_is_being_replaced_is_not_believed() -> None:
    believed = TokenCache()
    believed.looked(10.0, set())
    believed.put(token_digest("text"), a_principal("t1"), 10.1)
    believed.looked(10.4, {"t1"})
    assert believed.get("text", 10.5) is None
    believed.put(token_digest("text"), a_principal("t1"), 10.6)
    assert believed.get("text", 10.7) is None
    believed.looked(10.8, set())
    assert believed.get("text", 10.9) is None


def test_an_answer_from_before_the_guards_last_look_is_not_kept() -> None:
    believed = TokenCache()
    believed.looked(10.4, set())
    believed.put(token_digest("text"), a_principal("t1"), 10.3)
    assert believed.get("text", 10.5) is None
