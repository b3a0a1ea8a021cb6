"""Commands over HTTP for pipelines: publishing, releases and winget manifests."""
