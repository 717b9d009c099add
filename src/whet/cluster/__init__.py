"""Processes beside a run's own: ranks train policies together, and workers roll out."""
