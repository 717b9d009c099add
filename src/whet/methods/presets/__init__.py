"""Families of `policy_gradient`: the settings that each published method starts from."""
