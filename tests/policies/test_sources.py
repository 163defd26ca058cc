"""Every policy says where it comes from, and what it says can be checked."""

import dataclasses
import re

import pytest

from optsched import Cluster, Job, Node, Profile, Tenant
from optsched.model.instance import Instance
from optsched.model.profile import Clock, Locality, Sharing
from optsched.plugins.policy import Source
from optsched.plugins.registry import Listed, listed

NOUNS = {
    "cluster": Cluster,
    "node": Node,
    "tenant": Tenant,
    "job": Job,
    "profile": Profile,
    "instance": Instance,
}
PARTS = {"locality": Locality, "sharing": Sharing, "clocks": Clock}
ALL = listed("policies")
OWN = ("optsched", "zero-laxity")
"""Policies of this project, which nobody published."""
PUBLISHED = [one for one in ALL if one.name not in OWN]


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_the_idea_is_one_line(one: Listed) -> None:
    assert one.unavailable is None
    assert 10 <= len(one.title) <= 110 and not one.title.endswith(".") and "\n" not in one.title


@pytest.mark.parametrize("one", PUBLISHED, ids=lambda one: one.name)
def test_the_source_can_be_looked_up(one: Listed) -> None:
    source = one.source
    assert isinstance(source, Source)
    assert source.authors and source.title and source.venue and 1950 < source.year < 2030
    assert source.link is None or re.match(
        r"doi:10\.\d{4,}/\S+$|arXiv:\d{4}\.\d{4,5}$|https://\S+$", source.link
    )
    assert source.cite.startswith(source.authors) and str(source.year) in source.cite


@pytest.mark.parametrize("one", PUBLISHED, ids=lambda one: one.name)
def test_how_sure_it_is_has_a_reason(one: Listed) -> None:
    source = one.source
    assert source is not None
    assert source.sureness in ("verified", "derived", "reconstructed")
    assert getattr(source, source.sureness), (
        f"{one.name}: {source.sureness}, but it does not say what"
    )
    if one.name.endswith("-style"):
        assert source.sureness == "reconstructed"
    for text in (source.verified, source.derived, source.reconstructed, source.published):
        assert text is None or not text.endswith("."), text


@pytest.mark.parametrize("one", PUBLISHED, ids=lambda one: one.name)
def test_what_it_needs_are_fields_of_the_instance_file(one: Listed) -> None:
    assert one.source is not None
    for path in one.source.needs:
        noun, field, *rest = path.split(".")
        assert field in {found.name for found in dataclasses.fields(NOUNS[noun])}, path
        for name in rest:
            known = {found.name for found in dataclasses.fields(PARTS[field])} | {"with"}
            assert name in known, path
