"""Six invented databases: their tables, columns, and the words by which questions name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A column that questions ask about."""

    name: str
    words: str
    """How a question names it, as in "the {words} of a teacher"."""
    values: Sequence[str] | range
    """What a row draws from: texts, or whole numbers."""

    @property
    def is_number(self) -> bool:
        return isinstance(self.values, range)


@dataclass(frozen=True, slots=True)
class Table:
    """A table. Its first column is its key, its second a name that no two rows share."""

    name: str
    one: str
    """A row in words: `teacher`."""
    many: str
    key: str
    label: str
    """The column of the names."""
    names: str
    """How rows are named: `people`, `places`, `things` or `codes`."""
    num_rows: int
    columns: tuple[Column, ...]
    parents: tuple[tuple[str, str], ...] = ()
    """A column and the table whose key it holds, for each reference."""

    @property
    def numbers(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.is_number)

    @property
    def kinds(self) -> tuple[Column, ...]:
        """The columns with few different texts."""
        return tuple(column for column in self.columns if not column.is_number)


Schema = Mapping[str, Table]
"""Tables by name, each after those that it refers to."""


def _schema(*tables: Table) -> Schema:
    return {table.name: table for table in tables}


TOWNS = ("Arlow", "Bexham", "Corvale", "Dunmere", "Eastry", "Fallow", "Garston", "Hartwick")
_YEARS = range(1995, 2025)

SCHOOL = _schema(
    Table("teachers", "teacher", "teachers", "teacher_id", "name", "people", 40, (
        Column("department", "department", ("Biology", "Chemistry", "History", "Languages", "Mathematics", "Music")),
        Column("salary", "salary", range(31_000, 72_000, 250)),
        Column("hired", "year of hiring", _YEARS),
    )),
    Table("courses", "course", "courses", "course_id", "title", "things", 70, (
        Column("level", "level", ("beginner", "intermediate", "advanced", "seminar")),
        Column("credits", "number of credits", range(2, 13)),
        Column("seats", "number of seats", range(8, 121)),
    ), (("teacher_id", "teachers"),)),
    Table("students", "student", "students", "student_id", "name", "people", 160, (
        Column("town", "home town", TOWNS),
        Column("birth_year", "year of birth", range(1998, 2009)),
        Column("points", "number of points", range(100, 1000)),
    ), (("advisor_id", "teachers"),)),
    Table("enrolments", "enrolment", "enrolments", "enrolment_id", "code", "codes", 280, (
        Column("term", "term", ("spring", "summer", "autumn")),
        Column("grade", "grade", range(35, 101)),
    ), (("student_id", "students"), ("course_id", "courses"))),
)  # fmt: skip

SHOP = _schema(
    Table("suppliers", "supplier", "suppliers", "supplier_id", "name", "firms", 30, (
        Column("town", "town", TOWNS),
        Column("rating", "rating", range(10, 100)),
    )),
    Table("products", "product", "products", "product_id", "title", "things", 120, (
        Column("category", "category", ("books", "garden", "kitchen", "office", "sports", "toys")),
        Column("price", "price", range(3, 400)),
        Column("stock", "number in stock", range(250)),
    ), (("supplier_id", "suppliers"),)),
    Table("customers", "customer", "customers", "customer_id", "name", "people", 110, (
        Column("town", "town", TOWNS),
        Column("joined", "year of joining", _YEARS),
    )),
    Table("orders", "order", "orders", "order_id", "code", "codes", 260, (
        Column("status", "status", ("paid", "packed", "sent", "returned")),
        Column("quantity", "quantity", range(1, 40)),
        Column("total", "total", range(10, 2500)),
    ), (("customer_id", "customers"), ("product_id", "products"))),
)  # fmt: skip

CLINIC = _schema(
    Table("wards", "ward", "wards", "ward_id", "name", "places", 25, (
        Column("floor", "floor", ("ground", "first", "second", "third")),
        Column("beds", "number of beds", range(4, 60)),
    )),
    Table("doctors", "doctor", "doctors", "doctor_id", "name", "people", 50, (
        Column("specialty", "specialty", ("cardiology", "dermatology", "neurology", "paediatrics", "surgery")),
        Column("fee", "fee", range(40, 400, 5)),
        Column("since", "year of starting", _YEARS),
    ), (("ward_id", "wards"),)),
    Table("patients", "patient", "patients", "patient_id", "name", "people", 150, (
        Column("blood_type", "blood type", ("A", "B", "AB", "O")),
        Column("age", "age", range(1, 97)),
        Column("weight", "weight", range(12, 130)),
    ), (("ward_id", "wards"),)),
    Table("visits", "visit", "visits", "visit_id", "code", "codes", 270, (
        Column("reason", "reason", ("check-up", "injury", "operation", "vaccination", "consultation")),
        Column("minutes", "length in minutes", range(5, 180)),
        Column("cost", "cost", range(20, 3000)),
    ), (("patient_id", "patients"), ("doctor_id", "doctors"))),
)  # fmt: skip

