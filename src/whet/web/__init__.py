"""What both servers of whet share: the gate before every request, and the loop that serves until a signal."""

LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""Addresses that only this machine reaches."""
