"""How a site's records become blocks and products. The only reader of data files."""
