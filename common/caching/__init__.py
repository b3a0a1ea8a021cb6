"""A bounded cache, and the tenant versions that tell gateways when their caches are out of date."""
