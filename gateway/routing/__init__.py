"""From a request to its target: the operation, the tenant and the client's address."""
