"""The HTTP server of every service: limits, bodies, forms, middleware, probes, authentication between services."""
