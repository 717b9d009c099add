"""Compares mathematics by Math-Verify and SymPy, which take a second to import and may take hours over a short text.

`comparing.compare` is the entry point. Nothing here has a time limit: compare texts of a model in a process that can be
killed.
"""
