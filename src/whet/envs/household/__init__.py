"""Household tasks in words: ALFWorld, and two games of TextWorldExpress."""
