"""The stop of a server, as connected clients see it."""

from __future__ import annotations

import http.client
import ssl
import time
from contextlib import closing
from urllib.parse import urlsplit

from shoal.testing.servers import ServerProcess, server_process


def connect(cluster: ServerProcess) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cafile=cluster.ca_file)
    return http.client.HTTPSConnection(urlsplit(cluster.url).netloc, context=context, timeout=20)


def test_idle_clients_do_not_hold_up_a_stop_and_watches_end_cleanly() -> None:
    with server_process() as cluster, closing(connect(cluster)) as idle, closing(connect(cluster)) as watching:
        idle.request("GET", "/version")
        assert idle.getresponse().read()
        headers = {"authorization": f"Bearer {cluster.token}"}
        watching.request("GET", "/api/v1/namespaces?watch=1", headers=headers)
        stream = watching.getresponse()
        assert stream.readline().startswith(b'{"type":"ADDED"')
        started = time.monotonic()
        cluster.process.terminate()
        rest = stream.read()  # raises IncompleteRead when the last chunk is missing
        assert cluster.process.wait(20) == 0
        assert time.monotonic() - started < 8, (
            "the server waited for its clients until the ten seconds of a stop were over"
        )
    assert rest.endswith(b"\n")
