"""Shared code of the file tools: text of files, edits, patches and diffs. Pure, except for what a caller passes in."""
