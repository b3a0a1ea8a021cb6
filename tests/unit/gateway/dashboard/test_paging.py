"""Which part of a long list a page shows, whatever its address asks for."""

from aiohttp.test_utils import make_mocked_request

from gateway.dashboard.paging import Part, listed, part_of
from tests.support.tables import each

ITEMS = list("abcde")


async def part(page: str) -> Part:
    """What an address that asks for this shows of five items, two a part."""
    return await part_of(
        make_mocked_request("GET", f"/acme/dashboard/clients?search=x&page={page}"), listed(ITEMS), size=2
    )


@each(
    ("page", "shown", "first"),
    [
        ("2", "cd", 3),
        ("3", "e", 5),
        *((page, "ab", 1) for page in ("", "0", "-1", "x", "1.5", "%C2%B2", "%D9%A3", "1e3", "10000000000")),
        *((page, "e", 5) for page in ("4", "999999999")),
    ],
)
async def test_the_nearest_part_there_is_is_shown(page: str, shown: str, first: int) -> None:
    found = await part(page)
    assert ("".join(found.items), found.first, found.last, found.total) == (shown, first, first + len(shown) - 1, 5)


@each(("page", "before", "after"), [("1", "", "2"), ("2", "1", "3"), ("3", "2", ""), ("9", "2", "")])
async def test_the_parts_beside_are_led_to_and_the_rest_of_the_address_stays(
    page: str, before: str, after: str
) -> None:
    found = await part(page)
    there = "/acme/dashboard/clients?search=x&page="
    assert (found.before, found.after) == (there + before if before else "", there + after if after else "")


async def test_an_empty_list_has_one_part() -> None:
    found = await part_of(make_mocked_request("GET", "/acme/dashboard/clients?page=7"), listed([]))
    assert (found.items, found.total, found.before, found.after) == ([], 0, "", "")


async def test_no_part_is_asked_for_beyond_what_the_interface_counts() -> None:
    asked = []

    async def find(offset: int, limit: int) -> tuple[list[str], int]:
        asked.append(offset + limit)
        return [], 1

    await part_of(make_mocked_request("GET", "/acme/dashboard/packages?page=999999999"), find, size=50)
    assert max(asked) < 2**31
