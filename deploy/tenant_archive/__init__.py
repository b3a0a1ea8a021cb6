"""Archives of one tenant: exported while the services run, imported beside other tenants. They contain no keys."""
