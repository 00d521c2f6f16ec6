"""The self-check: what is installed here, and whether everything that can run computes what it should."""
