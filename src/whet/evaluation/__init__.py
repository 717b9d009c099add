"""Evaluation of critics, actors and agents: pure functions from graded records to named metrics.

A number whose denominator is zero is None, never 0. `critique` holds the metrics of one answer-critique-refinement
round and of K samples.
"""
