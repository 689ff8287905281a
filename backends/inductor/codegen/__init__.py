"""Source code from programs: kernels per target, and the wrapper that calls them."""
