"""The one door: finds the tenant, checks who calls, and forwards to the service that owns the operation.

Owns no data and may run any number of times. What `operations.py` has no row for has no entry from outside.
"""
