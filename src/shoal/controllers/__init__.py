"""The controllers of the embedded cluster: each compares what is wanted with what is there and makes the next step.

One folder each: ``plan.py`` decides (pure: objects and the time in, actions out), ``reconcile.py`` reads the caches and
carries the actions out, ``wiring.py`` says what is watched and how fast. ``wiring`` here puts them all together.
"""
