"""The users who administer a tenant, and their passwords."""
