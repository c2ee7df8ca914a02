"""Everything that knows Redis: keys, scripts, and one module per noun on top of them."""
