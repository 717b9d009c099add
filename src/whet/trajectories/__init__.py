"""Recorded episodes of agents: files, formats, a store, and what is learnt from them."""
