"""The identities of packages and versions: every one by which a search of a winget client finds a package."""

import json

from hypothesis import given
from hypothesis import strategies as st

from catalog_service.model.identities import IdentityKind
from catalog_service.model.manifest import AppsAndFeaturesEntry, LocalTexts
from catalog_service.winget.index import CODES, Field, record_of
from tests.support.samples.winget_factories import make_entry, make_version

KIND_OF = {
    Field.PRODUCT_CODE: IdentityKind.PRODUCT_CODE,
    Field.UPGRADE_CODE: IdentityKind.UPGRADE_CODE,
    Field.FAMILY_NAME: IdentityKind.FAMILY_NAME,
    Field.NORMALIZED_NAME: IdentityKind.NAME,
}
TEXTS = st.sampled_from(["", "{AB}", "{ab}", "Straße", "STRASSE", "Editor 2.1 (x64)", "editor", "İ", "ﬁle", "(x64)"])
ENTRIES = st.builds(AppsAndFeaturesEntry, display_name=TEXTS, product_code=TEXTS, upgrade_code=TEXTS)


@given(st.tuples(TEXTS, TEXTS, TEXTS), st.lists(ENTRIES, max_size=3), st.text(min_size=1, max_size=20), TEXTS)
def test_the_search_index_has_exactly_the_identities(
    codes: tuple[str, str, str], entries: list[AppsAndFeaturesEntry], name: str, local_name: str
) -> None:
    """Otherwise winget would find a package by something that two packages may have."""
    product_code, upgrade_code, family_name = codes
    own = {"product_code": product_code, "upgrade_code": upgrade_code, "package_family_name": family_name}
    version = make_version(**own, apps_and_features_entries=tuple(entries))
    local = LocalTexts(package_locale="de-DE", package_name=local_name)
    entry = make_entry("Acme.Editor", version, name=name, locales=(local,))

    record = record_of(entry)

    indexed = {
        f"{kind}:{line.removeprefix(field.mark)}"
        for line in (record.codes if record else ())
        for field, kind in KIND_OF.items()
        if line.startswith(field.mark)
    }
    package = entry.package.identities
    identities = {*version.identities, *package["identities"], *package["local_identities"]}
    assert indexed == (identities if record else set())


def test_every_code_that_identifies_a_program_is_an_identity() -> None:
    assert KIND_OF.keys() == CODES | {Field.NORMALIZED_NAME}


def test_an_identity_has_one_spelling() -> None:
    entry = AppsAndFeaturesEntry(product_code="{AB}", display_name="Editor 1.0")
    version = make_version(product_code="{ab}", apps_and_features_entries=(entry,))
    assert json.dumps(version.identities) == '["package_name:editor", "productcode:{ab}"]'
