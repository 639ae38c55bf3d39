"""The language: text to statements and back, with errors that point at the text."""