LIBRARY = _schema(
    Table("authors", "author", "authors", "author_id", "name", "people", 50, (
        Column("country", "country", ("Brazil", "Finland", "India", "Japan", "Kenya", "Portugal")),
        Column("birth_year", "year of birth", range(1880, 1996)),
    )),
    Table("books", "book", "books", "book_id", "title", "things", 140, (
        Column("genre", "genre", ("crime", "fantasy", "poetry", "romance", "science", "travel")),
        Column("pages", "number of pages", range(60, 900)),
        Column("published", "year of publication", range(1950, 2025)),
    ), (("author_id", "authors"),)),
    Table("members", "member", "members", "member_id", "name", "people", 100, (
        Column("town", "town", TOWNS),
        Column("joined", "year of joining", _YEARS),
    )),
    Table("loans", "loan", "loans", "loan_id", "code", "codes", 280, (
        Column("state", "state", ("open", "returned", "late", "lost")),
        Column("days", "number of days", range(1, 120)),
        Column("fine", "fine", range(60)),
    ), (("member_id", "members"), ("book_id", "books"))),
)  # fmt: skip

AIRLINE = _schema(
    Table("airports", "airport", "airports", "airport_id", "name", "places", 30, (
        Column("region", "region", ("north", "south", "east", "west", "islands")),
        Column("runways", "number of runways", range(1, 7)),
        Column("opened", "year of opening", range(1930, 2020)),
    )),
    Table("pilots", "pilot", "pilots", "pilot_id", "name", "people", 60, (
        Column("rank", "rank", ("captain", "first officer", "trainee")),
        Column("hours", "number of hours flown", range(200, 20_000, 25)),
        Column("birth_year", "year of birth", range(1960, 2002)),
    ), (("base_id", "airports"),)),
    Table("planes", "plane", "planes", "plane_id", "name", "things", 60, (
        Column("maker", "maker", ("Avior", "Boreal", "Cirrex", "Deltair")),
        Column("seats", "number of seats", range(12, 420)),
        Column("built", "year of building", _YEARS),
    ), (("home_id", "airports"),)),
    Table("flights", "flight", "flights", "flight_id", "code", "codes", 270, (
        Column("status", "status", ("on time", "delayed", "cancelled", "diverted")),
        Column("passengers", "number of passengers", range(5, 420)),
        Column("distance", "distance", range(80, 9500)),
    ), (("pilot_id", "pilots"), ("plane_id", "planes"))),
)  # fmt: skip

FARM = _schema(
    Table("farms", "farm", "farms", "farm_id", "name", "places", 35, (
        Column("region", "region", ("coast", "hills", "plain", "valley")),
        Column("area", "area in hectares", range(5, 600)),
        Column("founded", "year of founding", range(1850, 2020)),
    )),
    Table("fields", "field", "fields", "field_id", "name", "places", 110, (
        Column("soil", "soil", ("clay", "loam", "peat", "sand")),
        Column("size", "size", range(1, 90)),
        Column("slope", "slope", range(31)),
    ), (("farm_id", "farms"),)),
    Table("workers", "worker", "workers", "worker_id", "name", "people", 100, (
        Column("skill", "skill", ("dairy", "harvest", "machines", "orchard")),
        Column("wage", "wage", range(14, 60)),
        Column("hired", "year of hiring", _YEARS),
    ), (("farm_id", "farms"),)),
    Table("harvests", "harvest", "harvests", "harvest_id", "code", "codes", 270, (
        Column("crop", "crop", ("barley", "beans", "maize", "oats", "potatoes", "wheat")),
        Column("tonnes", "weight in tonnes", range(1, 300)),
        Column("quality", "quality", range(1, 101)),
    ), (("field_id", "fields"), ("worker_id", "workers"))),
)  # fmt: skip

SCHEMAS: Mapping[str, Schema] = {
    "school": SCHOOL,
    "shop": SHOP,
    "clinic": CLINIC,
    "library": LIBRARY,
    "airline": AIRLINE,
    "farm": FARM,
}
