"""A sandbox for all code that replies can reach: a parent that is warm forks a child a reply, and nothing outlives it.

`client.Sandbox` is what the rest of whet sees. `workers` keeps the processes and the clock; `host` is the parent, which
runs inside bubblewrap; `jail` is what a child does to itself before it touches a reply.
"""
