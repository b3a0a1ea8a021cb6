"""The catalog as a source of winget, type Microsoft.Rest: searches and manifests of installable versions."""
