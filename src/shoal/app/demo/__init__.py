"""The demo application, ``shoal/demo-app:TAG``: a small HTTP and WebSocket server to show and test traffic with.

Imports nothing slow: hundreds of them start on one machine.
"""
