"""The two machines of a stream against each other: the agent's and the control plane's, with the network between."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from krane_doubles import KEYS as SIGNING_KEYS
from krane_doubles import Desired, event
from krane_model import OBJECTS, ModelAgent, hello_of

from shoal.control.database.position import Position
from shoal.control.service.desired.index import DesiredEntry, DesiredIndex
from shoal.control.service.desired.model import Loaded
from shoal.control.service.stream.protocol import (
    FullSync,
    Load,
    Resume,
    Send,
    SessionConfig,
    Wait,
    WatchSession,
    decide,
)
from shoal.krane.protocol import is_removal, version_of
from shoal.sync.keys import Place, StreamKind
from shoal.sync.versions import decode_cursor, read_cursor
from shoal.wire.fleet.v1 import cluster_pb as pb

PLACE = Place("clu_1", "default")


class Service:
    """The control plane's machine over the rows of a ``Desired``."""

    def __init__(self) -> None:
        self.desired = Desired()
        self.index = DesiredIndex(SIGNING_KEYS)
        self.index.moved("main", Position(1, 0, 0))
        self.session: WatchSession | None = None
        self.now = 0.0

    def change(self, kind: str, key: str) -> None:
        if kind == "lose" and key in self.desired.items:
            self.desired.lose(key)
            self.index.forget(PLACE, StreamKind.DEPLOYMENTS, key)
        elif kind == "want" or key in self.desired.items:
            item = self.desired.want(key) if kind == "want" else self.desired.unwant(key)
            action = "delete" if is_removal(item) else "apply"
            entry = DesiredEntry("main", version_of(item).number, action, item.by_user)
            self.index.put(PLACE, StreamKind.DEPLOYMENTS, key, entry)
        self.index.moved("main", Position(1, self.desired.number, 0))

    def hello(self, cursor: str) -> None:
        how = decide(decode_cursor(cursor, SIGNING_KEYS), self.index.positions)
        assert isinstance(how, Resume | FullSync)
        place_index = self.index.of(PLACE, StreamKind.DEPLOYMENTS)
        config = SessionConfig(batch=2)
        if self.session is not None:
            self.session.close()
        self.session = WatchSession(self.index, place_index, config, wake=lambda: None, random=lambda: 0.5)
        self.session.begin(how, self.now)

    def step(self) -> list[pb.WatchEvent]:
        """The next messages; none when there is nothing to say now."""
        assert self.session is not None
        said = self.session.next(self.now)
        if isinstance(said, Send):
            return list(said.events)
        if isinstance(said, Load):
            items = {key: self.desired.items.get(key) for key in said.keys}
            found = {key: None if item is None else Loaded(version_of(item).number, b"") for key, item in items.items()}
            sending = self.session.loaded(found, self.now)
            return [event("item", self.desired.items[key]) for key, _ in sending]
        assert isinstance(said, Wait)
        return []


def _exchange(service: Service, agent: ModelAgent) -> None:
    """Until neither has anything to say."""
    quiet = 0
    while quiet < 2:
        messages = service.step()
        for message in messages:
            agent.receive(message)
        if agent.asked and service.session is not None:
            buckets, agent.asked = agent.asked, []
            service.session.ask(buckets)
            quiet = 0
        quiet = 0 if messages else quiet + 1


def _connect(service: Service, agent: ModelAgent) -> None:
    agent.machine.disconnect()
    agent.asked.clear()
    service.hello(hello_of(agent.machine))


_step = st.one_of(
    st.tuples(st.sampled_from(["want", "want", "unwant", "lose"]), st.sampled_from(OBJECTS)),
    st.tuples(st.sampled_from(["deliver", "deliver", "half", "cut", "restart", "wait"]), st.just("")),
)


@settings(max_examples=120, deadline=None)
@given(steps=st.lists(_step, max_size=40))
def test_both_machines_agree_whatever_was_cut(steps: list[tuple[str, str]]) -> None:
    service = Service()
    agent = ModelAgent(service.desired)
    _connect(service, agent)
    for kind, key in steps:
        if key:
            service.change(kind, key)
        elif kind == "wait":
            service.now += 45.0
        elif kind in ("cut", "restart"):
            if kind == "restart":
                agent.restart()
            _connect(service, agent)
        else:
            messages = service.step()
            for message in messages[: len(messages) // 2] if kind == "half" else messages:
                agent.receive(message)
            if kind == "half" and messages:
                _connect(service, agent)
    _connect(service, agent)
    _exchange(service, agent)
    for _ in range(4):
        service.now += 120.0
        _exchange(service, agent)
    assert agent.cluster == {key: version_of(item) for key, item in service.desired.wanted().items()}
    assert read_cursor(agent.disk_cursor).positions == {"main": (1, service.desired.number)}
