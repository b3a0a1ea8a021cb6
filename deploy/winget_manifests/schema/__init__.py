"""The schema of manifests, and the forms made from it."""
