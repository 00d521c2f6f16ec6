"""Fast code for one machine each: raw tensors in, raw tensors out.  Touched for speed, never for meaning."""
