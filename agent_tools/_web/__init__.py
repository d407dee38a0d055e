"""Shared code of the web tools: the reading room for foreign documents, and the services of a web search."""
