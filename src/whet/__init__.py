"""Train the language models that make other language models better: critics, actors, agents."""
