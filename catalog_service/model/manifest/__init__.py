"""What winget's manifests say of packages and versions beyond the fields of the specification, all of it optional."""
