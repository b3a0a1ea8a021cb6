"""Downloads of installers at signed addresses."""
