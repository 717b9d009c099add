"""The server: a run's policies behind an OpenAI-compatible endpoint, batched over our own engine."""
