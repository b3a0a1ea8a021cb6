"""The pages, one module for each subject, and the stream of live events."""
