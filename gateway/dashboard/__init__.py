"""The dashboard: pages for the administrators of a tenant, rendered from the operations of the interface."""
