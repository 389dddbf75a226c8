"""Building blocks of secure aggregation: keys, masks, secret shares and fixed point."""
