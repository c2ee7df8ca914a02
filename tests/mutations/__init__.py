"""Mutations of the product and of the model, and a runner that shows which test notices each."""
