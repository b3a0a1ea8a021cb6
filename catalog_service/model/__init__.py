"""The types and rules of packages and versions, without input and output."""
