from common.http.server import run
from gateway.app import SERVICE

run(SERVICE)
