"""One-time preparation of a deployment in containers: secrets, users of the stores, MongoDB's replica set."""
