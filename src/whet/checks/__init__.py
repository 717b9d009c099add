"""Checks before time is spent: a reward against replies that cheat it, and a run's settings, data and machine."""
