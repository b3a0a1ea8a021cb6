from client_registry.app import SERVICE
from common.http.server import run

run(SERVICE)
