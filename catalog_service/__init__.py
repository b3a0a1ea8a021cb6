"""The service of packages and their versions. It owns the database `catalog`; see README.md."""
