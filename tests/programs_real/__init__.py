"""Programs as people write them, small: each takes what compiles, runs, and gives everything that can be observed."""
