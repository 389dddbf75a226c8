"""Both halves of each federated algorithm: pure functions at a site, a generator in the middle."""
