"""Access tokens of Microsoft Entra ID, which winget sends for its users."""
