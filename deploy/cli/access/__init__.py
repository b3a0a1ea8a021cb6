"""Commands about those who may use a tenant."""
