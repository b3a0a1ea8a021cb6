"""The schema of winget's manifests, shared by forms, import and export. Every field is optional."""
