"""Rollouts: tasks and engines go in, episodes come out. Nothing here trains."""
