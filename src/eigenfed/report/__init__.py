"""The page of a result: what was computed, by whom, how well, and what left each site."""
