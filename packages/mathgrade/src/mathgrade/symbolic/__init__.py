"""Compares mathematics by Math-Verify and SymPy, which take a second to import and may take hours over a short text.

`comparing.compare` is the way in. Nothing here keeps a clock: who compares texts of a model does it in a process that
can be killed.
"""
