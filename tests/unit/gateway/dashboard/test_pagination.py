"""Pages of long lists."""

from aiohttp.test_utils import make_mocked_request

from gateway.dashboard.page_request import ListPart, paginate, paginate_list
from tests.support.tables import each

ITEMS = list("abcde")
ADDRESS = "/acme/dashboard/clients?search=x&page="


async def part_of_items(page: str) -> ListPart:
    """The part of five items, two per page, for the query parameter `page`."""

    async def fetch(offset: int, limit: int) -> tuple[list[str], int]:
        return ITEMS[offset : offset + limit], len(ITEMS)

    return await paginate(make_mocked_request("GET", f"{ADDRESS}{page}"), fetch, size=2)


@each(
    ("page", "items", "first"),
    [
        ("2", "cd", 3),
        ("3", "e", 5),
        *((page, "ab", 1) for page in ("", "0", "-1", "x", "1.5", "%C2%B2", "%D9%A3", "1e3", "10000000000")),
        *((page, "e", 5) for page in ("4", "999999999")),
    ],
)
async def test_an_address_gets_the_nearest_existing_part(page: str, items: str, first: int) -> None:
    part = await part_of_items(page)
    assert ("".join(part.items), part.first, part.last, part.total) == (items, first, first + len(items) - 1, 5)


@each(("page", "previous", "following"), [("1", "", "2"), ("2", "1", "3"), ("3", "2", ""), ("9", "2", "")])
async def test_links_to_other_parts_keep_the_query(page: str, previous: str, following: str) -> None:
    part = await part_of_items(page)
    assert part.previous_url == (ADDRESS + previous if previous else "")
    assert part.next_url == (ADDRESS + following if following else "")


async def test_a_complete_list_is_split_into_parts() -> None:
    part = await paginate_list(make_mocked_request("GET", f"{ADDRESS}2"), list(range(45)))
    assert (part.items, part.total) == (list(range(20, 40)), 45)


async def test_an_empty_list_has_one_part() -> None:
    part = await paginate_list(make_mocked_request("GET", f"{ADDRESS}7"), [])
    assert (part.items, part.total, part.previous_url, part.next_url) == ([], 0, "", "")


async def test_an_offset_never_exceeds_the_integers_of_the_interface() -> None:
    ends = []

    async def fetch(offset: int, limit: int) -> tuple[list[str], int]:
        ends.append(offset + limit)
        return [], 1

    await paginate(make_mocked_request("GET", f"{ADDRESS}999999999"), fetch, size=50)
    assert max(ends) < 2**31
