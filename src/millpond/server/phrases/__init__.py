"""Sentences that the server wrote in English, in the languages of their readers."""
