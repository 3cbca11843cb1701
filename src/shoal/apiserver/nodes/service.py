"""Requests to nodes: runs authorization and admission, finds the address, connects and relays.

Nothing here holds seats of flow control or is ended by a deadline: the client decides how long a log is followed or a
command runs, and when either side closes, both end.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from shoal.apiserver import objects
from shoal.apiserver.admission.chain import Chain
from shoal.apiserver.admission.model import CONNECT
from shoal.apiserver.admission.passes import begin_pass
from shoal.apiserver.authz.authorizer import Authorizer
from shoal.apiserver.context import Call, Core
from shoal.apiserver.messages import Answer, Response, Wire
from shoal.apiserver.negotiate import NO_QUERY, flag
from shoal.apiserver.node_access import NodeCredentials
from shoal.apiserver.nodes import locate, options
from shoal.apiserver.nodes.backend import Backend, Collected, Endpoint, Head, Headers, Unreachable, connect
from shoal.apiserver.nodes.locate import UnknownError
from shoal.apiserver.nodes.proxy import METHODS, NodeProxy, head_of, place_of, wants_upgrade
from shoal.apiserver.nodes.relay import BackendRelay, SocketRelay, Tunnel
from shoal.apiserver.nodes.rewrite import request_headers, response_headers
from shoal.apiserver.nodes.sessions import Carrier, CommandSession, ForwardSession, InSocket, Plain
from shoal.apiserver.nodes.sockets import KubeletSocket, UpgradeRefused, open_socket
from shoal.base import spdy, websocket
from shoal.base.websocket import Channel
from shoal.errors import BadRequest, InternalError, MethodNotAllowed, NotFound, from_status
from shoal.kube.objects import Obj
from shoal.store import Key

SUBRESOURCES = frozenset({"log", "exec", "attach", "portforward", "proxy"})
_TUNNELLED = "SPDY/3.1+portforward.k8s.io"
_FORWARD = "portforward.k8s.io"
_COMMAND = (websocket.V4,)  # of SPDY's versions of exec; v5 would be no different on it
_STREAMS = {"stdin": Channel.STDIN, "stdout": Channel.STDOUT, "stderr": Channel.STDERR}
_PROXIED = re.compile(rb"/api/v1/(?:namespaces/[^/?]+/(?:pods|services)|nodes)/[^/?]+/proxy(?:[/?]|$)")
_LOG_SOCKETS = ("binary.k8s.io", "base64.binary.k8s.io")
_REFUSAL_BYTES = 50_000


def hands_on(target: bytes) -> bool:
    """Whether the body of a request with this target is streamed: only for proxies."""
    return b"/proxy" in target and _PROXIED.match(target) is not None


class NodeAccess:
    """Answers the subresources that lead to nodes."""

    def __init__(self, core: Core, authorizer: Authorizer, admission: Chain) -> None:
        self._core = core
        self._config = core.config.nodes
        self._authorizer = authorizer
        self._admission = admission
        self._loopback = self._config.networks()
        self.credentials = NodeCredentials(self._config)
        self._next_endpoint = 0  # endpoints of services are used round robin
        self._proxy = NodeProxy(core.clock, self._config.dial_s)

    async def handle(self, call: Call, method: str) -> Answer:
        name = call.target.subresource
        call.request.unhurried = True
        if name == "log" and method in ("GET", "HEAD"):
            return await self._log(call)
        if name == "proxy" and method in METHODS:
            return await self._proxied(call)
        if name in ("exec", "attach", "portforward") and method in ("GET", "POST"):
            if method == "GET" and not self._authorizer.allows_all(call.user):  # a WebSocket is opened by GET
                self._authorizer.check_target(call.user, "create", call.target, NO_QUERY)
            return await self._stream(call, name)
        resource = call.served.resource
        raise MethodNotAllowed(
            "the server does not allow this method on the requested resource",
            details={"group": resource.group, "kind": resource.plural},
        )

    # -- requests ----------------------------------------------------------------------------------------------------

    async def _admitted(self, call: Call) -> Obj:
        """The options of a connection as admission leaves them."""
        if "dryRun" in call.query and flag(call.query, "dryRun"):
            raise BadRequest("dryRun is not supported")
        sub = call.served.resource.subresource(call.target.subresource)
        assert sub is not None
        tail = "/" + call.target.tail if call.target.tail or call.request.path.endswith("/") else ""
        made = options.connect_options(sub.kind, call.query, call.request.query, tail)
        admission = begin_pass(
            self._admission, call, call.served, CONNECT, subresource=sub.name, options={}, kind=("", "v1", sub.kind)
        )
        if admission is not None:
            made = await admission.mutate(made)
            await admission.validate(made)
        return made

    async def _find(self, plural: str, namespace: str, name: str) -> Obj:
        await self._core.store.fresh()
        entry = self._core.store.get(Key(plural, namespace, name))
        if entry is None:
            raise NotFound.of(plural, "", name)
        return objects.decode(entry)

    async def _pod(self, call: Call, name: str) -> Obj:
        return await self._find("pods", call.namespace or "", name)

    # -- kubelets ----------------------------------------------------------------------------------------------------

    async def kubelet(self, node_name: str, *, insecure: bool = False) -> Endpoint:
        """Where a node's kubelet is."""
        node = await self._find("nodes", "", node_name)
        host, port = locate.kubelet_address(node, self._config.address_types, self._config.port)
        if not self.credentials.known:
            raise InternalError("Internal error occurred: this server has no client certificate for kubelets")
        return Endpoint(host, port, self.credentials.kubelet(insecure=insecure))

    async def ask(self, endpoint: Endpoint, method: str, target: str, headers: Headers = ()) -> tuple[Backend, Head]:
        """Send a request without a body and return the response head; ``Unreachable`` without a response."""
        backend = await connect(self._core.clock, endpoint, self._config.dial_s)
        try:
            sent = [*headers]
            if not any(name.lower() == b"host" for name, _ in sent):
                sent.append((b"host", endpoint.authority.encode()))
            backend.send(head_of(method, target.encode(), sent))
            return backend, await backend.head()
        except BaseException:
            backend.abort()
            raise

    # -- logs --------------------------------------------------------------------------------------------------------

    async def _log(self, call: Call) -> Answer:
        wanted = options.log_options(call.query, call.name)
        pod = await self._pod(call, call.name)
        container = locate.container_of(pod, wanted.container)
        node = pod["spec"].get("nodeName")
        if not node:
            return Response(204, b"", b"")
        endpoint = await self.kubelet(node, insecure=wanted.insecure)
        path = f"/containerLogs/{call.namespace}/{call.name}/{container}"
        target = f"{path}?{urlencode(wanted.parameters)}" if wanted.parameters else path
        try:
            backend, head = await self.ask(endpoint, "GET", target)
        except Unreachable as error:
            raise UnknownError(f'Get "https://{endpoint.authority}{target}": {error}') from error
        if not 200 <= head.status <= 206:
            raise await _refusal(backend, head, call.name)
        if wants_upgrade(call.request):
            return _log_socket(call, backend)
        return BackendRelay(backend, 200, b"text/plain")

    # -- exec, attach, port-forward ----------------------------------------------------------------------------------

    async def _stream(self, call: Call, name: str) -> Answer:
        made = await self._admitted(call)
        pod = await self._pod(call, call.name)
        container = "" if name == "portforward" else locate.container_of(pod, made.get("container") or "")
        node = pod["spec"].get("nodeName")
        if not node:
            raise BadRequest(f"pod {call.name} does not have a host assigned")
        endpoint = await self.kubelet(node)
        where = f"{call.namespace}/{call.name}"
        target = f"/portForward/{where}" if name == "portforward" else f"/{name}/{where}/{container}"
        if not wants_upgrade(call.request):
            raise BadRequest("Upgrade request required")
        try:
            return await self._switch(call, name, endpoint, target, made)
        except Unreachable as error:
            raise UnknownError(f"error dialing backend: {error}") from error

    async def _switch(self, call: Call, name: str, endpoint: Endpoint, target: str, made: Obj) -> Answer:
        query = options.kubelet_parameters(made)
        headers = call.request.headers
        protocol = headers[b"upgrade"].strip().lower()
        if protocol == spdy.PROTOCOL.lower().encode():
            if name == "portforward":
                agreed = _agreed(headers, (_FORWARD,))
                return self._forward(endpoint, target, _spdy_headers(agreed), Plain)
            expected = [Channel.ERROR, *(channel for switch, channel in _STREAMS.items() if made.get(switch))]
            if made.get("tty"):
                expected = [channel for channel in expected if channel is not Channel.STDERR]
            return await self._command(endpoint, f"{target}?{query}", _agreed(headers, _COMMAND), expected)
        offered = websocket.offered(headers.get(b"sec-websocket-protocol", b"").decode("latin-1"))
        if name == "portforward" and _TUNNELLED in offered:
            return self._forward(endpoint, target, _socket_headers(headers, _TUNNELLED), InSocket)
        full = f"{target}?{query}" if query else target
        passed = request_headers(headers, call.request.client, upgrade=True)
        backend, head = await self.ask(endpoint, call.request.method, full, passed)
        if head.status == 101:
            return Tunnel(backend, head.headers)
        return _not_switched(backend, head)

    def _random_bytes(self, count: int) -> bytes:
        return bytes.fromhex(self._core.ids.new_uid().replace("-", ""))[:count]

    def _socket(self, endpoint: Endpoint, target: str) -> Awaitable[KubeletSocket]:
        return open_socket(
            lambda where, headers: self.ask(endpoint, "GET", where, headers),
            target,
            (websocket.V5, websocket.V4),
            self._random_bytes,
        )

    async def _command(self, endpoint: Endpoint, target: str, agreed: str, expected: list[Channel]) -> Answer:
        try:
            socket = await self._socket(endpoint, target)
        except UpgradeRefused as refused:
            return _not_switched(refused.backend, refused.head)
        return CommandSession(_spdy_headers(agreed), Plain, socket, expected, self._core.clock)

    def _forward(
        self, endpoint: Endpoint, target: str, headers: Headers, carry: Callable[[Wire], Carrier]
    ) -> ForwardSession:
        async def open_port(port: str) -> KubeletSocket:
            try:
                return await self._socket(endpoint, f"{target}?port={port}")
            except UpgradeRefused as refused:
                body = await Collected(refused.backend, _REFUSAL_BYTES).read()
                raise Unreachable(body.decode("utf-8", "replace").strip() or str(refused)) from None

        return ForwardSession(headers, carry, open_port)

    # -- proxies -----------------------------------------------------------------------------------------------------

    async def _proxied(self, call: Call) -> Answer:
        await self._admitted(call)
        plural = call.served.resource.plural
        find = {"pods": self._pod_endpoint, "services": self._service_endpoint, "nodes": self._node_endpoint}[plural]
        endpoint = await find(call, locate.wanted(call.name, plural[:-1]))
        return await self._proxy.pass_on(call.request, place_of(call.request, call.target, endpoint))

    def _endpoint(self, scheme: str, host: str, port: str) -> Endpoint:
        if port and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
            raise BadRequest(f'invalid port "{port}"')
        secure = scheme == "https"
        return Endpoint(host, int(port or (443 if secure else 80)), self.credentials.pod() if secure else None)

    async def _pod_endpoint(self, call: Call, asked: locate.ProxiedName) -> Endpoint:
        host, port = locate.pod_address(await self._pod(call, asked.name), asked.port, self._loopback)
        return self._endpoint(asked.scheme, host, port)

    async def _service_endpoint(self, call: Call, asked: locate.ProxiedName) -> Endpoint:
        namespace = call.namespace or ""
        service = await self._find("services", namespace, asked.name)
        store = self._core.store
        slices = [
            objects.decode(entry)
            for entry in store.range("endpointslices.discovery.k8s.io", namespace).entries
            if entry.attrs.labels.get("kubernetes.io/service-name") == asked.name
        ]

        def pod_named(pod: str) -> Mapping[str, Any] | None:
            entry = store.get(Key("pods", namespace, pod))
            return None if entry is None else objects.decode(entry)

        self._next_endpoint += 1
        host, port = locate.endpoint_of(
            asked.name, slices, locate.port_name(service, asked.port), pod_named, self._next_endpoint
        )
        locate.check_address(host, self._loopback)
        return self._endpoint(asked.scheme, host, str(port))

    async def _node_endpoint(self, call: Call, asked: locate.ProxiedName) -> Endpoint:
        kubelet = await self.kubelet(asked.name)
        address = name = kubelet.host
        if not locate.is_address(name):
            found = await asyncio.get_running_loop().getaddrinfo(name, None)
            address = str(found[0][4][0])
        locate.check_address(address, self._loopback)
        if asked.port not in ("", str(kubelet.port)):
            kubelet = self._endpoint(asked.scheme, name, asked.port)
        # what was checked is what is dialled: the name may lead elsewhere when it is resolved again
        return replace(kubelet, host=address, server_name=name)


