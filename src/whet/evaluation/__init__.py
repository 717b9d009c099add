"""What a trained critic, actor or agent is worth: pure functions from graded records to named numbers.

A number whose denominator is zero is None, never 0. `critique` holds the metrics of one answer-critique-refinement
round and of K samples.
"""
