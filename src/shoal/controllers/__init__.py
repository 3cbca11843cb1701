"""The controllers of the embedded cluster: each compares desired with actual state and takes the next step.

Each has a folder: ``plan.py`` decides (pure: objects and the time in, actions out), ``reconcile.py`` reads the caches
and executes the actions, ``wiring.py`` sets up watches and rate limits. ``wiring`` here adds them all.
"""