async def _refusal(backend: Backend, head: Head, name: str) -> Exception:
    """The error for a failed log request, with the kubelet's message, as in Kubernetes."""
    text = (await Collected(backend, _REFUSAL_BYTES).read()).decode("utf-8", "replace").rstrip("\n")
    if head.status == 500:
        return InternalError(f"Internal error occurred: {text}")
    if head.status == 400:
        return BadRequest(text)
    message = "the server could not find the requested resource" if head.status == 404 else "unknown"
    causes = [{"reason": "UnexpectedServerResponse", "message": text}]
    details = {"name": name, "kind": "pods/log", "causes": causes}
    return from_status({"message": f"{message} ( pods/log {name})", "details": details}, head.status)


def _not_switched(backend: Backend, head: Head) -> Answer:
    """The kubelet's error message, for the client."""
    if head.status < 400:
        backend.abort()
        raise UnknownError(f"invalid upgrade response: status code {head.status}")
    return BackendRelay(
        backend, head.status, headers=response_headers(head.headers), length=head.length, own_headers=True
    )


def _log_socket(call: Call, backend: Backend) -> Answer:
    headers = call.request.headers
    offered = websocket.offered(headers.get(b"sec-websocket-protocol", b"").decode("latin-1"))
    chosen = websocket.choose(offered, _LOG_SOCKETS) if offered else ""
    try:
        if chosen is None:
            raise BadRequest(f"requested protocol(s) are not supported: {offered}; supports {list(_LOG_SOCKETS)}")
        return SocketRelay(backend, _socket_headers(headers, chosen), text=chosen == _LOG_SOCKETS[1])
    except BadRequest:
        backend.abort()
        raise


