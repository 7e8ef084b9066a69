"""Each refusal of PostgreSQL comes with what helps against it, not with a list of all that might be."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from millpond.server.store.connection.database import remedy

URL = "postgresql+psycopg://u@h/d"


@pytest.mark.parametrize(
    ("said", "helps"),
    [
        ('FATAL:  password authentication failed for user "u"', "~/.pgpass"),
        ("fe_sendauth: no password supplied", "~/.pgpass"),
        ('FATAL:  role "u" does not exist', "CREATE ROLE"),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "u", database "d"', "pg_hba.conf"),
        ('FATAL:  database "d" does not exist', "CREATE DATABASE"),
        ('FATAL:  too many connections for role "u"', "takes up to 16 connections"),
        ("FATAL:  sorry, too many clients already", "takes up to 16 connections"),
        ('FATAL:  too many connections for database "d"', "takes up to 16 connections"),
        ('FATAL:  permission denied for database "d"\nDETAIL:  User does not have CONNECT privilege.', "owner"),
        ("FATAL:  the database system is starting up", "wait until PostgreSQL has started"),
        ('connection to server at "127.0.0.1", port 1 failed: Connection refused', "host and port"),
        ("failed to resolve host 'h': [Errno -2] Name or service not known", "host and port"),
        ("connection timeout expired", "host and port"),
        ("FATAL:  Passwort-Authentifizierung fehlgeschlagen", "it has to be there, for an account"),
    ],
)
def test_a_refused_connection_comes_with_what_helps_against_it(said: str, helps: str) -> None:
    assert helps in remedy(URL, psycopg.OperationalError(f"connection failed: {said}"))


@pytest.mark.parametrize(
    ("refusal", "helps"),
    [
        (errors.ReadOnlySqlTransaction, "name the primary"),
        (errors.InsufficientPrivilege, "owner"),
        (errors.DiskFull, "make room on the disk of PostgreSQL"),
        (errors.DataCorrupted, "restore it from a backup"),
        (errors.InvalidCatalogName, "CREATE DATABASE"),
        (errors.SyntaxError, "it has to be there, for an account"),
    ],
)
def test_a_refused_statement_comes_with_what_helps_by_its_code_in_any_language(
    refusal: type[psycopg.Error], helps: str
) -> None:
    assert helps in remedy(URL, refusal("nein"))
