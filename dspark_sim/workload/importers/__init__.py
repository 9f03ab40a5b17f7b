"""Importers: one function a format, from other people's files to a request table or acceptance records."""
