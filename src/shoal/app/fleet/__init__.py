"""The processes of the fleet: control plane, agents, sentinels."""