def _socket_headers(headers: Mapping[bytes, bytes], protocol: str) -> Headers:
    """The answer to a WebSocket's handshake."""
    key = headers.get(b"sec-websocket-key", b"").decode("latin-1")
    if headers.get(b"upgrade", b"").strip().lower() != b"websocket" or not websocket.is_key(key):
        raise BadRequest("invalid WebSocket handshake")
    made = [
        (b"Upgrade", b"websocket"),
        (b"Connection", b"Upgrade"),
        (b"Sec-WebSocket-Accept", websocket.accept_key(key).encode()),
    ]
    return [*made, (b"Sec-WebSocket-Protocol", protocol.encode())] if protocol else made


def _agreed(headers: Mapping[bytes, bytes], supported: tuple[str, ...]) -> str:
    """The protocol on top of SPDY that both sides know."""
    offered = websocket.offered(headers.get(b"x-stream-protocol-version", b"").decode("latin-1"))
    chosen = websocket.choose(offered, supported)
    if chosen is None:
        text = "unable to upgrade: unable to negotiate protocol"
        raise BadRequest(f"{text}: client supports {offered}, server accepts {list(supported)}")
    return chosen


def _spdy_headers(protocol: str) -> Headers:
    return (
        (b"Upgrade", spdy.PROTOCOL.encode()),
        (b"Connection", b"Upgrade"),
        (b"X-Stream-Protocol-Version", protocol.encode()),
    )
