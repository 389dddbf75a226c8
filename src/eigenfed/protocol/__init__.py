"""Both halves of each federated algorithm, the studies that sites agree to, and the gate."""
