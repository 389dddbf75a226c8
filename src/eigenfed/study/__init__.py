"""A study from end to end: its files, its plan, its run and its results."""
