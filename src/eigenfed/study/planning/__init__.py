"""What a study would take, before anything runs."""
