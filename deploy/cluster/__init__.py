"""What a deployment in containers needs once, before its services."""
