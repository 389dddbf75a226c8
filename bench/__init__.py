"""Speed and memory against peers: ratios measured in one run, refused when inaccurate."""
