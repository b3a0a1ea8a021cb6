"""The services on stores that another project runs. Needs a container engine: `make test-compose`."""

from tests.support.deployment.compose import SERVICES, STORES, run_compose_with_external_stores
from tests.support.system.publishing import add_package, download, package_id, publish, version_of


async def test_services_run_on_external_stores() -> None:
    async with run_compose_with_external_stores() as project:
        assert project.containers(*STORES) == []
        await project.ready(*project.containers(*SERVICES))
        [api] = await project.signed_in()
        name = package_id()
        await add_package(api, name)
        published = await publish(api, name)
        assert await download(api, (await version_of(api, published))["INSTALLER_URL"]) == published.content
        assert "main" in await project.run_operator("tenant", "list")
