"""Other people's tools: what a model becomes outside this package.  Nothing is imported before it is asked for."""
