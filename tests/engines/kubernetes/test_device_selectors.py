"""Which cards the selectors of device classes and claims mean, and which selectors are refused with a reason."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.engines.kubernetes.claims.device_selectors import CardKind, UnreadableSelectorError, is_meant

H100 = CardKind(
    (
        ("architecture", "Hopper"),
        ("cudaComputeCapability", (9, 0, 0)),
        ("productName", "NVIDIA H100 80GB HBM3"),
        ("type", "gpu"),
    ),
    (("memory", 80.0 * 2**30),),
)
OF = "device.attributes['gpu.nvidia.com']"
HAS = "device.capacity['gpu.nvidia.com']"


@pytest.mark.parametrize(
    "expression",
    [
        "device.driver == 'gpu.nvidia.com'",
        f"device.driver == 'gpu.nvidia.com' &&\n  {OF}.type == 'gpu'",
        f'{OF.replace(chr(39), chr(34))}["architecture"] == "Hopper"',
        f"{OF}.productName.matches('^.*H100.*$')",
        f"{OF}.productName.lowerAscii().matches('.*h100.*')",
        f"{OF}.productName.matches(r'(?i)h(100|200)')",
        f"{OF}.productName.contains('H100') && !{OF}.productName.endsWith('NVL')",
        f"{OF}.architecture in ['Hopper', 'Blackwell']",
        f"{HAS}.memory.compareTo(quantity('79Gi')) >= 0",
        f'{HAS}.memory.isGreaterThan(quantity("40Gi"))',
        f"{OF}.cudaComputeCapability.compareTo(semver('8.9.0')) > 0",
        f"has({OF}.brand) || ('architecture' in {OF} && {OF}.architecture != 'Ampere')",
        f"(({OF}.type == 'gpu')) == true",
        "!(device.driver == 'dra.net' && device.attributes['dra.net'].rdma)",
    ],
)
def test_selectors_as_users_write_them_mean_the_card(expression: str) -> None:
    assert is_meant(expression, H100)


@pytest.mark.parametrize(
    "expression",
    [
        "device.driver == 'dra.net' && device.attributes['dra.net'].rdma == true",
        f"{OF}.type == 'mig'",
        f"{OF}.brand == 'Tesla'",
        f"{HAS}.multiprocessors.isGreaterThan(quantity('10'))",
        f"{HAS}.memory.isLessThan(quantity('79Gi'))",
        f"{OF}.productName.startsWith('H100')",
        f"{OF}.cudaComputeCapability.isLessThan(semver('9.0.0'))",
    ],
)
def test_selectors_of_other_cards_do_not_mean_it(expression: str) -> None:
    assert not is_meant(expression, H100)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (f"{OF}.uuid == 'GPU-1'", "'uuid' tells single cards apart"),
        (f"'uuid' in {OF}", "'uuid' tells single cards apart"),
        ("device.attributes['resource.kubernetes.io'].pcieRoot == 'pci0'", "tells single cards apart"),
        (f"{OF}.productName.split(' ')[0] == 'NVIDIA'", "split"),
        (f"{OF}.type == 'gpu' ? true : false", "does not read"),
        (f"{OF}.productName.matches('(a+)+$')", "pattern"),
        (f"{OF}.productName.matches('.*.*.*.*x')", "pattern"),
        (f"{OF}.productName.matches('[')", "no pattern"),
        (f"{HAS}.memory.isGreaterThan(quantity('many'))", "no quantity"),
        (f"{HAS}.memory.isGreaterThan('40Gi')", "cannot be compared"),
        (f"{OF}.cudaComputeCapability.isGreaterThan(semver('{'1' * 5000}.0.0'))", "no version"),
        (f"{OF}.productName", "yes or no"),
        ("__import__('os').system('true')", "does not"),
        ("[device for device in [1]]", "does not read"),
        ("(" * 5000 + ")" * 5000, "does not read"),
        ("x" * 20_000, "too long"),
        ("device.driver == ", "does not read"),
        ("", "does not read"),
    ],
)
def test_what_is_not_read_is_refused_with_the_reason(expression: str, why: str) -> None:
    with pytest.raises(UnreadableSelectorError, match=why):
        is_meant(expression, H100)


@given(st.text(max_size=60) | st.text("device.()'\"=&|!<>[] \\abx0", max_size=60))
def test_no_expression_does_anything_but_say_yes_or_no_or_be_refused(expression: str) -> None:
    with contextlib.suppress(UnreadableSelectorError):
        assert is_meant(expression, H100) in (True, False)
