"""One module per kind of measurement; each says which rows it measures and measures those that are wanted."""
