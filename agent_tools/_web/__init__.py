"""Shared code of the web tools: URL checks, the reading room for foreign documents, the services of a web search."""
