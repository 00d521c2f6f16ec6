"""Searches for evidence: points near the states of a machine, and words on which a model is wrong."""
