"""The cluster service: what the agents of the clusters talk to. Streams of desired state out, reports of reality in."""
