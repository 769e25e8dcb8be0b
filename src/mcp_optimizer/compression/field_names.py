"""Which keys are surely names of fields: those made of words that many servers use in their schemas.

A key that is made of other words may be data: a user, a stock, a file. Pure.
"""

from __future__ import annotations

import re

_WORDS = frozenset(
    """
    access account action actions active add added additional address addresses after agent alert alias all allow
    allowed amount analysis annotations api app application applied apply approval archived area args arguments arn
    as asset assigned assignee at attachment attachments attribute attributes audience auth author auto automation
    available b background base before behavior block board body branch bucket budget build button by bytes cache
    call can card case categories category cc center changes channel chars chart check children city class clear
    click client cluster code collection color colors column columns command comment comments commit company
    completed component components condition conditions confidence config configuration confirm connection contact
    container contains content contents context control conversation coordinates copy count country create created
    creation currency current cursor custom customer data database dataset date day days db default definition delay
    delete deleted delivery deployment depth description destination detail detailed details device dimension
    dimensions dir direction directory disable disabled display distance document domain domains draft dry due
    duration element email emails enable enabled encoding end endpoint engine entity entries entry env environment
    error errors event events exclude execution existing expand expected expiration expires expression extension
    external extra failed fallback family features fetch field fields file filename files fill filter filters first
    folder font for force form format forward frame from full function git group groups has hash head header headers
    height hidden hide hint history host hours html http icon id identifier identity ids if ignore image images in
    include index info initial inline input inputs instance instructions intent internal interval ip is issue issues
    item items job json k keep key keys keyword keywords kind label labels language last lat latitude layer layout
    left length level limit line lines link linked links list local location log login long longitude main markdown
    match matches max media member members memory merge message messages meta metadata method metric metrics mime
    min minutes mode model modified module more ms name names namespace network new next no node nodes not note
    notes notification num number object of offset old on only op open operation operations operator option options
    or order organization origin original output override overrides overwrite owner package page pages parameter
    parameters params parent password patch path paths pattern patterns per percent period permission permissions
    phone pipeline plan point points policy port position post prefix preview previous price primary priority
    private product profile progress project projects prompt properties property protocol provider public pull q
    quality queries query queue radius range ranges rate ratio raw read reason record records recurrence recursive
    ref reference refresh regex region related remove replace reply repo report repository request requested
    requests required resolution resolve resolved resource response result results retention return revision right
    role root row rows rule rules run s sample save scale scan schedule schema scheme scope score script search
    seconds secret section sections security select selected selector send sensitive series server service services
    session set settings severity sha show since site size skip slug sort source sources spec sql stack stage start
    state stats status step steps stop storage store strategy string style subject submit success summary symbol
    system table tables tag tags tail target targets task team template term test text theme thread threshold time
    timeframe timeout timestamp timezone title to token tokens tool top topic total trace trigger truncated type
    types uid unique unit until update updated uri url urls usage use user username users uuid value values variable
    variables verbose version versions video view visibility voice wait warning warnings weight where width window
    with work workflow workspace x y year zone zoom
    """.split()
)
"""Words in the names of properties of at least eight of 433 real servers."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def is_field_name(key: str) -> bool:
    """Whether a plain key, such as `ownerUserId` or `created_at`, consists of such words."""
    words = [word.lower() for word in _WORD.findall(key)]
    return bool(words) and all(word in _WORDS or word.removesuffix("s") in _WORDS for word in words)
