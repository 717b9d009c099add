"""Agents that act over many turns in environments."""
