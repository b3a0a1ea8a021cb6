"""The gateway: finds the tenant, authenticates the caller, and forwards the request to the operation's service.

It owns no data, so any number of gateways may run. It answers only the operations of `operations.py`.
"""
