"""What may leave a site and at what cost: policy, declarations, guarantees, leakage."""
