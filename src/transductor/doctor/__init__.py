"""The self-check: what this machine offers, and whether everything that can run on it computes what it should."""
