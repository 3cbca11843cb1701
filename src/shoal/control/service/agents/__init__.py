"""Agents: their tokens, joining and epochs, heartbeats and presence."""
