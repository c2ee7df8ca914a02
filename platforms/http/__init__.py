"""The HTTP platform: the API of docs/api, its event streams, health. It never loads user code and never decides who runs."""
