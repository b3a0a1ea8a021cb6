"""Code that two or more services share: errors, forms, callers, sessions, and the connections to the stores."""
