"""`pkgrepo up`: all services in one process, with a MongoDB and a Redis from Python wheels."""
