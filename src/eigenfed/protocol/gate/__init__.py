"""A site's gate: every request comes in and every reply leaves through it."""
