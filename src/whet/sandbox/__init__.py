"""A sandbox for all code that replies can reach: a warm parent forks a child for each reply, and nothing outlives it.

The rest of whet sees `client.Sandbox`. `workers` keeps the processes and the clock. `host` is the parent, which runs
inside bubblewrap. `jail` is what a child does to itself before it touches a reply.
"""
