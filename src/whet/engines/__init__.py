"""Engines: token ids in, token ids and logprobs out, with the version of the weights that wrote them."""

from whet.engines.protocol import Engine, Weights, Wrote

__all__ = ["Engine", "Weights", "Wrote"]
