"""What a server's audit log says of real requests; and what it must never say."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from shoal.apiserver.audit.config import AuditConfig
from shoal.apiserver.audit.event import AuditRecord, AuditTrail, line
from shoal.apiserver.audit.policy import METADATA, REQUEST, AuditGrade, AuditPolicy, parse
from shoal.apiserver.context import ServerConfig
from shoal.apiserver.messages import Request
from shoal.testing.servers import ADMIN_TOKEN, LocalServer, local_server

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
HIDDEN = "hunter2-hunter2"


def policy(*rules: Any, **more: Any) -> AuditPolicy:
    return parse({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": list(rules), **more})


async def audited(
    tmp_path: Path, test: Callable[[LocalServer], Awaitable[None]], rules: AuditPolicy | None = None
) -> list[dict[str, Any]]:
    """The events that ``test`` leaves."""
    path = tmp_path / "audit.log"

    config = ServerConfig(ca_certificate="test CA", audit=AuditConfig(path=path, policy=rules))
    async with local_server(config=config) as server:
        await test(server)
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


async def test_a_change_is_recorded_with_user_object_and_reason(tmp_path: Path) -> None:
    async def test(server: LocalServer) -> None:
        await server.post(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": HIDDEN}})
        await server.get(f"{CONFIG_MAPS}/a")

    [event] = await audited(tmp_path, test)
    assert event["kind"] == "Event" and event["apiVersion"] == "audit.k8s.io/v1"
    assert (event["level"], event["stage"], event["verb"]) == ("Metadata", "ResponseComplete", "create")
    assert event["requestURI"] == CONFIG_MAPS and event["userAgent"] == "test/1"
    assert event["user"] == {"username": "admin", "groups": ["system:masters", "system:authenticated"]}
    assert event["objectRef"] == {
        "resource": "configmaps", "namespace": "default", "name": "a", "apiVersion": "v1",
    }  # fmt: skip
    assert event["responseStatus"] == {"metadata": {}, "code": 201}
    assert event["annotations"]["authorization.k8s.io/decision"] == "allow"
    assert event["requestReceivedTimestamp"] <= event["stageTimestamp"] and len(event["stageTimestamp"]) == 27
    assert HIDDEN not in str(event)


async def test_the_id_in_the_log_is_the_one_in_the_answer(tmp_path: Path) -> None:
    ids = []

    async def test(server: LocalServer) -> None:
        for number, headers in enumerate(({}, {"Audit-Id": "mine"}, {})):
            answer = await server.call("POST", CONFIG_MAPS, {"metadata": {"name": f"a{number}"}}, headers)
            ids.append(answer.headers["audit-id"])

    events = await audited(tmp_path, test)
    assert [event["auditID"] for event in events] == ids
    assert ids[1] == "mine" and len(ids[0]) == 36 and len(set(ids)) == 3


async def test_a_refused_request_is_recorded_even_if_it_only_reads(tmp_path: Path) -> None:
    async def test(server: LocalServer) -> None:
        await server.call("GET", CONFIG_MAPS, headers={"impersonate-user": "mallory"})
        await server.call("GET", CONFIG_MAPS, headers={"authorization": "Bearer nobody-knows-this"})

    forbidden, unknown = await audited(tmp_path, test)
    assert forbidden["responseStatus"]["code"] == 403 and forbidden["responseStatus"]["reason"] == "Forbidden"
    assert 'User "mallory" cannot list' in forbidden["responseStatus"]["message"]
    assert forbidden["annotations"]["authorization.k8s.io/decision"] == "forbid"
    assert forbidden["user"]["username"] == "admin" and forbidden["impersonatedUser"]["username"] == "mallory"
    assert unknown["responseStatus"]["code"] == 401 and unknown["user"] == {}
    assert "nobody-knows-this" not in str(unknown)


async def test_a_denied_change_is_marked_and_an_allowed_one_names_its_binding(tmp_path: Path) -> None:
    async def test(server: LocalServer) -> None:
        as_alice = {"impersonate-user": "alice"}
        await server.call("POST", CONFIG_MAPS, {"metadata": {"name": "a"}}, as_alice)
        subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
        await server.post(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {"metadata": {"name": "b"}, "subjects": [subject], "roleRef": role},
        )
        (await server.call("POST", CONFIG_MAPS, {"metadata": {"name": "a"}}, as_alice)).ok()

    denied, _, allowed = await audited(tmp_path, test)
    assert denied["annotations"]["authorization.k8s.io/decision"] == "forbid"
    assert allowed["annotations"]["authorization.k8s.io/decision"] == "allow"
    assert 'ClusterRoleBinding "b"' in allowed["annotations"]["authorization.k8s.io/reason"]


async def test_only_what_authorization_refused_is_marked_as_forbidden(tmp_path: Path) -> None:
    """Admission says 403 as well. Changes of leases are not recorded, and their refusals are."""
    leases, lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases", {"metadata": {"name": "a"}}

    async def test(server: LocalServer) -> None:
        quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/leases.coordination.k8s.io": "0"}}}
        await server.post("/api/v1/namespaces/default/resourcequotas", quota)
        assert (await server.call("POST", leases, lease)).status == 403
        assert (await server.call("POST", leases, lease, {"impersonate-user": "mallory"})).status == 403

    found = await audited(tmp_path, test)
    by_admission, by_authorization = [each for each in found if each["responseStatus"]["code"] == 403]
    assert "exceeded quota" in by_admission["responseStatus"]["message"] and "annotations" not in by_admission
    assert by_authorization["annotations"]["authorization.k8s.io/decision"] == "forbid"


async def test_bodies_are_recorded_when_the_policy_wants_them(tmp_path: Path) -> None:
    async def test(server: LocalServer) -> None:
        await server.post(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
        await server.call(
            "POST", CONFIG_MAPS, b"metadata:\n  name: b\ndata:\n  k: w\n", {"content-type": "application/yaml"}
        )
        await server.call("POST", CONFIG_MAPS, b"{not json")

    rules = policy({"level": "RequestResponse", "verbs": ["create"]}, omitManagedFields=True)
    events = [each for each in await audited(tmp_path, test, rules) if each["stage"] == "ResponseComplete"]
    assert events[0]["requestObject"]["data"] == {"k": "v"}
    assert events[0]["responseObject"]["metadata"]["uid"] and "managedFields" not in str(events[0]["responseObject"])
    assert events[1]["requestObject"]["data"] == {"k": "w"}
    assert events[2]["responseStatus"]["code"] == 400 and "requestObject" not in events[2]


async def test_at_request_level_the_answer_is_not_recorded(tmp_path: Path) -> None:
    async def test(server: LocalServer) -> None:
        await server.post(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})

    received, complete = await audited(tmp_path, test, policy({"level": "Request"}))
    assert (received["stage"], complete["stage"]) == ("RequestReceived", "ResponseComplete")
    assert "responseStatus" not in received
    assert complete["requestObject"]["data"] == {"k": "v"} and "responseObject" not in complete


async def test_no_secret_is_ever_in_the_log(tmp_path: Path) -> None:
    hidden = base64.b64encode(HIDDEN.encode()).decode()
    secrets = "/api/v1/namespaces/default/secrets"

    async def issue(call: Any, request: dict[str, Any], account: dict[str, Any]) -> dict[str, Any]:
        return {**request, "status": {"token": f"{HIDDEN}.token"}}

    async def test(server: LocalServer) -> None:
        server.server.handler.subresources.issue_token = issue
        secret = {"metadata": {"name": "a"}, "data": {"password": hidden}}
        await server.post(secrets, secret)
        await server.get(f"{secrets}/a")
        await server.get(secrets)
        await server.patch(f"{secrets}/a", {"stringData": {"password": HIDDEN + "2"}})
        await server.call("POST", secrets, {"metadata": {"name": "b"}, "data": {"password": HIDDEN}})  # not base64
        await server.call("PUT", f"{secrets}/a", {"metadata": {"name": HIDDEN}})
        review = {"spec": {"token": HIDDEN}}
        await server.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
        made = await server.post("/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {}})
        assert made["status"]["token"].startswith(HIDDEN)
        await server.call("GET", f"{CONFIG_MAPS}?access_token={HIDDEN}", headers={"user-agent": f"x Bearer {HIDDEN}"})
        await server.delete(f"{secrets}/a")

    events = await audited(tmp_path, test, policy({"level": "RequestResponse"}))
    assert len(events) >= 10
    text = (tmp_path / "audit.log").read_text()
    for word in (HIDDEN, hidden, ADMIN_TOKEN):
        assert word not in text, word
    assert {each["level"] for each in events if each["objectRef"]["resource"] == "secrets"} == {"Metadata"}


async def test_a_watch_is_recorded_when_it_starts_and_when_it_ends(tmp_path: Path) -> None:
    async def test(server: LocalServer) -> None:
        async with server.watch(f"{CONFIG_MAPS}?watch=1") as events:
            assert (await anext(events))["type"] == "ADDED"
        async with server.watch(f"{CONFIG_MAPS}?watch=1&timeoutSeconds=1") as events:
            assert [event["type"] async for event in events]

    events = await audited(tmp_path, test, policy({"level": "Metadata", "verbs": ["watch"]}))
    assert [each["stage"] for each in events] == ["RequestReceived", "ResponseStarted", "ResponseComplete"] * 2


async def test_a_fault_of_ours_is_recorded_as_a_panic(tmp_path: Path) -> None:
    async def test(server: LocalServer) -> None:
        async def broken(call: Any) -> None:
            raise ZeroDivisionError

        server.server.writer.create = broken  # type: ignore[method-assign,assignment]
        assert (await server.call("POST", CONFIG_MAPS, {"metadata": {"name": "a"}})).status == 500

    [event] = await audited(tmp_path, test)
    assert event["stage"] == "Panic" and event["responseStatus"]["code"] == 500


async def test_without_a_path_nothing_is_written_and_answers_still_have_ids() -> None:
    async with local_server() as server:
        answer = await server.call("POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
        assert len(answer.headers["audit-id"]) == 36
        assert server.server.handler.protection.auditor.events == 0


async def test_the_numbers_are_in_the_metrics(tmp_path: Path) -> None:
    async def test(server: LocalServer) -> None:
        await server.post(CONFIG_MAPS, {"metadata": {"name": "a"}})
        text = (await server.call("GET", "/metrics")).body.decode()
        assert "apiserver_audit_event_total 1.0" in text
        assert 'apiserver_audit_error_total{plugin="log"} 0.0' in text
        assert 'apiserver_current_inflight_requests{request_kind="mutating"} 0.0' in text
        assert 'apiserver_flowcontrol_dispatched_requests_total{flow_schema="exempt",priority_level="exempt"}' in text
        assert 'apiserver_flowcontrol_nominal_limit_seats{priority_level="workload-low"} 245.0' in text

    await audited(tmp_path, test)


async def test_a_secret_that_is_sent_to_the_wrong_place_is_not_recorded(tmp_path: Path) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"k": HIDDEN}}

    async def test(server: LocalServer) -> None:
        for path in ("/api/v1/namespaces/default/secrets/a/parts", "/api/v2/namespaces/default/secrets"):
            await server.call("POST", path, {**secret, "kind": "Whatever"})
        for path in (CONFIG_MAPS, "/apis/v1/namespaces/default/secrets"):
            await server.call("POST", path, secret)

    events = await audited(tmp_path, test, policy({"level": "RequestResponse"}))
    assert len(events) == 8 and HIDDEN not in str(events)


async def test_a_token_in_the_query_is_not_recorded_whatever_it_is_called(tmp_path: Path) -> None:
    async def test(server: LocalServer) -> None:
        await server.call("GET", f"{CONFIG_MAPS}?x=Bearer%20eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.{HIDDEN}&limit=5")

    events = await audited(tmp_path, test, policy({"level": "Metadata"}))
    assert HIDDEN not in str(events) and "limit=5" in events[0]["requestURI"]


@pytest.mark.parametrize(("level", "recorded"), [(METADATA, False), (REQUEST, True)])
def test_a_webhooks_patch_is_recorded_where_the_object_is(level: int, recorded: bool) -> None:
    trail = AuditTrail(AuditGrade(level), b"id", Request("POST", b"/", {}), "create", None, None, None, 0.0)
    trail.annotations = {
        "patch.webhook.admission.k8s.io/round_0_index_0": HIDDEN,
        "mutation.webhook.admission.k8s.io/round_0_index_0": "mutated",
    }
    written = line(AuditRecord(trail, "ResponseComplete", 0.0, 201))
    assert (HIDDEN.encode() in written) is recorded and b"mutated" in written


async def test_a_long_user_agent_is_cut(tmp_path: Path) -> None:
    async def test(server: LocalServer) -> None:
        await server.call("POST", CONFIG_MAPS, {"metadata": {"name": "a"}}, {"user-agent": "x" * 60_000})

    [event] = await audited(tmp_path, test)
    assert event["userAgent"] == "x" * 1024 + "...TRUNCATED"
