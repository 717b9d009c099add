"""Critique data made automatically: AutoMathCritique."""
