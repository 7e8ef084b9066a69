"""Certificates and keys that can be used, and those that cannot."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from certificates import make_certificate
from millpond.model.errors import UnavailableError
from millpond.server.http.tls import Encryption, open_encryption, read_certificate, renew
from millpond.specs.config.listen import ListenFile


def test_a_certificate_tells_its_end(tmp_path: Path) -> None:
    certificate, _ = make_certificate(tmp_path, days=100)
    found = read_certificate(certificate)
    assert found.days_left(time.time()) in (99, 100)
    assert found.trouble(time.time()) == ""


@pytest.mark.parametrize(("days", "words"), [(5.5, "expires in 5 days"), (-3, "has expired")])
def test_one_that_ends_soon_or_has_ended_says_so(tmp_path: Path, days: float, words: str) -> None:
    certificate, key = make_certificate(tmp_path, days=days)
    assert words in Encryption(certificate, key).certificate.trouble(time.time())


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    key.chmod(0o640)
    with pytest.raises(UnavailableError, match="others may read the private key"):
        Encryption(certificate, key)


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    certificate, _ = make_certificate(tmp_path / "one")
    _, key = make_certificate(tmp_path / "two")
    with pytest.raises(UnavailableError, match="do not belong together"):
        Encryption(certificate, key)


EMPTY = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("text", ["", "not a certificate", EMPTY])
def test_what_is_no_certificate_is_told_by_name(tmp_path: Path, text: str) -> None:
    _, key = make_certificate(tmp_path)
    wrong = tmp_path / "wrong.crt"
    wrong.write_text(text)
    with pytest.raises(UnavailableError, match=r"wrong\.crt"):
        Encryption(wrong, key)


@pytest.mark.parametrize("wrong", ["certificate", "key"])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, wrong: str) -> None:
    files = dict(zip(("certificate", "key"), make_certificate(tmp_path), strict=True))
    encryption = Encryption(**files)
    files[wrong].unlink()
    os.mkfifo(files[wrong], 0o600)
    assert not renew(encryption)
    with pytest.raises(UnavailableError, match="is not a file"):
        Encryption(**files)


def test_files_that_are_not_there_are_told(tmp_path: Path) -> None:
    certificate, _ = make_certificate(tmp_path)
    with pytest.raises(UnavailableError, match=r"none\.key cannot be read"):
        Encryption(certificate, tmp_path / "none.key")
    with pytest.raises(UnavailableError, match=r"none\.crt cannot be read"):
        open_encryption(ListenFile(certificate=str(tmp_path / "none.crt"), key=str(tmp_path / "none.key")))


def test_a_certificate_that_is_not_for_the_names_of_jobs_is_refused_at_the_start_and_at_a_renewal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = make_certificate(tmp_path, also="*.jobs.test")
    encryption = Encryption(certificate, key, "jobs.test")
    before = encryption.certificate
    make_certificate(tmp_path, days=50)
    renew(encryption)
    assert encryption.certificate == before
    assert "is not for *.jobs.test" in caplog.text
    with pytest.raises(UnavailableError, match="browsers would open no job"):
        open_encryption(ListenFile(certificate=str(certificate), key=str(key), jobs_domain="jobs.test"))


def test_a_renewal_that_cannot_be_used_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificate, key = make_certificate(tmp_path)
    encryption = Encryption(certificate, key)
    before = encryption.certificate
    certificate.write_text("half written")
    renew(encryption)
    assert encryption.certificate == before
    assert "stays as it was" in caplog.text
    make_certificate(tmp_path, days=50)
    renew(encryption)
    assert encryption.certificate.ends_at < before.ends_at
