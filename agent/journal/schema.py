"""The journal's tables, in words that SQLite and PostgreSQL both understand. The migrations create them."""

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, MetaData, String, Table, Text

metadata = MetaData()

_Sequence = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows only in a column called INTEGER

# Append-only. `incident` is null for notes. Sequence numbers are never used again, so a sink's cursor stays true.
entries = Table(
    "entries",
    metadata,
    Column("seq", _Sequence, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False),
    Column("incident", String(128), nullable=True),
    Column("type", String(32), nullable=False),
    Column("body", Text, nullable=False),
    Column("term", BigInteger, nullable=True),  # of the warden that wrote it; null where a person or a command did
    Index("entries_of_incident", "incident", "seq"),
    sqlite_autoincrement=True,
)

# Which incidents there are and how they stand, so that the open ones are found without reading all that ever happened.
incidents = Table(
    "incidents",
    metadata,
    Column("id", String(128), primary_key=True),
    Column("opened_seq", _Sequence, nullable=False),
    Column("ended", Boolean, nullable=False),
    Column("standing", Boolean, nullable=False),
    Column("over_at", Float, nullable=True),
    Index("incidents_standing", "standing"),
)

# One row an operation ever intended: what makes a key unique in the whole journal.
operation_keys = Table(
    "operation_keys",
    metadata,
    Column("key", String(256), primary_key=True),
    Column("incident", String(128), nullable=False),
    Index("operation_keys_of_incident", "incident"),
)

# One row: the latest term in which a warden wrote. Each writing transaction holds it until its end, so that writes of two
# terms, and the sequence numbers of two writers, cannot cross.
writer = Table(
    "writer",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("term", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("since", Float, nullable=False),
)

# The record by which wardens elect one of them where no Lease does it: see agent.election.row_store.
elections = Table(
    "elections",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("holder", Text, nullable=False),
    Column("term", BigInteger, nullable=False),
    Column("renewals", BigInteger, nullable=False),
    Column("lease", Integer, nullable=False),
    Column("version", BigInteger, nullable=False),
)

switches = Table(
    "switches",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("is_on", Boolean, nullable=False),
    Column("turned_by", Text, nullable=False),
    Column("turned_at", Float, nullable=False),
    Column("why", Text, nullable=False),
)

# The number of each pod of a cluster among the engines of its workload, by the pod's uid.
engine_slots = Table(
    "engine_slots",
    metadata,
    Column("pod", String(128), primary_key=True),
    Column("number", Integer, nullable=False),
)

cursors = Table(
    "cursors",
    metadata,
    Column("sink", String(128), primary_key=True),
    Column("seq", _Sequence, nullable=False),
)
