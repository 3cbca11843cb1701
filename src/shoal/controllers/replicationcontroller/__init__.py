"""ReplicationController: a ReplicaSet by an older name, whose selector is a plain map."""
