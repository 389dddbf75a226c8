"""A study from end to end: the run, what it leaves on disk, and reading that again."""
