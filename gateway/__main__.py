from common.server import run
from gateway.app import SERVICE

run(SERVICE)
