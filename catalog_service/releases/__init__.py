"""Release control: rings, gates, and the way of a version through them."""
