"""Machines from labelled words: state merging that tolerates wrong labels, local search, and what the data support."""
