"""Runs: what every method's runs share, whatever the method is."""
