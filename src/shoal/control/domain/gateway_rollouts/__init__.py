"""Rollouts of the gateways of an environment, by the engine that rolls out apps."""
