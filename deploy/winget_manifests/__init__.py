"""winget's manifests as files: read strictly and published with their installers, or written of what is published."""
