"""Clients that write to one server until it is gone, and the check that what it acknowledged is stored."""

from __future__ import annotations

import threading

from cluster_client import GONE, Client

from shoal.testing.servers import ServerProcess
from shoal.testing.tally import TALLY

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


class Writer(threading.Thread):
    """Writes its own objects over and over; knows what was acknowledged and at which revision."""

    def __init__(
        self, server: ServerProcess, name: str, acknowledged: dict[str, tuple[int, int]], *, spread: int = 10
    ) -> None:
        super().__init__()
        self.server, self.prefix, self.acknowledged = server, name, acknowledged
        self.spread = spread  # objects
        self.refused = 0

    def run(self) -> None:
        client = Client(self.server)
        try:
            for number in range(1_000_000):
                self._write(client, f"{self.prefix}-{number % self.spread}", number)
        except GONE:
            return
        finally:
            client.close()

    def _write(self, client: Client, key: str, number: int) -> None:
        body = {"metadata": {"name": key}, "data": {"n": str(number), "fill": "x" * 2000}}
        status, answer = client.call("PUT" if key in self.acknowledged else "POST", self._path(key), body)
        if status in (200, 201):
            revision = int(answer["metadata"]["resourceVersion"])
            known = self.acknowledged.get(key)
            assert known is None or revision > known[1], "revisions went backwards"
            self.acknowledged[key] = (number, revision)
        elif status == 409 and answer["reason"] == "AlreadyExists":
            self.acknowledged[key] = (-1, 0)  # stored by a request whose answer was lost
        else:
            self.refused += 1

    def _path(self, key: str) -> str:
        return f"{CONFIGMAPS}/{key}" if key in self.acknowledged else CONFIGMAPS


def check_stored(server: ServerProcess, acknowledged: dict[str, tuple[int, int]]) -> int:
    client = Client(server)
    listed = client.ok("GET", CONFIGMAPS)
    client.close()
    stored = {item["metadata"]["name"]: item for item in listed["items"]}
    for key, (number, revision) in acknowledged.items():
        assert key in stored, f"{key} was acknowledged and is gone"
        assert int(stored[key]["data"]["n"]) >= number
        assert int(stored[key]["metadata"]["resourceVersion"]) >= revision
    TALLY.checked += len(acknowledged)
    newest = int(listed["metadata"]["resourceVersion"])
    assert newest >= max((revision for _, revision in acknowledged.values()), default=0)
    return newest
