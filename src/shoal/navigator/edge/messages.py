"""The bodies of messages, each under the name of its field."""

from __future__ import annotations

from typing import Literal

from protobuf import Oneof

from shoal.wire.navigator.v1 import navigator_pb as pb

Body = (
    Oneof[Literal["identification"], pb.Identification]
    | Oneof[Literal["state"], pb.ClusterState]
    | Oneof[Literal["delta"], pb.ClusterDelta]
    | Oneof[Literal["verification"], pb.Verification]
    | Oneof[Literal["reply"], pb.Reply]
    | Oneof[Literal["keep_alive"], pb.KeepAlive]
    | Oneof[Literal["options_taken"], pb.OptionsTaken]
)


def identification(value: pb.Identification) -> Body:
    made: Oneof[Literal["identification"], pb.Identification] = Oneof("identification", value)
    return made


def state(value: pb.ClusterState) -> Body:
    made: Oneof[Literal["state"], pb.ClusterState] = Oneof("state", value)
    return made


def delta(value: pb.ClusterDelta) -> Body:
    made: Oneof[Literal["delta"], pb.ClusterDelta] = Oneof("delta", value)
    return made


def verification(value: pb.Verification) -> Body:
    made: Oneof[Literal["verification"], pb.Verification] = Oneof("verification", value)
    return made


def reply(value: pb.Reply) -> Body:
    made: Oneof[Literal["reply"], pb.Reply] = Oneof("reply", value)
    return made


def keep_alive(value: pb.KeepAlive) -> Body:
    made: Oneof[Literal["keep_alive"], pb.KeepAlive] = Oneof("keep_alive", value)
    return made


def options_taken(value: pb.OptionsTaken) -> Body:
    made: Oneof[Literal["options_taken"], pb.OptionsTaken] = Oneof("options_taken", value)
    return made


def put(row: pb.Row) -> pb.Change:
    made: Oneof[Literal["put"], pb.Row] = Oneof("put", row)
    return pb.Change(change=made)


def remove(key: pb.RowKey) -> pb.Change:
    made: Oneof[Literal["remove"], pb.RowKey] = Oneof("remove", key)
    return pb.Change(change=made)
