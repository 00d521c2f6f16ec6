"""Raw tensors in, raw tensors out: touched for speed, never for meaning."""
