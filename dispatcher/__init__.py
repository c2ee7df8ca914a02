"""The dispatcher decides who runs next: it drains ingress in order, locks, admits, and keeps the promises that need time."""
