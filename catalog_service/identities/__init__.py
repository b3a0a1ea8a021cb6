"""The packages that winget clients would confuse, because they share an identity."""
