"""Self-improvement by rounds of exploration, with a critic in the loop or without."""
