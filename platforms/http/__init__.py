"""The HTTP platform: the API, its event streams, health. It never loads user code and never decides who runs."""
