"""Tasks: what roles are asked. The tiny world, files and data sets, splits, prompts, demonstrations."""
