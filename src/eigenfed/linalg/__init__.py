"""Mathematics on arrays: no input or output, no clock, no hidden randomness."""
