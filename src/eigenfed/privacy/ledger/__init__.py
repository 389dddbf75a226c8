"""A site's ledger: what left, what it cost, and what may still be spent."""
