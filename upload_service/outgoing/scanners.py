"""The scanner that the settings name."""

from urllib.parse import urlsplit

from upload_service.outgoing.clamd import Clamd
from upload_service.outgoing.http_scanner import HttpScanner
from upload_service.scanning.model import Scanner


def scanner_at(url: str) -> Scanner:
    """clamd at tcp://host:port or unix:///path, else a scanner by HTTP."""
    address = urlsplit(url)
    if address.scheme == "tcp":
        return Clamd(host=address.hostname or "", port=address.port or 0)
    return Clamd(path=address.path) if address.scheme == "unix" else HttpScanner(url)
