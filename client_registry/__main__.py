from client_registry.app import SERVICE
from common.server import run

run(SERVICE)
