"""The shell around the machine of a stream, as a model: what is on disk, what runs, and what must never happen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from krane_doubles import Desired

from shoal.krane.protocol import Command, FindAbsent, Save, Send, Take, WatchMachine, is_removal, version_of
from shoal.sync.versions import Version
from shoal.wire.fleet.v1 import cluster_pb as pb

IDENTITY = pb.Identity(cluster="c1", region="eu", shard="default", agent="a1", epoch=1)
OBJECTS = [f"deployment/d{n}" for n in range(6)]


def hello_of(machine: WatchMachine) -> str:
    (command,) = machine.connect(IDENTITY)
    assert isinstance(command, Send) and command.request.request is not None
    hello = command.request.request.value
    assert isinstance(hello, pb.Hello)
    return hello.cursor


@dataclass
class ModelAgent:
    """The shell around the machine as a model: what is on disk, what runs; a restart keeps only these."""

    server: Desired
    disk: dict[str, pb.Item] = field(default_factory=dict)
    disk_cursor: str = ""
    cluster: dict[str, Version] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    machine: WatchMachine = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.machine = WatchMachine(cursor=self.disk_cursor, items=self.disk.values())

    def connect(self) -> list[pb.WatchEvent]:
        self.asked.clear()
        return self.server.hello(hello_of(self.machine))

    def receive(self, message: pb.WatchEvent) -> None:
        self._do(self.machine.receive(message))

    def _do(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Send(request):
                    assert request.request is not None
                    if request.request.field == "buckets":
                        self.asked += request.request.value.buckets
                case Take(item):
                    self._take(item)
                case Save(cursor):
                    # everything the cursor covers has been received: nothing acknowledged can be lost
                    self.disk_cursor = cursor
                    self._do(self.machine.saved(cursor))
                case FindAbsent(sync):
                    live: dict[str, Version | None] = dict(self.cluster)
                    for key in self.machine.suspects(sync, live):
                        answer = self.server.items.get(key)
                        if answer is not None:
                            self._do(self.machine.learned(answer))
                        else:
                            assert key not in self.server.wanted()
                            self._do(self.machine.absent(sync, key, live, pb.Delete()))

    def _take(self, item: pb.Item) -> None:
        self.disk[item.key] = item
        running = self.cluster.get(item.key)
        assert running is None or version_of(item).is_after(running), "an older version after a newer one"
        if is_removal(item):
            # wanted at this moment of its history means: somebody said so, of this very version or a later one
            current = self.server.items.get(item.key)
            wanted = current is not None and not is_removal(current)
            assert not wanted or version_of(current).is_after(version_of(item)), "deleted what is wanted"  # type: ignore[arg-type]
            self.cluster.pop(item.key, None)
        else:
            self.cluster[item.key] = version_of(item)

    def converge(self) -> None:
        """A connection that works, and digests until both agree."""
        self.machine.disconnect()
        for message in self.connect():
            self.receive(message)
        for _ in range(3):
            self.receive(self.server.digest())
            if self.asked:
                buckets, self.asked = self.asked, []
                for message in self.server.sync(buckets):
                    self.receive(message)
