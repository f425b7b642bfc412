"""Faults on purpose: what can be broken, how, and how each is taken back."""
