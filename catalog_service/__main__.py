from catalog_service.app import SERVICE
from common.server import run

run(SERVICE)
