"""Hosts of external installers: public, over https, and never the client itself or a number in its network."""

from ipaddress import ip_address

import pytest

from catalog_service.model.installers import LIMIT, parse_address
from common.errors import InvalidField
from common.tenants import is_public
from tests.support.tables import each

KEPT = [
    "https://downloads.example.com/acme/2.0/setup.exe",
    "https://downloads.example.com:8443/setup.exe?token=a%2Fb&x=(1)",
    "HTTPS://Downloads.Example.COM/Setup%20x64.exe",
    "https://downloads.example.com?file=setup.exe",
    "https://downloads.example.com/~acme/a+b/c@d;e=f,g!$'*:h/../setup.exe",
    "https://fileserver/setup.exe",
    "https://xn--mnchen-3ya.example/setup.exe",
    "https://localhost.example.com/setup.exe",
    "https://127.0.0.1.example.com/setup.exe",
    "https://1.1.1.1/setup.exe",
    "https://[2606:4700::1111]/setup.exe",
    "https://[::ffff:1.1.1.1]/setup.exe",
    f"https://{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 61}/",
    f"https://a.example/{'x' * (LIMIT - 18)}",
]
REFUSED = {
    "must begin with https://": [
        "http://downloads.example.com/setup.exe",
        "javascript:alert(1)//https://a.example",
        "//downloads.example.com/setup.exe",
        "https:/downloads.example.com/setup.exe",
        " https://downloads.example.com/",
        "view-source:https://downloads.example.com/",
        "\uff48ttps://downloads.example.com/",
    ],
    "is longer than": [f"https://a.example/{'x' * (LIMIT - 17)}"],
    "the name or the password of a user": [
        "https://user:secret@downloads.example.com/setup.exe",
        "https://@downloads.example.com/setup.exe",
        "https://downloads.example.com@127.0.0.1/setup.exe",
    ],
    "must not have a fragment": [
        "https://downloads.example.com/setup.exe#x",
        "https://downloads.example.com/setup.exe#",
    ],
    "must be a host and a path": [
        "https://",
        "https:///setup.exe",
        "https://:443/setup.exe",
        "https://downloads.example.com:/setup.exe",
        "https://downloads.example.com:443443/setup.exe",
        "https://downloads.example.com/a b",
        "https://downloads.example.com/\r\nHost: other",
        "https://downloads.example.com/setup.exe\n",
        "https://downloads.example.com/\u00e4",
        "https://downloads.example.com/%",
        "https://downloads.example.com/%zz",
        "https://downloads.example.com\\@127.0.0.1/",
        "https://downloads.example.com/<script>",
        "https://downloads.example.com/[x]",
        "https://m\u00fcnchen.example/setup.exe",
        "https://127\u30020\u30020\u30021/",
        "https://localho%73t/",
        "https://a_b.example.com/",
        "https://[fe80::1%25eth0]/",
        "https://[v1.x]/",
        "https://[::1/",
        "https://::1/",
        "https://*.example.com/",
    ],
    "must have a port": ["https://downloads.example.com:0/setup.exe", "https://downloads.example.com:65536/setup.exe"],
    "has a host that is no name": [
        "https://downloads..example.com/",
        "https://downloads.example.com./",
        "https://-a.example.com/",
        "https://a-.example.com/",
        f"https://{'a' * 64}.example.com/",
        f"https://{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 62}/",
    ],
    "which is another one for each client": [
        "https://localhost/setup.exe",
        "https://a.localhost/setup.exe",
        "https://localhost.localdomain/setup.exe",
        "https://printer.local/setup.exe",
    ],
    "in its usual spelling": [
        "https://2130706433/",
        "https://127.1/",
        "https://0177.0.0.1/",
        "https://0x7f000001/",
        "https://127.0.0.0x1/",
        "https://127.0.0.0x/",
        "https://1.1.1.256/",
        "https://1.1.1.1.1/",
        "https://example.1/",
        "https://[1.1.1.1]/",
        "https://[1::2::3]/",
    ],
    "an IP address that is not public": [
        "https://127.0.0.1/setup.exe",
        "https://10.1.2.3/setup.exe",
        "https://100.64.0.1/setup.exe",
        "https://169.254.169.254/latest/meta-data",
        "https://224.0.0.1/setup.exe",
        "https://240.0.0.1/setup.exe",
        "https://[::]/setup.exe",
        "https://[::1]/setup.exe",
        "https://[::127.0.0.1]/setup.exe",
        "https://[::ffff:127.0.0.1]/setup.exe",
        "https://[64:ff9b::7f00:1]/setup.exe",
        "https://[64:ff9b:1::1]/setup.exe",
        "https://[2002:7f00:1::]/setup.exe",
        "https://[2001:db8::1]/setup.exe",
        "https://[fd00:ec2::254]/setup.exe",
        "https://[fe80::1]/setup.exe",
        "https://[fec0::1]/setup.exe",
        "https://[ff02::1]/setup.exe",
    ],
}


@each("address", KEPT)
def test_a_url_is_stored_unchanged(address: str) -> None:
    assert parse_address(address) == address


@each(("address", "reason"), [(address, reason) for reason, group in REFUSED.items() for address in group])
def test_a_misleading_url_is_refused_with_its_reason(address: str, reason: str) -> None:
    with pytest.raises(InvalidField, match=r"^installer_url: ") as refused:
        parse_address(address)
    assert reason in refused.value.detail
    assert "secret" not in refused.value.detail


@each("text", ["0.0.0.0", "127.0.0.1", "169.254.1.1", "192.168.0.1", "239.1.1.1"])
def test_an_ipv6_address_is_as_public_as_its_embedded_address(text: str) -> None:
    inside = int(ip_address(text))
    assert not is_public(ip_address(text))
    for outside, offset in (("::ffff:0:0", 0), ("64:ff9b::", 0), ("2002::", 80)):
        assert not is_public(ip_address(int(ip_address(outside)) + (inside << offset)))
        assert is_public(ip_address(int(ip_address(outside)) + (int(ip_address("1.1.1.1")) << offset)))
