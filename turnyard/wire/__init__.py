"""What the outside world sees: the JSON of jobs and sessions, the events of a stream, and how a request becomes a message.

Every door (the HTTP platform, the Redis client) uses these, so the same thing looks the same through each.
"""
