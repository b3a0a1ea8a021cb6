"""The signatures of installers, verified in a confined process of its own."""
