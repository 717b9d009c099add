"""The worker pool, where the graders look for it."""

from whet.sandbox.workers import Failure, Json, WorkerError, WorkerPool

__all__ = ["Failure", "Json", "WorkerError", "WorkerPool"]
