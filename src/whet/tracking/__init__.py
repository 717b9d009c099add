"""Trackers: what follows the logs of a run and sends them to TensorBoard, trackio or Weights & Biases.

A follower only reads the run's folder (`follow`), or is a process beside the run that the run never waits for
(`beside`). Nothing here imports torch or the trainer.
"""
