"""Posts to conversations: what the tools of channels share."""
