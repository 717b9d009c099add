"""The files of a run's folder: configuration, metrics, events, traces, logs."""
