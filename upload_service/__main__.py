"""`python -m upload_service`."""

from common.http.server import run
from upload_service.app import SERVICE

run(SERVICE)
