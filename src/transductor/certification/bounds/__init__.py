"""How far computed numbers can be from a machine's states: norms, horizons, and the residual stream."""
