"""The pages of packages, their versions, and the way of versions through rings."""
