"""Clients of environments that run behind an address: whet's server, AgentGym's servers, OpenEnv's."""
