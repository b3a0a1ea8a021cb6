"""Operation of the product: the `pkgrepo` command, bundled servers, containers, Kubernetes, observability."""
