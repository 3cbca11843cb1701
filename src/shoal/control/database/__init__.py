"""The fleet's database: tables, migrations, engines, the sequence of changes."""
