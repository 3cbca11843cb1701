"""Rollouts of apps: their rows, what is known of them, and how what ``control.rollout`` decides is carried out."""
