"""Fast code for one kind of processor each, from raw tensors to raw tensors; it changes speed, never results."""
