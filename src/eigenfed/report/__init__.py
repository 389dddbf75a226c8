"""The pages of a result: what was computed, how well, and what left each site."""
